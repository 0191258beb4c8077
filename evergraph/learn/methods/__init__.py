"""Continual learning methods, one class each, for the same learner."""

from collections.abc import Callable

from evergraph.learn.learner import Method
from evergraph.learn.methods.analytic import Analytic
from evergraph.learn.methods.consolidation import EWC, MAS
from evergraph.learn.methods.distillation import DER, LwF
from evergraph.learn.methods.gem import AGEM, GEM
from evergraph.learn.methods.gradient_selection import GSS, Influence
from evergraph.learn.methods.kernel import Kernel
from evergraph.learn.methods.replay import Finetune, Joint, Replay
from evergraph.learn.methods.retrieval import MIR
from evergraph.learn.methods.sparsified import SSM
from evergraph.learn.methods.task_free import TaskFreeMAS
from evergraph.learn.methods.topology import TWP

__all__ = [
    "AGEM", "DER", "EWC", "GEM", "GSS", "MAS", "METHODS", "MIR", "SSM", "TWP", "Analytic",
    "Finetune", "Influence", "Joint", "Kernel", "LwF", "Replay", "TaskFreeMAS",
]  # fmt: skip

METHODS: dict[str, Callable[..., Method]] = {
    "finetune": Finetune,
    "replay": Replay,
    "ewc": EWC,
    "mas": MAS,
    "mas-task-free": TaskFreeMAS,
    "twp": TWP,
    "lwf": LwF,
    "gem": GEM,
    "agem": AGEM,
    "der": DER,
    "influence": Influence,
    "gss": GSS,
    "mir": MIR,
    "ssm": SSM,
    "joint": Joint,
    "analytic": Analytic,
    "kernel": Kernel,
}
"""Every method by its name."""
