"""Lifelong learning on graphs that never stop growing."""

from evergraph.stream.batch import Batch
from evergraph.stream.continuum import Continuum, Settings
from evergraph.feature_graph import Neighbors
from evergraph.graph.graph import Graph
from evergraph.learn.learner import Learner
from evergraph.learn.memory import AgeQuota, ClassBalanced, Reservoir, UniformEviction
from evergraph.learn.methods import (
    AGEM,
    DER,
    EWC,
    GEM,
    MAS,
    Analytic,
    Finetune,
    Joint,
    LwF,
    Replay,
)
from evergraph.nn.fgn import FGN
from evergraph.graph.rows import SparseRows
from evergraph.learn.training import Training

__version__ = "0.1.0"

__all__ = [
    "AGEM",
    "DER",
    "EWC",
    "FGN",
    "GEM",
    "MAS",
    "AgeQuota",
    "Analytic",
    "Batch",
    "ClassBalanced",
    "Continuum",
    "Finetune",
    "Graph",
    "Joint",
    "Learner",
    "LwF",
    "Neighbors",
    "Replay",
    "Reservoir",
    "Settings",
    "SparseRows",
    "Training",
    "UniformEviction",
    "__version__",
]
