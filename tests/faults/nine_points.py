"""What the tests of the nine points share. To see them fail on version 7247736, in folder OLD:

copy `*nine_points*.py` to an empty folder NEW, then
PYTHONPATH=OLD python -m pytest -c /dev/null --rootdir OLD NEW
"""

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

import evergraph
from evergraph import FGN, Batch, Learner, Neighbors, Replay, Reservoir, SparseRows, Training

ROOT = Path(evergraph.__file__).parents[1]
FEATURES = 8


def module(*names):
    """The first of these modules that the version under test has."""
    there = (name for name in names if (ROOT / f"{name.replace('.', '/')}.py").exists())
    return importlib.import_module(next(there))


checkpoint = module("evergraph.learn.checkpoint", "evergraph.checkpoint")


def batch(seed=0, classes=2, size=40):
    """Items within ±1, negative if their class is odd; each has one neighbor."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(size) % classes
    sign = (1 - 2 * (target % 2))[:, None, None]
    x, y = sign * torch.rand(2, size, 1, FEATURES, generator=generator)
    none = torch.full((size,), -1)
    return Batch(x, Neighbors(y, torch.arange(size)), target, none, none)


def sparse(items):
    """The same items as sparse rows."""
    around = items.neighbors
    x, y = (SparseRows.from_dense(t.squeeze(1)) for t in (items.x, around.features))
    return replace(items, x=x, neighbors=Neighbors(y, around.owner))


def learner(method=None, lessons=(0, 1, 2), prepare=lambda items: items):
    """A learner that has learned a few batches, the same one every time."""
    torch.manual_seed(0)
    training = Training("adam", 0.01, steps=2, replay_batch_size=10)
    made = Learner(FGN(FEATURES, 0, dropout=0.5), method or Replay(), Reservoir(60), training)
    for lesson in lessons:
        made.observe(prepare(batch(lesson)))
    return made


def state(made, path):
    """All that a learner saves, to be compared."""
    made.save(path)
    tensors, values = checkpoint.read_checkpoint(path)
    numbers = {name: (t.dtype, t.shape, t.numpy().tobytes()) for name, t in tensors.items()}
    return numbers, json.dumps(values, sort_keys=True)


def recording(path, activity, number, spike=0.0):
    """Twenty seconds of two sensors that swing within ±1, three times as fast per activity."""
    time = np.arange(500) / 25
    rng = np.random.default_rng(number)
    swing = np.sin(time[:, None] * 3.0**number + rng.uniform(0, 6, 4)) * 0.9
    swing += rng.normal(0, 0.03, swing.shape)
    swing[250, 1] += spike
    lines = ["time,arm.x,arm.y,leg.x,leg.y,activity"]
    rows = zip(time, swing.tolist(), strict=True)
    lines += [",".join([f"{t:.2f}", *map("{:.4f}".format, row), activity]) for t, row in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def recognizer(folder):
    """A model folder of two activities, and the folder of their recordings."""
    recording(folder / "old" / "a.csv", "sit", 0)
    recording(folder / "old" / "b.csv", "walk", 1)
    made = invoke(
        "action", "train", folder / "old", "--out", folder / "model", "--split", "none",
        "--model", "mlp", "--length", 20, "--stride", 5, "--epochs", 10, "--memory", 400,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    return folder / "model", folder / "old"


def invoke(*arguments):
    """Run the command line in this process."""
    from evergraph.cli import app

    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def child(function, *arguments):
    """Call a function of a test file in a process of its own, with the package under test."""
    return subprocess.Popen(
        [sys.executable, function.__code__.co_filename, function.__name__, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def output(function, *arguments):
    """What such a function prints."""
    with child(function, *arguments) as process:
        printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(printed)


def call():
    """In such a process: call the function."""
    torch.set_num_threads(1)
    vars(sys.modules["__main__"])[sys.argv[1]](*sys.argv[2:])
