"""How forgetting is fought: one file a method, all on the same learner."""

from evergraph.methods.finetune import Finetune
from evergraph.methods.replay import Replay

__all__ = ["METHODS", "Finetune", "Replay"]

METHODS = {"finetune": Finetune, "replay": Replay}
"""Every method by its name."""
