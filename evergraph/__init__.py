"""Lifelong learning on graphs that never stop growing."""

from evergraph.feature_graph import Neighbors
from evergraph.graph import Graph
from evergraph.models import FGN
from evergraph.sparse import SparseRows

__version__ = "0.1.0"

__all__ = ["FGN", "Graph", "Neighbors", "SparseRows", "__version__"]
