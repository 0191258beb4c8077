"""Kill runs and lessons with SIGKILL at random moments, repeat them, compare with ones left alone.

python tests/cli/kill_and_resume.py 20        # runs and lessons
python tests/cli/kill_and_resume.py 60 lessons
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

RUN = ["run", "--dataset", "generated", "--memory", "60", "--seeds", "2", "--json"]
TRAIN = [
    "action", "train", "generated", "--model", "mlp", "--epochs", "1", "--split", "none",
    "--memory", "400",
]  # fmt: skip
TIMINGS = ("seconds", "items_per_second", "learn_seconds", "test_seconds", "learn_cpu_seconds")
SHORT = ["--epochs", "2"]
MODEL = "recognizer.safetensors"


def start(arguments: list[str]) -> BaseProcess:
    """Begin a command in a copy of this process: what is imported here is not imported again."""
    process = get_context("fork").Process(target=_command, args=(arguments,))
    process.start()
    return process


def _command(arguments: list[str]) -> None:
    from evergraph.cli import app

    warnings.resetwarnings()
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    app(arguments)


def complete(arguments: list[str]) -> None:
    """Run a command to its end."""
    process = start(arguments)
    process.join()
    assert process.exitcode == 0, (process.exitcode, arguments)


def kill_at(arguments: list[str], seconds: float) -> bool:
    """Start, and kill after so many seconds; False if it was done before."""
    process = start(arguments)
    process.join(seconds)
    if process.exitcode is not None:
        return False
    process.kill()
    process.join()
    return True


# -- runs -----------------------------------------------------------------------------------


def command(folder: Path, *more: str) -> list[str]:
    return [*RUN, "--out", str(folder / "out"), *more]


def finish(arguments: list[str]) -> dict:
    """The result of a run that is left alone, without times; arguments begin with `command`."""
    complete(arguments)
    place = Path(arguments[len(RUN) + 1])
    result = json.loads((place / "result.json").read_text())
    shutil.rmtree(place)
    result["runs"] = [untimed(one) for one in result["runs"]]
    return untimed(result)


def untimed(result: dict) -> dict:
    return {key: value for key, value in result.items() if key not in TIMINGS}


def trial(folder: Path, expected: dict, length: float, chance: random.Random) -> tuple[float, bool]:
    """One killed and resumed run; returns when it was killed and whether the result is the same.

    A run that is done before its moment does not count: it is tried again, sooner.
    """
    safe = ["--checkpoint", str(folder / "checkpoint"), "--every", "0"]
    moment = chance.uniform(0, length)
    while not kill_at(command(folder, *safe), moment):
        for left in folder.glob("checkpoint*"):
            left.unlink()
        moment = chance.uniform(0, moment)
    return moment, finish(command(folder, *safe, "--resume")) == expected


def runs(folder: Path, trials: int, chance: random.Random) -> int:
    """How many of the killed runs ended with another result."""
    finish(command(folder))  # compiles what has to be compiled
    begin = time.monotonic()
    expected = finish(command(folder))
    alone = time.monotonic() - begin
    print(f"a run left alone: {alone:.1f} s, accuracy {expected['accuracy_mean']:.4f}")
    failures = 0
    for number in range(trials):
        place = folder / str(number)
        moment, same = trial(place, expected, 1.5 * alone, chance)  # checkpoints take time too
        saved = "with" if (place / "checkpoint").exists() else "before"
        print(f"{number + 1}: killed at {moment:.2f} s, {saved} a checkpoint: ", end="")
        left = {path.name for path in place.iterdir()} - {"checkpoint", "checkpoint.previous"}
        wrong = f"LEFT BEHIND: {sorted(left)}" if left else "" if same else "ANOTHER RESULT"
        print(wrong or "the same result", flush=True)
        failures += bool(wrong)
    return failures


# -- lessons --------------------------------------------------------------------------------


def lesson_of(folder: Path) -> tuple[Path, list[bytes], float]:
    """A recording, a model before and after one, two and three lessons, and the seconds of one."""
    import evergraph.apps.action.recognizer
    import evergraph.apps.action.sources  # noqa: F401
    from evergraph.apps.action.recording import generate

    data = generate(activities=7, trials=1, seconds=60.0)
    new = next(one for one in data.recordings if one.activity == data.activities[-1])
    rows = new.samples.reshape(len(new), -1)
    lines = [f"{i / data.layout.rate:.3f}," + ",".join(map(str, row)) for i, row in enumerate(rows)]
    recording = folder / f"{new.name}.csv"
    recording.write_text("\n".join([",".join(["time", *data.layout.columns]), *lines]) + "\n")
    model = folder / "alone"
    complete([*TRAIN, "--out", str(model)])
    states = [(model / MODEL).read_bytes()]
    complete(lesson(model, recording))
    states.append((model / MODEL).read_bytes())
    begin = time.monotonic()
    for _ in range(2):
        start(lesson(model, recording)).join()
        states.append((model / MODEL).read_bytes())
    return recording, states, (time.monotonic() - begin) / 2


def lesson(model: Path, recording: Path) -> list[str]:
    return ["action", "learn", str(model), str(recording), *SHORT]


def lesson_trial(
    model: Path, recording: Path, states: list[bytes], length: float, chance: random.Random
) -> tuple[str, str]:
    """One killed lesson, and one more that is left alone; returns when, and what was wrong.

    Every second one is killed while the new file is written beside the old one.
    """
    model.mkdir()
    (model / MODEL).write_bytes(states[0])
    process = start(lesson(model, recording))
    if chance.random() < 0.5:
        while process.is_alive() and not any(model.glob(f".{MODEL}.*-*")):
            time.sleep(0)
        time.sleep(seconds := chance.uniform(0, 0.03))
        moment = f"{seconds * 1e3:.0f} ms into the writing"
    else:
        process.join(seconds := chance.uniform(0, length))
        moment = f"at {seconds:.2f} s"
    process.kill()
    process.join()
    found = (model / MODEL).read_bytes()
    if found not in states[:2]:
        return moment, "A MIXTURE"
    done = states.index(found)
    start(lesson(model, recording)).join()
    if (model / MODEL).read_bytes() != states[done + 1]:
        return moment, "ANOTHER RESULT"
    if (model / f"{MODEL}.previous").read_bytes() != found:
        return moment, "ANOTHER PREVIOUS GENERATION"
    left = sorted(path.name for path in model.iterdir())
    return f"{moment}, {('before', 'after')[done]}", (
        "" if left == [MODEL, f"{MODEL}.previous"] else f"LEFT BEHIND: {left}"
    )


def lessons(folder: Path, trials: int, chance: random.Random) -> int:
    """How many of the killed lessons ended with another model, or with files left behind."""
    recording, states, alone = lesson_of(folder)
    print(f"a lesson left alone: {alone:.1f} s, {len(states[1]):,} bytes")
    failures = 0
    for number in range(trials):
        model = folder / str(number)
        moment, wrong = lesson_trial(model, recording, states, alone, chance)
        print(f"{number + 1}: killed {moment}: {wrong or 'the same model'}", flush=True)
        shutil.rmtree(model)
        failures += bool(wrong)
    return failures


def main(trials: int, *kinds: str) -> int:
    failures = 0
    for kind in (runs, lessons):
        if not kinds or kind.__name__ in kinds:
            with tempfile.TemporaryDirectory() as name:
                wrong = kind(Path(name), trials, random.Random(0))
            print(f"{trials - wrong} of {trials} {kind.__name__} ended the same")
            failures += wrong
    return failures


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, *sys.argv[2:]))
