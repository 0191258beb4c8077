"""Lifelong learning: learner, tasks, memories, methods and checkpoints (Eq. 10)."""

from evergraph.learn.checkpoint import CheckpointError, CheckpointWarning
from evergraph.learn.learner import Learner, Method
from evergraph.learn.memory import (
    AgeQuota,
    ClassBalanced,
    Memory,
    Reservoir,
    Rule,
    UniformEviction,
)
from evergraph.learn.selection import MEMORIES, Coverage, MeanOfFeature
from evergraph.learn.slots import Slots
from evergraph.learn.tasks import Classification, LinkPrediction, Regression, Task
from evergraph.learn.training import Training

__all__ = [
    "MEMORIES", "AgeQuota", "CheckpointError", "CheckpointWarning", "ClassBalanced",
    "Classification", "Coverage", "Learner", "LinkPrediction", "MeanOfFeature", "Memory", "Method",
    "Regression", "Reservoir", "Rule", "Slots", "Task", "Training", "UniformEviction",
]  # fmt: skip
