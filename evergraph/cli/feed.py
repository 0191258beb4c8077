"""The command that feeds a model folder: events from files, standard input or a stream of Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.console import AsJson, complaints, progress, publish, signals, table_of
from evergraph.cli.curves import Point, Target, curves
from evergraph.cli.event_files import EventFile
from evergraph.cli.model import Folder
from evergraph.cli.model_output import complain, state

if TYPE_CHECKING:
    from rich.progress import Progress

    from evergraph.datasets.events import Event
    from evergraph.datasets.redis_stream import RedisStream
    from evergraph.datasets.report import Report
    from evergraph.model import Model

Part = tuple["list[Event]", int, tuple[str, str]]
"""Events, how much was read up to there, and what the store keeps about it."""


def learn(
    folder: Folder,
    events: Annotated[
        list[str] | None,
        typer.Argument(help="Files of events, JSONL or CSV; `-` reads standard input."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Follow a stream of Redis in place of files: redis://host:port/stream. It "
            "continues where the model is; ?group= names the consumer group.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="Continue each file where an earlier `learn` ended.")
    ] = False,
    chunk: Annotated[int, typer.Option(min=1, help="Events that are stored together.")] = 1000,
    format: Annotated[
        str | None, typer.Option(help="jsonl, csv or tsv; default: by the name, else jsonl.")
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(min=0, help="End when a stream was quiet for so many seconds; else never."),
    ] = None,
    curves_to: Target = None,
    as_json: AsJson = False,
) -> None:
    """Feed events to a model: nodes, edges, labels, deletions.

    They come in any order. What is stored is safe, and its place in the file with it: after a
    crash, --resume continues behind it, and nothing is learned twice. A stream always continues
    there. Refused events are printed, and the exit code is 1 then; the others are learned.
    """
    from evergraph.datasets.report import Report
    from evergraph.model import Model

    report = Report(None if as_json else complain)
    hint = "All that was learned is saved: continue with "
    hint += "--resume." if source is None else "the same command."
    with complaints(hint), signals() as stopped, curves(curves_to) as point:
        opened = _opened(events or [], source)
        with Model.open(folder) as model, progress(as_json) as shown:
            feed = Feed(model, report, shown, stopped, point)
            if isinstance(opened, list):
                starts = [file.place(model.store) if resume else None for file in opened]
                parts = [
                    feed.file(file, start=start, size=chunk, format=format)
                    for file, start in zip(opened, starts, strict=True)
                ]
            else:
                parts = [feed.stream(opened, size=chunk, wait=wait)]
            _save(model)
            found = {
                "learned": sum(part["learned"] for part in parts),
                "refused": report.count,
                "files": parts,
                "problems": [asdict(problem) for problem in report.problems],
                **state(model),
            }
        if stopped():
            raise KeyboardInterrupt
    columns = ("file", "learned", "refused", "bytes read" if source is None else "entries read")
    rows = [(p["file"], *(f"{p[k]:,}" for k in ("learned", "refused", "offset"))) for p in parts]
    caption = f"{found['position']:,} events so far; digest {found['digest'][:16]}"
    publish(found, as_json, None, lambda: table_of(str(folder), columns, rows, caption=caption))
    if found["refused"]:
        raise typer.Exit(1)


def _opened(events: list[str], source: str | None) -> list[EventFile] | RedisStream:
    """The files or the stream that a user has named."""
    if bool(events) == (source is not None):
        raise ValueError("events must come from files or --from a stream: give one of them")
    if source is None:
        return [EventFile(name) for name in events]
    from evergraph.datasets.redis_stream import RedisStream

    return RedisStream(source)


class Feed:
    """Lets a model learn chunk by chunk; the place is stored with what was learned up to there.

    Args:
        model: that learns.
        report: gets complaints.
        shown: the progress display.
        stopped: whether the user wants an end.
        point: takes the learning curves.
    """

    def __init__(
        self,
        model: Model,
        report: Report,
        shown: Progress,
        stopped: Callable[[], bool],
        point: Point,
    ) -> None:
        self.model, self.report, self.stopped = model, report, stopped
        self._shown, self._point = shown, point

    def file(self, file: EventFile, **options: Any) -> dict[str, Any]:
        """Learn a file, from `start` on if it is given."""
        from evergraph.datasets.events import read_events

        start = options["start"]

        def parts() -> Iterator[Part]:
            for events, place in read_events(file.stream(self.stopped), self.report, **options):
                yield events, place.offset, file.note(place)

        return self._learn(file.name, file.size, "bytes", start.offset if start else 0, parts())

    def stream(self, stream: RedisStream, **options: Any) -> dict[str, Any]:
        """Follow a stream from the place that the model has stored."""
        start = stream.place(self.model.store.get(stream.key))
        read = stream.read(start, self.report, stopped=self.stopped, **options)
        parts = ((events, place.count, (stream.key, place.to_json())) for events, place in read)
        return self._learn(stream.name, None, "entries", start.count, parts)

    def _learn(
        self, name: str, total: int | None, unit: str, offset: int, parts: Iterator[Part]
    ) -> dict[str, Any]:
        done: dict[str, Any] = {"file": name, "learned": 0, "refused": 0, "offset": offset}
        before, task = self.report.count, self._shown.add_task(name, total=total)
        for events, offset, note in parts if not self.stopped() else ():
            done["learned"] += self.model.learn(events, self.report, note=note, file=name)
            done.update(refused=self.report.count - before, offset=offset)
            words = f"{name}: {done['learned']:,} events learned, {unit} read"
            self._shown.update(task, completed=offset, description=words)
            self._point(self.model.store.position, _values(self.model))
            if self.stopped():
                break
        return done


def _values(model: Model) -> dict[str, float | None]:
    """What curves show of a model: how well it does on late labels, and how large it is."""
    from evergraph.model.record import curve

    points = curve(model.store)
    right, seen = (sum(point[k] for point in points) for k in (1, 2))
    accuracy = {"all": right / seen, "last": points[-1][1] / points[-1][2]} if seen else {}
    sizes = {"nodes": len(model.graph), "edges": model.graph.num_edges}
    return {**{f"accuracy/{name}": value for name, value in accuracy.items()}, **sizes}


def _save(model: Model) -> None:
    """Save a model that has stored its events already."""
    try:
        model.save()
    except (ValueError, OSError) as error:
        raise ValueError(f"{error}; all events are stored, nothing of them is lost") from error
