"""Lifelong learning on graphs that never stop growing.

Names are imported when they are first used, so that `import evergraph` costs nothing.

Example:
    >>> import evergraph
    >>> int(evergraph.__version__.split(".")[0])
    0
    >>> "Learner" in evergraph.__all__
    True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergraph.cluster import Cluster as Cluster
    from evergraph.graph import Dataset as Dataset
    from evergraph.graph import Graph as Graph
    from evergraph.graph import GrowingGraph as GrowingGraph
    from evergraph.graph import Neighbors as Neighbors
    from evergraph.graph import SparseRows as SparseRows
    from evergraph.learn import AgeQuota as AgeQuota
    from evergraph.learn import ClassBalanced as ClassBalanced
    from evergraph.learn import Classification as Classification
    from evergraph.learn import Coverage as Coverage
    from evergraph.learn import Learner as Learner
    from evergraph.learn import LinkPrediction as LinkPrediction
    from evergraph.learn import MeanOfFeature as MeanOfFeature
    from evergraph.learn import Memory as Memory
    from evergraph.learn import Method as Method
    from evergraph.learn import Regression as Regression
    from evergraph.learn import Reservoir as Reservoir
    from evergraph.learn import Task as Task
    from evergraph.learn import Training as Training
    from evergraph.learn import UniformEviction as UniformEviction
    from evergraph.learn.methods import AGEM as AGEM
    from evergraph.learn.methods import DER as DER
    from evergraph.learn.methods import EWC as EWC
    from evergraph.learn.methods import GEM as GEM
    from evergraph.learn.methods import GSS as GSS
    from evergraph.learn.methods import MAS as MAS
    from evergraph.learn.methods import MIR as MIR
    from evergraph.learn.methods import SSM as SSM
    from evergraph.learn.methods import TWP as TWP
    from evergraph.learn.methods import Analytic as Analytic
    from evergraph.learn.methods import Finetune as Finetune
    from evergraph.learn.methods import Influence as Influence
    from evergraph.learn.methods import Joint as Joint
    from evergraph.learn.methods import Kernel as Kernel
    from evergraph.learn.methods import LwF as LwF
    from evergraph.learn.methods import Replay as Replay
    from evergraph.learn.methods import TaskFreeMAS as TaskFreeMAS
    from evergraph.model import GraphClassifier as GraphClassifier
    from evergraph.model import Model as Model
    from evergraph.model import Settings as Settings
    from evergraph.model import open as open
    from evergraph.nn import FGN as FGN
    from evergraph.nn import Requires as Requires
    from evergraph.nn import baseline as baseline
    from evergraph.serve.client import Client as Client
    from evergraph.stream import Batch as Batch
    from evergraph.stream import Continuum as Continuum
    from evergraph.stream import Schedule as Schedule
    from evergraph.stream import link_continuum as link_continuum
    from evergraph.stream import node_continuum as node_continuum

__version__ = "0.2.0"

_WHERE = {
    "graph": "Dataset Graph GrowingGraph Neighbors SparseRows",
    "stream": "Batch Continuum Schedule link_continuum node_continuum",
    "nn": "FGN Requires baseline",
    "learn": "AgeQuota ClassBalanced Classification Coverage Learner LinkPrediction MeanOfFeature "
    "Memory Method Regression Reservoir Task Training UniformEviction",
    "learn.methods": "AGEM DER EWC GEM GSS MAS MIR SSM TWP Analytic Finetune Influence Joint "
    "Kernel LwF Replay TaskFreeMAS",
    "model": "GraphClassifier Model Settings open",
    "serve.client": "Client",
    "cluster": "Cluster",
}
_NAMES = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = ["__version__", *sorted(_NAMES)]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _NAMES:
        raise AttributeError(f"module 'evergraph' has no attribute {name!r}")
    return getattr(import_module(f"evergraph.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return __all__
