"""A recognizer at work, taught and fed by a pipe: `python -m benchmarks.action_stream --json`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.measure import resident_mb
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Recordings
from evergraph.apps.action.sources import load
from evergraph.apps.action.splits import split_in_time
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.cli.console import (
    AsJson,
    DataRoot,
    Out,
    complaints,
    publish,
    table_of,
    use_threads,
)
from evergraph.evaluate.evidence import provenance

TICK = 0.02  # seconds between two writes to the pipe


def teach(
    data: Recordings, activity: str, subject: str, config: RecognizerConfig
) -> tuple[dict[str, Any], Recognizer]:
    """Train without an activity, then learn it from one recording of one subject.

    The first 80 % of each recording train, the rest test: the recall of the activity on all its
    recordings, and on the subject's own, and the mean recall of the others, before and after.
    """
    train, test = split_in_time(data)
    if activity not in data.activities or subject not in data.subjects:
        raise ValueError(f"no recording of {activity!r} by {subject!r} among the data")
    recognizer = Recognizer(data.layout, config=config)
    recognizer.learn([r for r in train.recordings if r.activity != activity], config.epochs)
    before = recognizer.evaluate([r for r in test.recordings if r.activity != activity]).recall
    lesson, own = (
        [r for r in part.recordings if (r.activity, r.subject) == (activity, subject)]
        for part in (train, test)
    )
    start = time.process_time()
    recognizer.learn(lesson)
    seconds = time.process_time() - start
    after = recognizer.evaluate(test.recordings).recall
    return {
        "activity": activity,
        "subject": subject,
        "seconds_of_recording": sum(len(r) for r in lesson) / data.layout.rate,
        "recall_before": 0.0,  # a class that the network does not have cannot be told
        "recall_after": after[activity],
        "recall_after_own": recognizer.evaluate(own).recall[activity],
        "others_before": float(np.mean(list(before.values()))),
        "others_after": float(np.mean([after[name] for name in before])),
        "processor_seconds": seconds,
    }, recognizer


def pipe(
    model: Path, data: Recordings, seconds: float = 3600.0, speed: float = 100.0
) -> dict[str, Any]:
    """Feed `evergraph action predict` through a pipe, at a multiple of real time.

    Lag is the time from the moment at which the last sample that a prediction needs was written
    to the moment at which its line is read.
    """
    rate, length = data.layout.rate, Recognizer.load(model).config.length
    rows = int(seconds * rate)
    lines = _lines(data, rows)
    command = [sys.executable, "-m", "evergraph", "action", "predict", str(model), "-"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None  # noqa: PT018
    told: list[tuple[float, float]] = []
    ready = threading.Event()

    def listen(lines: Iterable[str]) -> None:
        for line in lines:
            if line.startswith("time"):
                ready.set()
            else:
                told.append((float(line.split(",")[0]), time.perf_counter()))

    listener = threading.Thread(target=listen, args=(child.stdout,))
    listener.start()
    child.stdin.write(lines[0])
    child.stdin.flush()
    ready.wait(120)  # imports and the model are not part of the stream
    resident: list[float] = []
    start, sent = time.perf_counter(), 0
    while sent < rows:
        due = min(rows, int((time.perf_counter() - start) * speed * rate) + 1)
        child.stdin.write("".join(lines[1 + sent : 1 + due]))
        child.stdin.flush()
        if sent // (rows // 20) != due // (rows // 20):
            resident.append(resident_mb(child.pid))
        sent = due
        time.sleep(TICK)
    child.stdin.close()
    listener.join()
    child.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    needed = [start + (at + length / rate) / speed for at, _ in told]
    lag = [seen - when for when, (_, seen) in zip(needed, told, strict=True)]
    return {
        "recorded_seconds": seconds,
        "speed": speed,
        "windows": len(told),
        "windows_expected": int((rows - length) // rate) + 1,
        "lag_seconds_median": statistics.median(lag),
        "lag_seconds_largest": max(lag),
        "lag_seconds_last": lag[-1],
        "resident_mb": resident,
        "resident_mb_growth": resident[-1] - resident[1],
        "seconds": time.perf_counter() - start,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
    }


def _lines(data: Recordings, rows: int) -> list[str]:
    """A long recording as CSV: all recordings one after the other, over and over."""
    made = ["time," + ",".join(data.layout.columns) + "\n"]
    while len(made) <= rows:
        for recording in data.recordings:
            flat = recording.samples.reshape(len(recording), -1)
            for values in flat[: rows + 1 - len(made)]:
                at = (len(made) - 1) / data.layout.rate
                made.append(f"{at:.3f}," + ",".join(f"{v:.5g}" for v in values) + "\n")
    return made


def main(
    data: Annotated[str, typer.Option(help="Recordings; by default DSADS in --data-root.")] = "",
    activity: str = "rowing",
    subject: str = "p1",
    seconds: Annotated[float, typer.Option(help="Recorded time to feed.")] = 3600.0,
    speed: Annotated[float, typer.Option(help="Times real time.")] = 100.0,
    stride: Annotated[int, typer.Option(help="Samples between training windows.")] = 100,
    epochs: int = 3,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Teach a trained model one new activity, then feed it an hour of samples through a pipe."""
    use_threads(1)
    config = RecognizerConfig(stride=stride, epochs=epochs)
    with complaints(), tempfile.TemporaryDirectory() as folder:
        recordings = load(data or str((data_root or Path()) / "dsads" / "dsads_int16.npz"))
        lesson, recognizer = teach(recordings, activity, subject, config)
        recognizer.save(Path(folder))
        stream = pipe(Path(folder), recordings, seconds, speed)
    about = {"stride": stride, "epochs": epochs, "seed": config.seed, "data": recordings.name}
    result = {**provenance(), "config": about, "lesson": lesson, "pipe": stream}

    found = {**lesson, **stream}.items()
    rows = [[name, f"{v:.4g}" if isinstance(v, float) else str(v)] for name, v in found]
    publish(result, as_json, out, lambda: table_of("A recognizer at work", ("what", "value"), rows))


if __name__ == "__main__":
    typer.run(main)
