"""Continual learning methods, one class each, for the same learner."""

from collections.abc import Callable

from evergraph.learn.learner import Method
from evergraph.learn.methods.analytic import Analytic
from evergraph.learn.methods.consolidation import EWC, MAS
from evergraph.learn.methods.distillation import DER, LwF
from evergraph.learn.methods.gem import AGEM, GEM
from evergraph.learn.methods.kernel import Kernel
from evergraph.learn.methods.replay import Finetune, Joint, Replay

__all__ = [
    "AGEM", "DER", "EWC", "GEM", "MAS", "METHODS", "Analytic", "Finetune", "Joint", "Kernel", "LwF",
    "Replay",
]  # fmt: skip

METHODS: dict[str, Callable[..., Method]] = {
    "finetune": Finetune,
    "replay": Replay,
    "ewc": EWC,
    "mas": MAS,
    "lwf": LwF,
    "gem": GEM,
    "agem": AGEM,
    "der": DER,
    "joint": Joint,
    "analytic": Analytic,
    "kernel": Kernel,
}
"""Every method by its name."""
