"""What learns: learner, tasks, memories, methods and checkpoints (Eq. 10)."""

from evergraph.learn.checkpoint import CheckpointError
from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import MEMORIES, AgeQuota, ClassBalanced, Reservoir, UniformEviction
from evergraph.learn.tasks import Classification, LinkPrediction, Regression, Task
from evergraph.learn.training import Training

__all__ = [
    "MEMORIES",
    "AgeQuota",
    "CheckpointError",
    "ClassBalanced",
    "Classification",
    "Learner",
    "LinkPrediction",
    "Method",
    "Regression",
    "Reservoir",
    "Task",
    "Training",
    "UniformEviction",
]
