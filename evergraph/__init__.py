"""Lifelong learning on graphs that never stop growing."""

from evergraph.batch import Batch
from evergraph.continuum import Continuum, Settings
from evergraph.feature_graph import Neighbors
from evergraph.graph import Graph
from evergraph.learner import Learner
from evergraph.memory import AgeQuota, ClassBalanced, Reservoir, UniformEviction
from evergraph.methods import (
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
from evergraph.models import FGN
from evergraph.sparse import SparseRows
from evergraph.training import Training

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
