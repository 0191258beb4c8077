"""How forgetting is fought: one file a method, all on the same learner."""

from collections.abc import Callable

from evergraph.learn.learner import Method
from evergraph.learn.methods.agem import AGEM
from evergraph.learn.methods.analytic import Analytic
from evergraph.learn.methods.consolidation import EWC, MAS
from evergraph.learn.methods.der import DER
from evergraph.learn.methods.finetune import Finetune
from evergraph.learn.methods.gem import GEM
from evergraph.learn.methods.joint import Joint
from evergraph.learn.methods.lwf import LwF
from evergraph.learn.methods.replay import Replay

__all__ = [
    "AGEM",
    "DER",
    "EWC",
    "GEM",
    "MAS",
    "METHODS",
    "Analytic",
    "Finetune",
    "Joint",
    "LwF",
    "Replay",
]

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
}
"""Every method by its name."""
