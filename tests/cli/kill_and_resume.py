"""Kill a run with SIGKILL at random moments, resume it, and compare with one left alone.

python tests/cli/kill_and_resume.py 20
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [
    sys.executable, "-m", "evergraph", "run", "--dataset", "generated", "--memory", "60",
    "--seeds", "2", "--json",
]  # fmt: skip
TIMINGS = ("seconds", "items_per_second", "learn_seconds", "test_seconds", "learn_cpu_seconds")


def command(folder: Path, *more: str) -> list[str]:
    return [*COMMAND, "--out", str(folder / "out"), *more]


def finish(arguments: list[str]) -> dict:
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=300)
    result = json.loads(done.stdout)
    result["runs"] = [untimed(one) for one in result["runs"]]
    return untimed(result)


def untimed(result: dict) -> dict:
    return {key: value for key, value in result.items() if key not in TIMINGS}


def kill_at(arguments: list[str], seconds: float) -> bool:
    """Start, and kill after so many seconds; False if it was done before."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


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


def main(trials: int, seed: int = 0) -> int:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        finish(command(Path(name)))  # compiles what has to be compiled
        start = time.monotonic()
        expected = finish(command(Path(name)))
        alone = time.monotonic() - start
        length = 1.5 * alone  # checkpoints take time too
        print(f"left alone: {alone:.1f} s, accuracy {expected['accuracy_mean']:.4f}")
        failures = 0
        for number in range(trials):
            folder = Path(name) / str(number)
            moment, same = trial(folder, expected, length, chance)
            saved = "with" if (folder / "checkpoint").exists() else "before"
            print(f"{number + 1}: killed at {moment:.2f} s, {saved} a checkpoint: ", end="")
            print("the same result" if same else "ANOTHER RESULT", flush=True)
            failures += not same
    print(f"{trials - failures} of {trials} resumed to the same result")
    return failures


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
