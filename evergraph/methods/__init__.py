"""How forgetting is fought: one file a method, all on the same learner."""

from collections.abc import Callable

from evergraph.learner import Method
from evergraph.methods.agem import AGEM
from evergraph.methods.analytic import Analytic
from evergraph.methods.der import DER
from evergraph.methods.ewc import EWC
from evergraph.methods.finetune import Finetune
from evergraph.methods.gem import GEM
from evergraph.methods.joint import Joint
from evergraph.methods.lwf import LwF
from evergraph.methods.mas import MAS
from evergraph.methods.replay import Replay

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
