"""Graphs, sparse features, packed neighbors and train/test splits (Section 3)."""

from evergraph.graph.dataset import Dataset
from evergraph.graph.graph import Graph
from evergraph.graph.hops import Neighborhood
from evergraph.graph.neighbors import Features, Neighbors
from evergraph.graph.rows import SparseRows

__all__ = ["Dataset", "Features", "Graph", "Neighborhood", "Neighbors", "SparseRows"]
