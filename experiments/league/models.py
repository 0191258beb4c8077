"""Who takes part in the league, and how one of its cells is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from evergraph.evaluate.config import Config, build
from evergraph.learn.learner import Learner
from evergraph.learn.methods.kernel import BOOKED
from evergraph.stream.continuum import node_continuum
from evergraph.stream.schedule import Scenario
from experiments.league import peers
from experiments.league.graphs import Split
from experiments.league.instead import Instead, WithInstead
from experiments.league.peers import Settings
from experiments.league.solvers import discriminant
from experiments.league.views import Array, Matrix, Seen, sparse_rows, unit

Order = Literal["random", "class", "any"]
Kind = Literal["closed form", "replay", "one pass", "regular"]
SCENARIOS: dict[str, Scenario] = {"random": "data", "class": "class"}
ORDERS = tuple(SCENARIOS)
BATCH = 10  # items that arrive together


@dataclass(frozen=True)
class Model:
    """One that takes part.

    Attributes:
        kind: `closed form` learns in one pass and any order gives the same; `replay` and
            `one pass` learn in one pass by gradients; `regular` sees all items as often as it
            likes.
        candidates: settings to choose from on validation nodes; the first is the default.
        predict: the classes of the nodes to test for each candidate, and the bytes kept.
    """

    kind: Kind
    candidates: tuple[Settings, ...]
    predict: Callable[[Seen, Order, Sequence[Settings]], tuple[list[Array], int]]

    @property
    def orders(self) -> tuple[Order, ...]:
        """In which orders it has to be run."""
        return ("random", "class") if self.kind in ("replay", "one pass") else ("any",)


def _fixed(function: Any, width: Callable[[Seen], int] | None = None, **options: Any) -> Any:
    """A model that reads no order; the sums of a closed form are `width² + classes · width`."""

    def predict(
        seen: Seen, order: Order, candidates: Sequence[Settings]
    ) -> tuple[list[Array], int]:
        size = 0 if width is None else width(seen)
        kept = 8 * size * (size + len(np.unique(seen.labels)))
        return function(seen, candidates, **options), kept

    return predict


def _features(seen: Seen) -> int:
    return int(seen.views.x.shape[1])


def _learner(
    model: str,
    method: str,
    seen: Seen,
    order: Order,
    candidates: Sequence[Settings],
    instead: Instead | None = None,
    **options: Any,
) -> tuple[list[Array], int]:
    """A learner of the package on its stream, one run for each candidate."""
    out, kept = [], 0
    how: dict[str, Any] = {"scenario": SCENARIOS.get(order, "data"), "batch_size": BATCH} | options
    for settings in candidates:
        config = Config("league", model=model, method=method, settings=settings, **how)
        stream, learner = build(config, seen.split.data, seen.split.number)
        if instead is not None:
            changed: Any = WithInstead(learner.model, instead)
            parts = changed, learner.method, learner.memory, learner.training, seen.split.number
            learner = Learner(*parts, outliers=config.outliers)
        for batch in stream:
            learner.observe(batch)
        out.append(torch.cat([learner.predict(batch) for batch in stream.test()]).numpy())
        memory = 0 if learner.memory is None else learner.memory.nbytes
        kept = max(kept, memory + learner.method.nbytes)
    return out, kept


def _kernel(without: str = "") -> Model:
    """The learner on the kernel of feature graphs, which chooses on its training items by itself.

    Candidates leave some of what it may choose from out.
    """
    less = {without: "all" if without == "reads" else False} if without else {}

    def predict(
        seen: Seen, order: Order, candidates: Sequence[Settings]
    ) -> tuple[list[Array], int]:
        found = peers.kernel(seen, candidates)
        train = seen.planes.part(slice(seen.count))
        numbers = train.x.nnz + sum(mean.nnz for mean in train.means)
        return found, 8 * numbers + BOOKED * seen.count

    return Model("closed form", _grid(less, *(one | less for one in LESS)), predict)


def _replay(name: str, candidates: tuple[Settings, ...], **options: Any) -> Model:
    return Model("replay", candidates, partial(_learner, name, "replay", **options))


def _regular(name: str) -> Model:
    """A network that sees all items as often as it likes: the bound of the replayed one."""
    options: dict[str, Any] = {"scenario": "regular", "epochs": PASSES, "batch_size": 50}
    return Model("regular", BASELINE, partial(_learner, name, "finetune", **options))


def _sgc(seen: Seen, order: Order, candidates: Sequence[Settings]) -> tuple[list[Array], int]:
    """A linear classifier on two steps of smoothing, replayed: simple graph convolution."""
    drawn, views = seen.split, seen.views
    smoothed = sparse_rows(unit(Matrix(views.smooth @ views.smoothed))).to(torch.float32)
    graph = replace(drawn.data.graph, features=smoothed)
    fresh = Seen(views, replace(drawn, data=replace(drawn.data, graph=graph)))
    return _learner("mlp", "replay", fresh, order, candidates)


def _sgd(seen: Seen, order: Order, candidates: Sequence[Settings]) -> tuple[list[Array], int]:
    data, seed = seen.split.data, seen.split.number
    stream = node_continuum(data, scenario=SCENARIOS[order], batch_size=BATCH, seed=seed)
    batches = [batch.numpy() for batch in stream.schedule.batches]
    kept = 8 * seen.beside.shape[1] * len(np.unique(seen.labels))
    return peers.one_pass_sgd(seen, candidates, batches=batches), kept


def _grid(first: Settings, *settings: Settings) -> tuple[Settings, ...]:
    """The default, then all others."""
    return (first, *(one for one in settings if one != first))


def _hops(strengths: Sequence[float], default: float) -> tuple[Settings, ...]:
    both = ({"hops": hops, "strength": strength} for hops in (1, 2, 3) for strength in strengths)
    return _grid({"hops": 1, "strength": default}, *both)


LESS: tuple[Settings, ...] = (
    {}, {"reads": "all"}, {"reads": "first"}, {"reads": "last"}, {"raised": False},
    {"roots": False}, {"products": False}, {"together": False},
)  # fmt: skip
RIDGE = _hops((0.125, 0.5, 2.0, 8.0), 2.0)
DISCRIMINANT = _hops((0.25, 1.0, 4.0, 16.0), 1.0)
LAYERS = _grid(
    {"layers": 2, "strength": 1.0},
    *({"layers": n, "strength": s} for n in (2, 3) for s in (0.25, 1.0, 4.0, 16.0)),
)
PENALTIES = (300.0, 10.0, 30.0, 100.0, 600.0, 1000.0, 2000.0, 4000.0)
RATES: tuple[Settings, ...] = (
    {}, {"learning_rate": "constant", "eta0": 3.0},
    {"learning_rate": "constant", "eta0": 3.0, "average": True},
    {"learning_rate": "constant", "eta0": 30.0, "average": True},
)  # fmt: skip
# The default, wide and fast, and a narrower and slower network.
BASELINE: tuple[Settings, ...] = ({}, {"hidden": (64, 32), "lr": 0.03})
FGN: tuple[Settings, ...] = ({}, {"gain": 0.1, "lr": 0.1})
# FGN with one thing changed, and the paper's: attention of Eq. (9) on one hop, one Â, no skip.
CHANGES: dict[str, Settings] = {
    "no concatenation": {"concatenate": False},
    "one layer": {"channels": (10,)},
    "features not rooted": {"root": False},
    "gain 1": {"gain": 1.0},
    "two steps": {"hops": 2, "diffusion": True},
    "the paper's": {
        "hops": 1, "diffusion": False, "attention": "softmax", "concatenate": False,
        "normalization": "symmetric", "gain": 1.0,
    },
}  # fmt: skip
# FGN with something else in place of Â.
INSTEAD: dict[str, Instead] = {
    "identity in place of Â": "identity",
    "mean in place of Â": "mean",
    "no sgnroot in Â": "product",
}
LINEAR: tuple[Settings, ...] = tuple(
    {"hidden": (), "root": False, "dropout": 0.0, "lr": lr} for lr in (10.0, 1.0)
)
PASSES = 30  # of regular training
NETWORKS = ("mlp", "gcn", "sage", "gat", "appnp")


def _changed(what: Settings) -> tuple[Settings, ...]:
    """FGN's candidates with the same change."""
    return tuple(one | what for one in FGN)


def _ridge(*blocks: str, candidates: tuple[Settings, ...] = RIDGE) -> Model:
    return Model("closed form", candidates, _fixed(peers.closed, _features, blocks=blocks))


MODELS: dict[str, Model] = {
    "feature-graph kernel": _kernel(),
    "kernel, no products": _kernel("products"),
    "kernel, no roots": _kernel("roots"),
    "kernel, not raised": _kernel("raised"),
    "kernel, nothing together": _kernel("together"),
    "kernel, hops alike": _kernel("reads"),
    "closed form, x + m + Âx": _ridge("x", "mean", "propagated"),
    "closed form, x + m": _ridge("x", "mean"),
    "ridge on m": _ridge("mean"),
    "ridge on x": _ridge(
        "x",
        candidates=tuple(
            {"hops": 1, "strength": s} for s in (2.0, 0.25, 0.5, 1.0, 3.0, 4.0, 6.0, 8.0)
        ),
    ),
    "SLDA on x + m": Model(
        "closed form",
        DISCRIMINANT,
        _fixed(peers.closed, _features, blocks=("x", "mean"), solver=discriminant),
    ),
    "frozen random GNN + LDA": Model(
        "closed form", LAYERS, _fixed(peers.frozen, lambda seen: 3 * 512)
    ),
    "RanPAC on x‖m": Model(
        "closed form",
        tuple({"strength": strength} for strength in PENALTIES),
        _fixed(peers.projected, lambda seen: 2048),
    ),
    "logistic regression on x‖m": Model(
        "regular",
        tuple({"C": c} for c in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)),
        _fixed(peers.logistic),
    ),
    "SGD on x‖m": Model("one pass", RATES, _sgd),
    "FGN + replay": _replay("fgn", FGN),
    **{f"FGN, {name} + replay": _replay("fgn", _changed(what)) for name, what in CHANGES.items()},
    **{
        f"FGN, {name} + replay": _replay("fgn", FGN, instead=what) for name, what in INSTEAD.items()
    },
    **{f"{name.upper()} + replay": _replay(name, BASELINE) for name in NETWORKS},
    "SGC + replay": Model("replay", LINEAR, _sgc),
    "GCN, trained regularly": _regular("gcn"),
    "SAGE, trained regularly": _regular("sage"),
}


def cell(name: str, seen: Seen, order: Order) -> dict[str, Any]:
    """What all candidates of a model reach on a split: the line that is kept of it."""
    model = MODELS[name]
    start, cpu = time.perf_counter(), time.process_time()
    found, kept = model.predict(seen, order, model.candidates)
    trials = [
        {"settings": settings, **judged(seen.split, classes)}
        for settings, classes in zip(model.candidates, found, strict=True)
    ]
    return {
        "model": name,
        "order": order,
        "split": seen.split.number,
        "trials": trials,
        "seconds": round(time.perf_counter() - start, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "bytes": kept,
    }


def judged(split: Split, classes: Array) -> dict[str, float]:
    """Accuracy on validation and test nodes, and the mean over classes of the latter."""
    truth, tested = split.labels[split.data.test].numpy(), len(split.test)
    right = truth == classes
    mine = truth[:tested]
    by_class = [right[:tested][mine == label].mean() for label in np.unique(mine)]
    return {
        "validation": float(right[tested:].mean()),
        "test": float(right[:tested].mean()),
        "balanced": float(np.mean(by_class)),
    }
