"""The configuration of a run on a graph, and the stream and learner built from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from evergraph.checks import check_device, check_one_of
from evergraph.evaluate.presets import CLOSED_FORMS, by_size, preset, schedules
from evergraph.evaluate.protocols import PROTOCOLS, Protocol
from evergraph.evaluate.run import Report, run
from evergraph.feature_graph import sgnroot
from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph
from evergraph.graph.rows import SparseRows
from evergraph.learn.gate import Outliers
from evergraph.learn.learner import Learner
from evergraph.learn.methods import METHODS
from evergraph.learn.parallel import ParallelLearner, part_of
from evergraph.learn.ranks import ALONE, Ranks
from evergraph.learn.selection import MEMORIES
from evergraph.learn.shared import SharedReservoir
from evergraph.learn.training import Training
from evergraph.nn.baselines import KINDS, baseline
from evergraph.nn.fgn import FGN
from evergraph.stream.continuum import Continuum, node_continuum
from evergraph.stream.schedule import Scenario
from evergraph.stream.source import Visibility

MODELS: dict[str, Callable[..., FGN]] = {
    "fgn": FGN,
    **{kind: partial(baseline, kind) for kind in KINDS},
}
STREAM_SETTINGS = ("hops", "cap", "root", "diffusion")
FGN_SETTINGS = (
    "normalization", "dropout", "gain", "channels", "features", "centered", "concatenate",
    "directed", "attention",
)  # fmt: skip
BASELINE_SETTINGS = ("hidden", "dropout")
TRAINING_SETTINGS = (
    "optimizer", "lr", "momentum", "weight_decay", "steps", "replay_every", "averaging",
    "average_steps", "replay_batch_size", "replay_batches",
)  # fmt: skip
METHOD_SETTINGS = (
    "strength", "relevance", "every", "decay", "solver", "blocks", "sample", "temperature",
    "max_width", "capacity", "products", "roots", "raised", "together", "reads",
    "fanout", "window", "low", "steady", "loss_share", "topology_share",
)  # fmt: skip
SETTINGS = {
    *STREAM_SETTINGS, *FGN_SETTINGS, *BASELINE_SETTINGS, *TRAINING_SETTINGS, *METHOD_SETTINGS,
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Everything that decides a run, apart from the seed.

    Attributes:
        dataset: a name that `evergraph datasets` lists, or a folder.
        scenario: `regular`, `data`, `class` or `time`.
        model: `fgn`, or one of `evergraph.nn.baselines`.
        method: how forgetting is fought, see `evergraph.learn.methods`.
        memory: capacity in items.
        memory_rule: what is kept, see `evergraph.learn.selection`.
        outliers: what is done with absurd feature values, see `evergraph.learn.gate`.
        batch_size: items that arrive together.
        visibility: `all` or `arrived`.
        classes_per_task, class_order: of class-incremental streams.
        tasks: into how many parts other streams are cut for evaluation.
        epochs: passes of the regular stream, and over each task of the `cglb` protocol.
        protocol: `paper`, or the field's: see `evergraph.evaluate.protocols`.
        settings: learning rate and the like; what is not given comes from the presets, at once or,
            if it follows from the size of the data, with `sized`.
    """

    dataset: str = "cora"
    scenario: Scenario = "class"
    model: str = "fgn"
    method: str = "replay"
    memory: int = 500
    memory_rule: str = "reservoir"
    outliers: Outliers = "clip"
    batch_size: int = 10
    visibility: Visibility = "all"
    classes_per_task: int = 1
    class_order: tuple[int, ...] | None = None
    tasks: int = 1
    epochs: int = 20
    protocol: Protocol = "paper"
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject what is unknown, and fill the settings in."""
        for name, known in (
            ("method", METHODS), ("memory_rule", MEMORIES), ("model", MODELS),
            ("protocol", PROTOCOLS), ("outliers", get_args(Outliers)),
        ):  # fmt: skip
            check_one_of(name, getattr(self, name), known)
        for name in self.settings:
            if name not in SETTINGS:
                raise ValueError(
                    f"settings must be among {', '.join(sorted(SETTINGS))}, got {name!r}"
                )
        given = preset(self.model, self.method, self.dataset, self.scenario)
        if self.visibility == "arrived":
            given["diffusion"] = False  # it walks over all of the graph
        object.__setattr__(self, "settings", {**given, **self.settings})

    def sized(self, dataset: Dataset) -> Config:
        """The same with the settings that follow from the size of a data set, if not given."""
        x, items = dataset.graph.features, len(dataset.train)
        stored = x.values if isinstance(x, SparseRows) else x
        numbers = items * stored.numel() // max(len(x), 1)
        return self._scheduled(by_size(self.model, items, numbers, isinstance(x, Tensor)))

    def any_size(self) -> list[Config]:
        """What `sized` gives for all sizes of data."""
        return [self._scheduled(found) for found in schedules(self.model)]

    def _scheduled(self, found: dict[str, Any]) -> Config:
        walks = self.settings.get("diffusion")  # they take all neighbors
        kept = {name: value for name, value in found.items() if not (walks and name == "cap")}
        return replace(self, settings={**kept, **self.settings})

    @property
    def passes(self) -> int:
        """How often every item comes: once, unless learning is regular or offline."""
        return self.epochs if self.scenario == "regular" or self.protocol == "cglb" else 1

    @property
    def model_settings(self) -> tuple[str, ...]:
        """The names of the settings of the network."""
        return FGN_SETTINGS if self.model == "fgn" else BASELINE_SETTINGS

    def plain(self) -> dict[str, Any]:
        """The configuration as JSON gives it back, with the settings that are read."""
        names: tuple[str, ...] = *STREAM_SETTINGS, *METHOD_SETTINGS
        if self.method not in CLOSED_FORMS:
            names += self.model_settings + TRAINING_SETTINGS
        out = asdict(self)
        out["class_order"] = None if self.class_order is None else list(self.class_order)
        out["settings"] = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in _pick(self.settings, names).items()
        }
        return out


def run_config(
    config: Config,
    seeds: tuple[int, ...],
    dataset: Dataset,
    report: Report = lambda number, seen, accuracy: None,
    ranks: Ranks = ALONE,
    device: str = "cpu",
    **files: Any,
) -> dict[str, Any]:
    """Run a configuration on a data set, loaded before; `files` as `run` takes them.

    On several `ranks`, all of them run it, each with its part of the items. On another `device`
    than the CPU the network computes there; numbers are the same up to rounding.
    """
    for part in ("train", "test"):
        if not len(getattr(dataset, part)):
            raise ValueError(
                f"data set {dataset.name!r} must have {part} nodes with labels, got none; see the "
                "columns `label` and `split`"
            )
    config = config.sized(dataset)
    make, balanced = partial(_build, config, _rooted(config, dataset)), config.protocol != "paper"
    more = {"balanced": balanced, "ranks": ranks, **files}
    make = partial(make, ranks=ranks, device=device)
    return run(make, seeds, config.plain(), report=report, **more)


def build(
    config: Config, dataset: Dataset, seed: int, device: str = "cpu"
) -> tuple[Continuum, Learner]:
    """The stream and the learner of one seed, whose network is on a device."""
    return _build(config.sized(dataset), _rooted(config, dataset), seed, device=device)


def _build(
    config: Config, dataset: Dataset, seed: int, ranks: Ranks = ALONE, device: str = "cpu"
) -> tuple[Continuum, Learner]:
    s = config.settings
    learner = _learner(config, dataset.graph, seed, ranks, device)
    stream = node_continuum(
        dataset,
        scenario=config.scenario,
        batch_size=config.batch_size,
        classes_per_task=config.classes_per_task,
        class_order=config.class_order,
        tasks=config.tasks,
        epochs=config.passes,
        visibility=config.visibility,
        seed=seed,
        pack=learner.intake.packing(),
        **_pick(s, ("hops", "cap", "diffusion")),
    )
    return part_of(stream, ranks), learner


def _learner(config: Config, graph: Graph, seed: int, ranks: Ranks, device: str) -> Learner:
    s = config.settings
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _model(config, graph)
    if config.method not in CLOSED_FORMS:
        model.to(check_device(device))
    method = METHODS[config.method](**_pick(s, METHOD_SETTINGS))
    names = () if config.method in CLOSED_FORMS else TRAINING_SETTINGS
    training = Training(**_pick(s, names))
    if ranks.size > 1:
        check_one_of("memory_rule on several ranks", config.memory_rule, ("reservoir",))
        check_one_of("device on several ranks", device, ("cpu",))
        shared = SharedReservoir(config.memory, seed, ranks) if method.needs_memory else None
        return ParallelLearner(
            model, method, shared, training, seed, outliers=config.outliers, ranks=ranks
        )
    memory = None
    if method.needs_memory:
        memory = MEMORIES[config.memory_rule](config.memory, seed=seed)
    return Learner(model, method, memory, training, seed, outliers=config.outliers)


def _rooted(config: Config, dataset: Dataset) -> Dataset:
    """With the setting `root`, the sgnroot of all features, so that large ones do not dominate."""
    if not config.settings.get("root"):
        return dataset
    graph, x = dataset.graph, dataset.graph.features
    fresh: Tensor | SparseRows
    fresh = replace(x, values=sgnroot(x.values)) if isinstance(x, SparseRows) else sgnroot(x)
    return replace(dataset, graph=replace(graph, features=fresh))


def _model(config: Config, graph: Graph) -> FGN:
    """The network for the features and edges of a graph."""
    s = config.settings
    settings = {"hops": s["hops"], **_pick(s, config.model_settings)}
    x, weight = graph.features, graph.weight
    settings["in_channels"] = x.shape[1] if isinstance(x, Tensor) and x.dim() == 3 else 1
    if weight is not None and weight.dim() == 2:
        settings["edge_components"] = 1 if s.get("diffusion") else weight.shape[1]
    return MODELS[config.model](graph.num_features, 0, **settings)


def _pick(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}
