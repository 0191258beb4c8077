"""The commands for body-worn sensors: train, evaluate, predict, learn."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evergraph.cli.console import AsJson, complaints, progress, use_threads

if TYPE_CHECKING:
    from evergraph.applications.action.online import Prediction
    from evergraph.applications.action.recognizer import Recognizer, Score
    from evergraph.applications.action.recording import Recordings

action = typer.Typer(
    no_args_is_help=True,
    help="Recognize activities from body-worn sensors, and go on learning new ones.",
)

Data = Annotated[
    str,
    typer.Argument(
        help="A folder of CSV or Parquet files (one recording each, columns `time`, "
        "`sensor.channel`..., `activity`), DSADS (.npz or its text folder), WARD (ward.mat or its "
        "raw folder), or `generated`."
    ),
]
Model = Annotated[Path, typer.Argument(help="A model folder, made by `evergraph action train`.")]
Rate = Annotated[
    float | None,
    typer.Option(help="Samples per second to work with; WARD: at which it was recorded."),
]
Split = Annotated[
    str,
    typer.Option(
        help="`time`: the last 20 % of each recording are held back to test; `none`: use all."
    ),
]
LeaveOut = Annotated[str, typer.Option(help="Subjects to hold back instead, separated by commas.")]


@action.command("train")
def train(
    data: Data,
    out: Annotated[Path, typer.Option(help="The model folder to write.")] = Path("action_model"),
    model: Annotated[
        str, typer.Option(help="fgn, gat, gcn, appnp, mlp, cnn, or another network.")
    ] = "fgn",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the recordings.")] = 2,
    length: Annotated[int, typer.Option(help="Samples in a window: two instants.")] = 50,
    stride: Annotated[int, typer.Option(help="Samples from one window to the next.")] = 25,
    memory: Annotated[int, typer.Option(help="Windows kept to go on learning.")] = 5000,
    memory_bytes: Annotated[
        int | None, typer.Option(help="Bytes that they may take, if that is less.")
    ] = None,
    rate: Rate = None,
    split: Split = "time",
    leave_out: LeaveOut = "",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Learn activities from recordings, test on what was held back, write a model folder.

    A first try without any data: `evergraph action train generated`.
    """
    from evergraph.applications.action.recognizer import Recognizer, Settings
    from evergraph.report.action_figures import confusion_matrix

    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        everything = _load(data, rate, shown)
        training, testing = _divide(everything, split, leave_out)
        settings = Settings(
            model=model, epochs=epochs, length=length, stride=stride, memory=memory,
            memory_bytes=memory_bytes, seed=seed,
        )  # fmt: skip
        recognizer = Recognizer(everything.layout, everything.activities, settings)
        skipped = _learn(recognizer, training, epochs, False, shown)
        score = None if testing is None else recognizer.evaluate(testing.recordings)
        recognizer.save(out)
    if score is not None:
        confusion_matrix(score.confusion, score.activities, out / "confusion.png")
        (out / "score.json").write_text(json.dumps(asdict(score), indent=1) + "\n")
    _tell(
        {"model": str(out), "notes": list(everything.notes), "skipped": skipped},
        score,
        as_json,
        f"{everything.name}, {model}",
    )


@action.command("evaluate")
def evaluate(
    model: Model,
    data: Data,
    split: Split = "none",
    leave_out: LeaveOut = "",
    rate: Rate = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the confusion matrix here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test a model on recordings with known activities: accuracy, recall and precision."""
    from evergraph.applications.action.recognizer import Recognizer, same_layout
    from evergraph.report.action_figures import confusion_matrix

    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recognizer = Recognizer.load(model)
        found = _load(data, rate or recognizer.layout.rate, shown)
        everything = same_layout(found, recognizer.layout)
        _, testing = _divide(everything, split, leave_out)
        score = recognizer.evaluate((testing or everything).recordings)
    if picture is not None:
        confusion_matrix(score.confusion, score.activities, picture)
    _tell({"model": str(model), "notes": list(everything.notes)}, score, as_json, everything.name)


@action.command("predict")
def predict(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="A CSV file with `time` and `sensor.channel` columns, or - .")
    ] = "-",
    stride: Annotated[float, typer.Option(help="Seconds from one prediction to the next.")] = 1.0,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the recording as colored bands here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what is going on, one line per window: time, activity, probability.

    Reads standard input as the samples come if FILE is - or left out; each line is written as
    soon as its window and a quarter of a second more have come. A sensor that drops out is named
    in a fourth column while the others carry on. With --json each line is a JSON object.
    """
    from evergraph.applications.action.online import follow
    from evergraph.applications.action.recognizer import Recognizer

    use_threads(1)
    kept: list[Prediction] = []
    follower = None
    with complaints(), ExitStack() as stack:
        recognizer = Recognizer.load(model)
        lines, source = _open(file, stack)
        step = max(1, round(stride * recognizer.layout.rate))
        if not as_json:
            typer.echo("time,activity,probability,missing")
        for made, state in follow(recognizer, lines, source, step):
            follower = state
            typer.echo(_line(made, as_json))
            sys.stdout.flush()
            if picture is not None:
                kept.append(made)
        if picture is not None and kept:
            _draw(kept, file, recognizer, step, picture)
    _remark(follower, source, recognizer)


@action.command("learn")
def learn(
    model: Model,
    file: Annotated[
        Path, typer.Argument(help="A labelled recording, CSV or Parquet; or a folder.")
    ],
    activity: Annotated[
        str, typer.Option(help="What it shows, if neither a column nor its name tells.")
    ] = "",
    epochs: Annotated[int | None, typer.Option(help="Passes over the new recording.")] = None,
    rescale: Annotated[
        bool, typer.Option(help="Let the scale of the signals follow the new recording too.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write to another folder and leave MODEL as it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Go on learning from a new recording: a new activity, or a new person, without the old data.

    Old windows are replayed from the model's own memory. The folder is replaced in one step at
    the end; if anything fails before, it stays as it was.
    """
    from evergraph.applications.action.folder import read_folder, recordings_of
    from evergraph.applications.action.recognizer import Recognizer
    from evergraph.applications.action.rows import read_file

    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recognizer = Recognizer.load(model)
        notes: list[str] = []
        if file.is_dir():
            everything = read_folder(file, recognizer.layout.rate)
            recordings, notes = list(everything.recordings), list(everything.notes)
        elif file.is_file():
            header, block = read_file(file)
            recordings = recordings_of(file, header, block, recognizer.layout, notes)
        else:
            raise ValueError(f"no recording at {file}")
        if activity:
            from dataclasses import replace

            recordings = [replace(recording, activity=activity) for recording in recordings]
        known = set(recognizer.activities)
        skipped = _learn_recordings(recognizer, recordings, epochs, rescale, shown)
        recognizer.save(out or model)
    fresh = [name for name in recognizer.activities if name not in known]
    result = {
        "model": str(out or model), "recordings": len(recordings), "skipped": skipped,
        "new_activities": fresh, "activities": recognizer.activities, "notes": notes,
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    console = Console()
    what = f"new: {', '.join(fresh)}" if fresh else "no new activity"
    console.print(f"Learned {len(recordings)} recordings ({what}); {skipped} were too short.")
    for note in notes:
        console.print(note, style="dim")
    console.print(f"The model is in {out or model}/", style="dim")


def _load(data: str, rate: float | None, shown: Any) -> Recordings:
    from evergraph.applications.action.sources import load

    task = shown.add_task(f"reading {data}", total=None)
    try:
        return load(data, rate, lambda done, total: shown.update(task, completed=done, total=total))
    finally:
        shown.remove_task(task)


def _divide(data: Recordings, split: str, leave_out: str) -> tuple[Recordings, Recordings | None]:
    from evergraph.applications.action.windows import split_in_time

    if leave_out:
        gone = [name.strip() for name in leave_out.split(",")]
        return data.without(gone), data.of(gone)
    if split not in ("time", "none"):
        raise ValueError(f"split must be time or none, got {split!r}")
    return split_in_time(data) if split == "time" else (data, None)


def _learn(
    recognizer: Recognizer, data: Recordings, epochs: int | None, rescale: bool, shown: Any
) -> int:
    return _learn_recordings(recognizer, list(data.recordings), epochs, rescale, shown)


def _learn_recordings(
    recognizer: Recognizer, recordings: list[Any], epochs: int | None, rescale: bool, shown: Any
) -> int:
    task = shown.add_task("learning", total=None)

    def report(done: int, total: int) -> None:
        shown.update(task, completed=done, total=total)

    try:
        return recognizer.learn(recordings, epochs, rescale, report)
    finally:
        shown.remove_task(task)


def _open(file: str, stack: ExitStack) -> tuple[Any, str]:
    if file == "-":
        return sys.stdin, "standard input"
    if not Path(file).is_file():
        raise ValueError(f"no recording at {file}; use - to read standard input")
    return stack.enter_context(Path(file).open(newline="", encoding="utf-8")), file


def _line(made: Prediction, as_json: bool) -> str:
    if as_json:
        return json.dumps(asdict(made))
    return f"{made.time:.3f},{made.activity},{made.probability:.4f},{'+'.join(made.missing)}"


def _remark(follower: Any, source: str, recognizer: Recognizer) -> None:
    """What was odd about a recording, on standard error."""
    console = Console(stderr=True)
    if follower is None:
        seconds = recognizer.settings.length / recognizer.layout.rate
        console.print(f"{source} is shorter than one window of {seconds:g} s.", style="yellow")
        return
    if follower.degraded:
        console.print(
            f"A sensor was missing in {follower.degraded} of {follower.windows} windows.",
            style="yellow",
        )
    if follower.resampler.breaks:
        console.print(f"{len(follower.resampler.breaks)} breaks in time.", style="yellow")


def _draw(
    kept: list[Prediction], file: str, recognizer: Recognizer, step: int, picture: Path
) -> None:
    """Bands of what was told, and of what was true if the file has a column for it."""
    import numpy as np

    from evergraph.applications.action.rows import read_file
    from evergraph.report.action_figures import bands

    time = [made.time for made in kept]
    true = [""] * len(kept)
    if file != "-":
        header, block = read_file(Path(file))
        if header.label >= 0:
            middle = np.array(time) + recognizer.settings.length / recognizer.layout.rate / 2
            place = np.clip(np.searchsorted(block.time, middle), 0, len(block.time) - 1)
            true = [block.labels[i] for i in place]
    bands(time, [made.activity for made in kept], true, step / recognizer.layout.rate, picture)


def _tell(about: dict[str, Any], score: Score | None, as_json: bool, title: str) -> None:
    if as_json:
        found = {} if score is None else asdict(score)
        typer.echo(json.dumps({**about, **found}, indent=1))
        return
    console = Console()
    if score is not None:
        table = Table(title=f"{title}: accuracy {score.accuracy:.3f} on {score.windows} windows")
        for name in ("activity", "recall", "precision"):
            table.add_column(name, justify="left" if name == "activity" else "right")
        for name, recall in score.recall.items():
            table.add_row(name, f"{recall:.3f}", f"{score.precision[name]:.3f}")
        console.print(table)
    if about.get("skipped"):
        console.print(f"{about['skipped']} recordings were shorter than a window.", style="yellow")
    for note in about["notes"]:
        console.print(note, style="dim")
    console.print(f"The model is in {about['model']}/", style="dim")
