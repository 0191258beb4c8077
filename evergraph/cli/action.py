"""The commands for body-worn sensors: train, evaluate, predict, learn."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from evergraph.cli.console import (
    AsJson,
    Seed,
    Threads,
    complaints,
    progress,
    remark,
    table_of,
    use_threads,
    written,
)

if TYPE_CHECKING:
    from evergraph.apps.action.online import Prediction
    from evergraph.apps.action.recognizer import Recognizer, Score
    from evergraph.apps.action.recording import Recordings

action = typer.Typer(
    no_args_is_help=True,
    help="Recognize activities from body-worn sensors, and continue to learn new ones.",
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
    float | None, typer.Option(help="Samples per second to work with; of WARD: recorded.")
]
Split = Annotated[
    str, typer.Option(help="`time`: hold back the last 20 % of each recording to test; `none`.")
]
LeaveOut = Annotated[str, typer.Option(help="Subjects to hold back instead, separated by commas.")]


@action.command("train")
def train(
    data: Data,
    out: Annotated[Path, written("The model folder to write.", folder=True)] = Path("action_model"),
    model: Annotated[str, typer.Option(help="fgn, gat, gcn, appnp, mlp, cnn, ...")] = "fgn",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the recordings.")] = 2,
    length: Annotated[int, typer.Option(help="Samples in a window: two instants.")] = 50,
    stride: Annotated[int, typer.Option(help="Samples from one window to the next.")] = 25,
    memory: Annotated[int, typer.Option(help="Windows kept to continue learning.")] = 5000,
    memory_bytes: Annotated[int | None, typer.Option(help="Bytes that they may take.")] = None,
    augment: Annotated[bool, typer.Option(help="Vary sensors: for people not seen.")] = False,
    rate: Rate = None,
    split: Split = "time",
    leave_out: LeaveOut = "",
    seed: Seed = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Learn activities from recordings, test on what was held back, write a model folder.

    A first try without any data: `evergraph action train generated`.
    """
    from evergraph.apps.action.recognizer import Recognizer, RecognizerConfig
    from evergraph.apps.action.sources import load
    from evergraph.evaluate.figures import confusion_matrix

    use_threads(threads)
    with complaints(), progress(as_json) as shown:
        with _step(shown, f"reading {data}") as report:
            everything = load(data, rate, report)
        training, testing = _divide(everything, split, leave_out)
        known, notes = _known(training, testing, length)
        config = RecognizerConfig(
            model=model, epochs=epochs, length=length, stride=stride, memory=memory,
            memory_bytes=memory_bytes, augment=augment, seed=seed,
        )  # fmt: skip
        out.mkdir(parents=True, exist_ok=True)  # fail before the work if it cannot be written
        recognizer = Recognizer(everything.layout, known, config)
        with _step(shown, "learning") as report:
            skipped = recognizer.learn(training.recordings, epochs, report=report)
        recognizer.save(out)
        score = None
        if testing is not None:
            score = recognizer.evaluate([r for r in testing.recordings if r.activity in known])
            confusion_matrix(score.confusion, score.activities, out / "confusion.png")
            (out / "score.json").write_text(json.dumps(asdict(score), indent=1) + "\n")
    result = {"model": str(out), "notes": [*everything.notes, *notes], "skipped": skipped}
    _report(result, score, as_json, f"{everything.name}, {model}")


@action.command("evaluate")
def evaluate(
    model: Model,
    data: Data,
    split: Split = "none",
    leave_out: LeaveOut = "",
    rate: Rate = None,
    picture: Annotated[Path | None, written("Draw the confusion matrix here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Test a model on recordings with known activities: accuracy, recall and precision."""
    from evergraph.apps.action.recognizer import Recognizer, same_layout
    from evergraph.apps.action.sources import load
    from evergraph.evaluate.figures import confusion_matrix

    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recognizer = Recognizer.load(model)
        with _step(shown, f"reading {data}") as report:
            everything = load(data, rate or recognizer.layout.rate, report)
        everything = same_layout(everything, recognizer.layout)
        _, testing = _divide(everything, split, leave_out)
        score = recognizer.evaluate((testing or everything).recordings)
        if picture:
            picture.parent.mkdir(parents=True, exist_ok=True)
            confusion_matrix(score.confusion, score.activities, picture)
    result = {"model": str(model), "notes": list(everything.notes)}
    _report(result, score, as_json, everything.name)


@action.command("predict")
def predict(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="CSV or Parquet with `time` and `sensor.channel` columns, or - .")
    ] = "-",
    stride: Annotated[float, typer.Option(help="Seconds from one prediction to the next.")] = 1.0,
    picture: Annotated[Path | None, written("Draw colored bands here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict activities, one line per window: time, activity, probability.

    Reads standard input as the samples come if FILE is - or left out; each line is written as
    soon as its window and two thirds of a second more have come. A sensor that drops out is named
    in a fourth column while the others carry on. With --json each line is a JSON object.
    """
    from evergraph.apps.action.online import follow
    from evergraph.apps.action.recognizer import Recognizer

    use_threads(1)
    kept: list[Prediction] = []
    follower = None
    with complaints():
        recognizer = Recognizer.load(model)
        table, source = _open(file)
        step = max(1, round(stride * recognizer.layout.rate))
        if not as_json:
            typer.echo("time,activity,probability,missing")
        for made, state in follow(recognizer, table, source, step):
            follower = state
            typer.echo(json.dumps(asdict(made)) if as_json else _line(made))
            sys.stdout.flush()
            kept += [made] if picture else []
        if picture and kept:
            _draw(kept, file, recognizer, step, picture)
    remarks = []
    if follower is None:
        seconds = recognizer.config.length / recognizer.layout.rate
        remarks = [f"{source} is shorter than one window of {seconds:g} s."]
    elif follower.degraded:
        remarks = [f"A sensor was missing in {follower.degraded} of {follower.windows} windows."]
    if follower is not None and follower.resampler.breaks:
        remarks += [f"{len(follower.resampler.breaks)} breaks in time."]
    for text in remarks:
        remark(text, "yellow", err=True)


@action.command("learn")
def learn(
    model: Model,
    file: Annotated[Path, typer.Argument(help="A labeled recording, CSV or Parquet, or a folder.")],
    activity: Annotated[str, typer.Option(help="What it shows, if the file does not tell.")] = "",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the recording.")] = None,
    rescale: Annotated[bool, typer.Option(help="Update the scale of the signals too.")] = False,
    out: Annotated[Path | None, written("Another folder to write to.", folder=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Continue learning from a new recording: a new activity or person, without the old data.

    Old windows are replayed from the model's own memory. The folder is replaced in one step at
    the end; if anything fails before, it stays as it was.
    """
    from evergraph.apps.action.recognizer import Recognizer
    from evergraph.apps.action.sources import read_folder

    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recognizer = Recognizer.load(model)
        if not file.exists():
            raise ValueError(f"no recording at {file}")
        with _step(shown, f"reading {file}") as report:
            data = read_folder(file, progress=report, layout=recognizer.layout, activity=activity)
        known = set(recognizer.activities)
        with _step(shown, "learning") as report:
            skipped = recognizer.learn(data.recordings, epochs, rescale, report)
        recognizer.save(out or model)
    fresh, count = [a for a in recognizer.activities if a not in known], len(data.recordings)
    result = {
        "model": str(out or model), "recordings": count, "skipped": skipped,
        "new_activities": fresh, "activities": recognizer.activities, "notes": list(data.notes),
    }  # fmt: skip
    what = f"new: {', '.join(fresh)}" if fresh else "no new activity"
    _report(result, None, as_json, f"Learned {count} recordings ({what}).")


@contextmanager
def _step(shown: Any, text: str) -> Iterator[Callable[[int, int], None]]:
    """A line of the progress display, while it lasts."""
    task = shown.add_task(text, total=None)
    try:
        yield lambda done, total: shown.update(task, completed=done, total=total)
    finally:
        shown.remove_task(task)


def _divide(data: Recordings, split: str, leave_out: str) -> tuple[Recordings, Recordings | None]:
    from evergraph.apps.action.windows import split_in_time

    if leave_out:
        gone = [name.strip() for name in leave_out.split(",") if name.strip()]
        if set(gone) >= set(data.subjects):
            raise ValueError(f"--leave-out must leave somebody to learn from, got {leave_out!r}")
        return data.without(gone), data.of(gone)
    if split not in ("time", "none"):
        raise ValueError(f"split must be time or none, got {split!r}")
    return split_in_time(data) if split == "time" else (data, None)


def _known(
    training: Recordings, testing: Recordings | None, length: int
) -> tuple[tuple[str, ...], list[str]]:
    """The activities that can be learned, and a note on those that are only held back."""
    known = {one.activity for one in training.recordings if len(one) >= length}
    held = () if testing is None else testing.recordings
    if held and not any(len(one) >= length and one.activity in known for one in held):
        raise ValueError(
            f"what is held back must have a window of {length} samples to test on, but has none; "
            "use --split none, --leave-out or a shorter --length"
        )
    only = sorted({one.activity for one in held} - known)
    note = f"Not tested, because nothing like it is left to learn from: {', '.join(only)}"
    return tuple(name for name in training.activities if name in known), [note] if only else []


def _open(file: str) -> tuple[Any, str]:
    from evergraph.apps.action.csv_stream import PipeReader

    if file == "-":
        try:
            return PipeReader(sys.stdin.fileno()), "standard input"
        except OSError:  # not a pipe or a terminal
            return sys.stdin, "standard input"
    if not Path(file).is_file():
        raise ValueError(f"no recording at {file}; use - to read standard input")
    return Path(file), file


def _line(made: Prediction) -> str:
    """A prediction as a line of CSV."""
    text = StringIO()
    row = f"{made.time:.3f}", made.activity, f"{made.probability:.4f}", "+".join(made.missing)
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue()


def _draw(
    kept: list[Prediction], file: str, recognizer: Recognizer, step: int, picture: Path
) -> None:
    """A recording as colored bands: what was predicted, and what was true if the file tells."""
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from evergraph.apps.action.csv_stream import read_file

    rate, time = recognizer.layout.rate, [made.time for made in kept]
    bands = [("predicted", [made.activity for made in kept])]
    if file != "-":
        header, block = read_file(Path(file))
        if header.label >= 0:
            middle = np.array(time) + recognizer.config.length / rate / 2
            place = np.clip(np.searchsorted(block.time, middle), 0, len(block.time) - 1)
            bands.append(("true", [block.labels[i] for i in place]))
    names = sorted({name for _, labels in bands for name in labels if name})
    color = {name: mpl.colormaps["tab20"](i % 20) for i, name in enumerate(names)}
    figure = Figure(figsize=(9, 1.4 + 0.5 * len(bands)), layout="constrained")
    axes = figure.add_subplot()
    for row, (_, labels) in enumerate(bands):
        for start, label in zip(time, labels, strict=True):
            if label:
                axes.broken_barh([(start, step / rate)], (row - 0.4, 0.8), facecolor=color[label])
    axes.set_yticks(range(len(bands)), [name for name, _ in bands])
    axes.set(xlabel="seconds", xlim=(min(time), max(time) + step / rate))
    handles = [Patch(color=color[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)


def _report(about: dict[str, Any], score: Score | None, as_json: bool, title: str) -> None:
    """How well a model does, activity by activity, and notes; the title if there is no score."""
    if as_json:
        typer.echo(json.dumps({**about, **({} if score is None else asdict(score))}, indent=1))
        return
    if score is not None:
        rows = [
            [name, f"{recall:.3f}", f"{score.precision[name]:.3f}"]
            for name, recall in score.recall.items()
        ]
        title = f"{title}: accuracy {score.accuracy:.3f} on {score.windows} windows"
        Console().print(table_of(title, ("activity", "recall", "precision"), rows))
    else:
        remark(title, "")
    if about.get("skipped"):
        remark(f"{about['skipped']} recordings were shorter than a window.", "yellow")
    for note in about["notes"]:
        remark(note)
    remark(f"The model is in {about['model']}/")
