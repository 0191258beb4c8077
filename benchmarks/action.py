"""What a window costs: every network on the same windows, in turns, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from evergraph.apps.action.networks import network
from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import as_batch
from benchmarks.measure import milliseconds
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Finetune
from evergraph.learn.training import Training

MODELS = ("fgn", "gat", "gcn", "appnp", "gat-plain", "gcn-plain", "mlp", "cnn")
SENSORS, CHANNELS, FEATURES, CLASSES = 5, 9, 25, 19
BATCH = 100


def cost(rounds: int = 9, models: tuple[str, ...] = MODELS) -> list[dict[str, Any]]:
    """Milliseconds per window to predict and to learn, for windows as DSADS has them.

    All networks see the same random windows, 100 at a time, and take turns, so that all meet the
    same machine; medians are taken, of the time on the wall and of processor time, which does
    not depend on what else the machine does.
    """
    layout = Layout(
        tuple(f"s{i}" for i in range(SENSORS)), tuple(f"c{i}" for i in range(CHANNELS)), 25.0
    )
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, 2 * SENSORS, CHANNELS, FEATURES, generator=draw)
    batch = as_batch(x, torch.arange(BATCH) % CLASSES)
    predict: dict[str, Callable[[], object]] = {}
    learn: dict[str, Callable[[], object]] = {}
    parameters = {}
    for name in models:
        model: Any = network(name, layout, FEATURES)
        model.scaling.update(x)
        learner = Learner(model, Finetune(), training=Training(optimizer="adam", lr=1e-3, steps=1))
        learner.observe(batch)
        parameters[name] = sum(p.numel() for p in model.parameters())
        predict[name] = _step(learner.predict, batch)
        learn[name] = _step(learner.observe, batch)
    repeats = dict.fromkeys(models, rounds)
    rows: list[dict[str, Any]] = [{"model": n, "parameters": parameters[n]} for n in models]
    for clock, end in ((time.perf_counter, ""), (time.process_time, "_processor")):
        for act, steps in (("predict", predict), ("learn", learn)):
            found = milliseconds(steps, repeats, clock)
            for row in rows:
                row[f"{act}_ms_per_window{end}"] = found[row["model"]] / BATCH
                row[f"{act}_ratio_to_gat{end}"] = found[row["model"]] / found["gat"]
    return rows


def _step(function: Callable[[Any], object], batch: Any) -> Callable[[], object]:
    return lambda: function(batch)
