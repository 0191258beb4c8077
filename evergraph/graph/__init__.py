"""Graphs, sparse features, packed neighbors and train/test splits (Section 3)."""

from evergraph.graph.database import StoreError
from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.hops import Neighborhood
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows
from evergraph.graph.store import Store

__all__ = [
    "Dataset",
    "Features",
    "Graph",
    "GrowingGraph",
    "Neighborhood",
    "Neighbors",
    "SparseRows",
    "Store",
    "StoreError",
]
