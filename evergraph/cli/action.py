"""The commands for body-worn sensors: train, evaluate, predict, learn."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evergraph.cli.action_output import report_score
from evergraph.cli.console import (
    AsJson,
    Seed,
    Threads,
    complaints,
    progress,
    remark,
    signals,
    use_threads,
    write,
    written,
)

if TYPE_CHECKING:
    from evergraph.apps.action.online import Prediction

action = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Recognize activities from body-worn sensors, and learn new ones.",
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
    model: Annotated[
        str,
        typer.Option(help="`auto` picks rich, rich-graph (closed forms) or fgn; or gat, ..."),
    ] = "auto",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes of a network; by default until it has converged."),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(help="Samples in a window: two instants. By default up to 50, see below."),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(help="Samples from one window to the next; by default half a window."),
    ] = None,
    memory: Annotated[int, typer.Option(help="Windows kept to continue learning.")] = 5000,
    memory_bytes: Annotated[int | None, typer.Option(help="Bytes that they may take.")] = None,
    across: Annotated[
        bool,
        typer.Option(help="Windows across changes of activity in a file show what fills most."),
    ] = False,
    augment: Annotated[bool, typer.Option(help="Vary sensors: for people not seen.")] = False,
    rate: Rate = None,
    split: Split = "time",
    leave_out: LeaveOut = "",
    people: Annotated[
        str,
        typer.Option(help="Who will be recognized: `new` people, or those `known` from training."),
    ] = "new",
    seed: Seed = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Learn activities from recordings, and write a model folder.

    A window is 50 samples long, or half of the typical recording of the activity with the shortest.
    Models are compared, and networks trained until they have converged, on a part of the training
    recordings: people, if there are three or more, or with --people known the end of each
    recording. A first try without any data: `evergraph action
    train generated`.
    """
    with complaints(f"{out}/ is as it was."), signals() as stop, progress(as_json) as shown:
        from evergraph.apps.action.choice import candidates, choose
        from evergraph.apps.action.recognizer import FILE, Recognizer
        from evergraph.apps.action.sources import load
        from evergraph.apps.action.splits import hold_back, propose_length
        from evergraph.apps.action.teaching import RecognizerConfig
        from evergraph.evaluate.figures import confusion_matrix
        from evergraph.learn.checkpoint import locked

        use_threads(threads)
        with _step(shown, f"reading {data}", stop) as report:
            everything = load(data, rate, report)
        length = length or propose_length(everything.recordings)
        held = hold_back(everything, split, leave_out, length)
        training, testing = held.training, held.testing
        config = RecognizerConfig(
            model=candidates(model)[0], length=length,
            stride=stride or max(length // 2, 1), memory=memory, memory_bytes=memory_bytes,
            across=across, augment=augment, seed=seed,
        )  # fmt: skip
        with locked(out / FILE):  # fails before the work if the folder cannot be written
            with _step(shown, "comparing models", stop) as report:
                picked = choose(
                    training, config, candidates(model), epochs, report,
                    people,  # type: ignore[arg-type]
                )  # fmt: skip
            config = replace(config, model=picked.model, settings=picked.settings)
            recognizer = Recognizer(training.layout, held.known, config)
            with _step(shown, "learning", stop) as report:
                lesson = recognizer.learn(training.recordings, picked.passes, report=report)
            recognizer.calibration = picked.calibration
            score = None if testing is None else recognizer.evaluate(testing.recordings)
            for old in ("confusion.png", "score.json"):  # of another model
                (out / old).unlink(missing_ok=True)
            recognizer.save(out)
            if score is not None:
                confusion_matrix(score.confusion, score.activities, out / "confusion.png")
                write({**asdict(score), "untested": held.untested}, out / "score.json")
    result = {
        "model": str(out), "picked": asdict(picked), "length": length, "untested": held.untested,
        "unlearned": held.unlearned,
        "notes": [*everything.notes, *held.notes, picked.text],
        "skipped": lesson.skipped, "clipped": lesson.clipped,
    }  # fmt: skip
    report_score(result, score, as_json, f"{everything.name}, {picked.model}, windows of {length}")


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
    """Test a model on recordings with known activities."""
    from evergraph.apps.action.recognizer import Recognizer
    from evergraph.apps.action.sources import load
    from evergraph.apps.action.splits import divide
    from evergraph.evaluate.figures import confusion_matrix

    use_threads(1)
    with complaints(), progress(as_json) as shown:
        recognizer = Recognizer.load(model)
        with _step(shown, f"reading {data}") as report:
            everything = load(data, rate or recognizer.layout.rate, report)
        everything = everything.in_layout(recognizer.layout)
        _, testing = divide(everything, split, leave_out)
        score = recognizer.evaluate((testing or everything).recordings)
        if picture:
            confusion_matrix(score.confusion, score.activities, picture)
    result = {"model": str(model), "notes": [*everything.notes, *recognizer.notes]}
    report_score(result, score, as_json, everything.name)


@action.command("predict")
def predict(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="CSV or Parquet with `time` and `sensor.channel` columns, or - .")
    ] = "-",
    stride: Annotated[
        float | None,
        typer.Option(help="Seconds from one prediction to the next; by default as in training."),
    ] = None,
    unknown: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Novelty from which on a window shows an unknown activity; 1: never."
        ),
    ] = 0.99,
    picture: Annotated[Path | None, written("Draw colored bands here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict activities, one line per window.

    Probabilities are calibrated on windows that training held back; novelty is the share of those
    that are more like what the model knows, and from --unknown on the activity is unknown. Reads
    standard input as the samples come if FILE is - or left out; each line is written as soon as its
    window and two thirds of a second more have come. A sensor that drops out is named in the fourth
    column while the others carry on. With --json each line is a JSON object.
    """
    from evergraph.apps.action.csv_stream import open_table
    from evergraph.apps.action.online import draw, follow
    from evergraph.apps.action.recognizer import Recognizer

    use_threads(1)
    kept: list[Prediction] = []
    follower = None
    with complaints():
        recognizer = Recognizer.load(model)
        table, source = open_table(file)
        rate = recognizer.layout.rate
        step = recognizer.config.stride if stride is None else max(1, round(stride * rate))
        if not as_json:
            typer.echo("time,activity,probability,missing,novelty")
        for made, state in follow(recognizer, table, source, step, unknown):
            follower = state
            typer.echo(json.dumps(asdict(made)) if as_json else made.line())
            sys.stdout.flush()
            kept += [made] if picture else []
        if picture and kept:
            draw(kept, file, recognizer, step, picture)
    remarks = list(recognizer.notes)
    if follower is None:
        seconds = recognizer.config.length / recognizer.layout.rate
        remarks += [f"{source} is shorter than one window of {seconds:g} s."]
    elif follower.degraded:
        remarks += [f"A sensor was missing in {follower.degraded} of {follower.windows} windows."]
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
    allowed_loss: Annotated[
        float, typer.Option(min=0, max=1, help="Mean recall that old activities may lose.")
    ] = 0.1,
    outliers: Annotated[
        str, typer.Option(help="Absurd values of a channel: `clip`, `refuse` or `pass`.")
    ] = "clip",
    force: Annotated[bool, typer.Option("--force", help="Keep it, whatever they lose.")] = False,
    out: Annotated[Path | None, written("Another folder to write to.", folder=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Continue learning: a new activity or person, without old data.

    Old windows are replayed from the model's own memory. At the end the new model is tested on
    them: if the old activities lose more than --allowed-loss of their mean recall, or one of them
    more than 0.5, nothing is written. Otherwise the model is replaced in one step, and the
    generation before it is kept in the folder. Whatever fails or is interrupted leaves the folder
    as it was.
    """
    with complaints(f"{model}/ is as it was."), signals() as stop, progress(as_json) as shown:
        from evergraph.apps.action.recognizer import FILE, Recognizer, model_file
        from evergraph.apps.action.sources import read_folder
        from evergraph.learn.checkpoint import locked

        use_threads(1)
        target = model_file(model).parent if out is None else out
        if not file.exists():
            raise ValueError(f"no recording at {file}")
        with locked(target / FILE):
            recognizer = Recognizer.load(model)
            known, layout = set(recognizer.activities), recognizer.layout
            with _step(shown, f"reading {file}", stop) as report:
                data = read_folder(file, progress=report, layout=layout, activity=activity)
            with _step(shown, "learning", stop) as report:
                lesson = recognizer.learn(
                    data.recordings, epochs, rescale, report, None if force else allowed_loss,
                    outliers,  # type: ignore[arg-type]
                )  # fmt: skip
            recognizer.save(target)
    with complaints(f"The lesson was learned before; the new model is in {target}/."):
        _heed(stop)
    tested = lesson.on_memory()
    fresh, count = [a for a in recognizer.activities if a not in known], len(data.recordings)
    result = {
        "model": str(target), "recordings": count, "skipped": lesson.skipped,
        "clipped": lesson.clipped, "new_activities": fresh, "activities": recognizer.activities,
        "on_memory": tested, "notes": [*data.notes, *recognizer.notes],
    }  # fmt: skip
    what = f"new: {', '.join(fresh)}" if fresh else "no new activity"
    text = f"Learned {count} recordings ({what})."
    if tested:
        was, now = tested["accuracy"]
        text += f"\nAccuracy on the {tested['windows']} windows in memory: {was:.3f} → {now:.3f}"
    report_score(result, None, as_json, text)


@contextmanager
def _step(
    shown: Any, text: str, stop: Callable[[], bool] = lambda: False
) -> Iterator[Callable[[int, int], None]]:
    """A line of the progress display, while it lasts; `stop` is asked at every report."""
    task = shown.add_task(text, total=None)

    def report(done: int, total: int) -> None:
        shown.update(task, completed=done, total=total)
        _heed(stop)

    try:
        yield report
        _heed(stop)
    finally:
        shown.remove_task(task)


def _heed(stop: Callable[[], bool]) -> None:
    from evergraph.evaluate.run import Stopped

    if stop():
        raise Stopped("a signal has come")
