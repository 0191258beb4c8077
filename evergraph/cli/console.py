"""What all commands share: common options, progress, tables, JSON and errors."""

from __future__ import annotations

import gc
import json
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

LINE_SECONDS = 5.0  # between lines of progress off a terminal
ROOM = 1 << 20  # bytes that must fit where results go


def written(help: str, folder: bool = False) -> Any:
    """An option for a file or a folder that is written in the end, and checked before the work."""

    def check(parameter: typer.CallbackParam, value: Path | None) -> Path | None:
        if value is not None:
            with complaints():
                _check_place(f"--{parameter.name}", value, folder)
        return value

    return typer.Option(help=help, callback=check)


def _check_place(option: str, path: Path, folder: bool) -> None:
    """Try to write where the path leads, and leave no trace."""
    rule = f"{option} must be a {'folder' if folder else 'file'} that can be written, but"
    try:
        if path.exists() and path.is_dir() != folder:
            raise ValueError(f"{rule} {path} is a {'file' if folder else 'folder'}; rename one")
        start = (path if folder else path.parent).absolute()
        there = next(place for place in (start, *start.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(ROOM))
    except OSError as error:
        raise ValueError(f"{rule} {path} cannot: {error.strerror}; choose another place") from error


AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")
]
Out = Annotated[Path | None, written("Write the JSON to this file too.")]
Threads = Annotated[
    int, typer.Option(min=1, help="Threads of torch; one is quickest for small batches.")
]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        envvar="EVERGRAPH_DATA", help="Folder with data sets; looked at before anything is fetched."
    ),
]


class Lines(Progress):
    """Progress as a plain line every few seconds, for logs and pipes."""

    def __init__(self) -> None:
        super().__init__(console=Console(stderr=True), disable=True)
        self._next = time.monotonic() + 2.0

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Take a change over, and print a line if it is time."""
        super().update(task_id, **changes)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        task = next((task for task in self.tasks if task.id == task_id), None)
        if task is not None:
            total = "" if task.total is None else f" of {task.total:,.0f}"
            words = f"{task.description}: " if task.description else ""
            print(f"{words}{task.completed:,.0f}{total}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Progress on standard error, so that standard output stays clean: a bar, or plain lines."""
    console = Console(stderr=True)
    if not quiet and not console.is_terminal:
        yield Lines()
        return
    words = TextColumn("{task.description}", markup=False)  # names may look like markup
    more = MofNCompleteColumn(), TimeElapsedColumn()
    columns = SpinnerColumn(), words, *Progress.get_default_columns()[1:], *more
    with Progress(*columns, console=console, disable=quiet, transient=True) as shown:
        yield shown


def publish(
    result: object, as_json: bool, out: Path | None, show: Callable[[], RenderableType]
) -> None:
    """Write and print a result, as JSON or as a table; it is printed even if the file fails."""
    with complaints():
        try:
            if out is not None:
                write(result, out)
        finally:
            if as_json:
                typer.echo(json.dumps(result, indent=1))
            else:
                Console().print(show())


def write(result: object, out: Path) -> None:
    """Write a result as JSON, in a folder that is made if need be; never half of it."""
    fresh = out.with_name(f"{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(result, indent=1) + "\n")
        fresh.replace(out)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(f"{out} cannot be written: {error.strerror}; make room for it") from error


def remark(text: str, style: str = "dim", err: bool = False) -> None:
    """Print a line as it is, whatever it holds."""
    Console(stderr=err).print(Text(text), style=style, soft_wrap=True)


def table_of(
    title: str,
    columns: tuple[str, ...],
    rows: Iterable[Sequence[str | Text]],
    left: int = 1,
    caption: str = "",
) -> Table:
    """A table whose first columns are aligned to the left, the others to the right.

    Texts are printed as they are: names of data sets, classes and files may look like markup.
    """
    width = min(max(len(title), len(caption)), 78)  # so that neither is broken without need
    shown = Table(title=escape(title), caption=escape(caption) or None, min_width=width)
    for number, name in enumerate(columns):
        side: Literal["left", "right"] = "left" if number < left else "right"
        shown.add_column(Text(name), justify=side, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return shown


@contextmanager
def signals() -> Iterator[Callable[[], bool]]:
    """Note SIGINT and SIGTERM instead of dying of them; a second one is not held back.

    Yields a function that says whether one has come.
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        _stopped_by[:] = came
        if len(came) > 1:
            raise KeyboardInterrupt

    kinds = (signal.SIGINT, signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    before = {kind: signal.signal(kind, note) for kind in kinds} if main else {}
    try:
        yield lambda: bool(came)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


_stopped_by: list[int] = []  # the signals that have come, for the exit code


@contextmanager
def complaints(resume_hint: str = "") -> Iterator[None]:
    """Turn errors that a user can mend into one line and exit code 2, and Ctrl-C into 130.

    Warnings are one line each too.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            yield
    except (KeyboardInterrupt, SystemError, RuntimeError) as error:
        # an interrupted compiled loop raises a SystemError with the interrupt behind it
        if not _interrupted(error) and type(error).__name__ != "Stopped":
            raise
        typer.echo(f"Interrupted. {resume_hint}".strip(), err=True)
        raise typer.Exit(128 + (_stopped_by or [signal.SIGINT])[0]) from error
    except BrokenPipeError:
        raise
    except (ValueError, OSError, FloatingPointError, MemoryError) as error:
        line = Text.assemble(("Error:", "red"), f" {error}")
        Console(stderr=True).print(line, soft_wrap=True)
        raise typer.Exit(2) from error


def _show_warning(message: Warning | str, *details: object) -> None:
    Console(stderr=True).print(f"[yellow]Warning:[/yellow] {escape(str(message))}", highlight=False)


def _interrupted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def use_threads(count: int) -> None:
    """Let torch use so many threads, and the garbage collector skip what is loaded so far.

    Where nothing has been compiled yet, that is said, since it takes a while.
    """
    import torch

    from evergraph.feature_graph.compiled.kept import compiled_before
    from evergraph.feature_graph.compiled.support import adjacency

    torch.set_num_threads(count)
    if not compiled_before(adjacency):
        remark("The first run compiles its loops and keeps them: about a minute.", err=True)
    gc.freeze()  # the modules are 280,000 objects, which a full collection would walk each time
