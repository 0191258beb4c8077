"""What decides a run: its configuration, and the stream and learner made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evergraph.evaluate.presets import preset
from evergraph.evaluate.protocols import PROTOCOLS, Protocol
from evergraph.nn.baselines import KINDS, Baseline
from evergraph.stream.continuum import Continuum, Scenario, Settings, Visibility
from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph
from evergraph.learn.learner import Learner, Model
from evergraph.learn.memory import MEMORIES
from evergraph.learn.methods import METHODS
from evergraph.nn.fgn import FGN
from evergraph.learn.training import Training


@dataclass(frozen=True)
class Config:
    """Everything that decides a run, apart from the seed.

    Attributes:
        dataset: a name that `evergraph datasets` lists, or a folder.
        scenario: `regular`, `data`, `class` or `time`.
        model: `fgn`, or one of `evergraph.nn.baselines`.
        method: how forgetting is fought, see `evergraph.learn.methods`.
        memory: capacity in items.
        memory_rule: what is kept, see `evergraph.learn.memory`.
        batch_size: items that arrive together.
        visibility: `all` or `arrived`.
        classes_per_task, class_order: of class-incremental streams.
        tasks: into how many parts other streams are cut for evaluation.
        epochs: passes of the regular stream, and over each task of the `cglb` protocol.
        protocol: `paper`, or the field's: see `evergraph.evaluate.protocols`.
        settings: learning rate and the like; what is not given comes from the presets.
    """

    dataset: str = "cora"
    scenario: Scenario = "class"
    model: str = "fgn"
    method: str = "replay"
    memory: int = 500
    memory_rule: str = "reservoir"
    batch_size: int = 10
    visibility: Visibility = "all"
    classes_per_task: int = 1
    class_order: tuple[int, ...] | None = None
    tasks: int = 1
    epochs: int = 20
    protocol: Protocol = "paper"
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject what nobody knows, and fill the settings in."""
        for name, known in (("method", METHODS), ("memory_rule", MEMORIES), ("model", MODELS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if self.protocol not in PROTOCOLS:
            raise ValueError(
                f"protocol must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}"
            )
        given = preset(self.model, self.method, self.dataset, self.scenario)
        if self.visibility == "arrived":
            given["diffusion"] = False  # it walks over all of the graph
        if self.settings.get("diffusion", given.get("diffusion")):
            given.pop("cap", None)  # a walk takes all neighbors
        object.__setattr__(self, "settings", {**given, **self.settings})

    @property
    def passes(self) -> int:
        """How often every item comes: once, unless learning is regular or offline."""
        return self.epochs if self.scenario == "regular" or self.protocol == "cglb" else 1


MODELS: dict[str, Callable[..., Model]] = {
    "fgn": FGN,
    **{kind: partial(Baseline, kind) for kind in KINDS},
}
STREAM_SETTINGS = ("hops", "cap", "root", "diffusion")
FGN_SETTINGS = (
    "normalization", "dropout", "gain", "channels", "features", "centered", "concatenate",
    "directed",
)  # fmt: skip
BASELINE_SETTINGS = ("hidden", "dropout", "condensed")
TRAINING_SETTINGS = (
    "optimizer", "lr", "momentum", "weight_decay", "steps", "replay_every", "averaging",
)  # fmt: skip
REPLAY_SETTINGS = ("replay_batch_size", "replay_batches")
METHOD_SETTINGS = ("strength", "relevance", "every", "solver", "blocks", "sample")


def build(config: Config, dataset: Dataset, seed: int) -> tuple[Continuum, Learner]:
    """The stream and the learner of one seed."""
    s = config.settings
    stream = Continuum(
        dataset,
        Settings(
            scenario=config.scenario,
            batch_size=config.batch_size,
            classes_per_task=config.classes_per_task,
            class_order=config.class_order,
            tasks=config.tasks,
            epochs=config.passes,
            hops=s["hops"],
            cap=s.get("cap"),
            root=s.get("root", False),
            diffusion=s.get("diffusion", False),
            visibility=config.visibility,
            seed=seed,
        ),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = _model(config, dataset.graph)
    method = METHODS[config.method](**_pick(s, METHOD_SETTINGS))
    needs = config.method in ("replay", "gem", "agem", "der")
    memory = MEMORIES[config.memory_rule](config.memory, seed=seed) if needs else None
    training = Training(
        replay_batch_size=s.get("replay_batch_size", config.batch_size),
        replay_batches=s.get("replay_batches"),
        **_pick(s, TRAINING_SETTINGS),
    )
    return stream, Learner(model, method, memory, training, seed)


def _model(config: Config, graph: Graph) -> Model:
    """The network for the features and edges of a graph."""
    s = config.settings
    settings = {"hops": s["hops"], **_pick(s, _model_settings(config))}
    x, weight = graph.features, graph.weight
    channels = x.shape[1] if isinstance(x, Tensor) and x.dim() == 3 else 1
    if config.model != "fgn":
        return MODELS[config.model](channels * graph.num_features, 0, **settings)
    if weight is not None and weight.dim() == 2 and not s.get("diffusion"):
        settings["edge_components"] = weight.shape[1]
    return FGN(graph.num_features, 0, in_channels=channels, **settings)


def _model_settings(config: Config) -> tuple[str, ...]:
    return FGN_SETTINGS if config.model == "fgn" else BASELINE_SETTINGS


def read_settings(config: Config) -> tuple[str, ...]:
    """The settings that decide a run: others may be there, and nobody reads them."""
    names = *STREAM_SETTINGS, *METHOD_SETTINGS
    if config.method == "analytic":  # nothing is learned by gradients
        return names
    return *names, *_model_settings(config), *TRAINING_SETTINGS, *REPLAY_SETTINGS


def _pick(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def plain(config: Config) -> dict[str, Any]:
    """The configuration as JSON gives it back, with the settings that are read."""
    out = asdict(config)
    out["class_order"] = None if config.class_order is None else list(config.class_order)
    out["settings"] = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in _pick(config.settings, read_settings(config)).items()
    }
    return out
