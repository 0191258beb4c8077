"""Section 4 of the paper: feature graphs, and the exact fast forms of the same math."""

from evergraph.feature_graph.build import FeatureGraph, feature_graph
from evergraph.feature_graph.dense import DenseGraph
from evergraph.feature_graph.equations import (
    Normalization,
    feature_adjacency,
    normalize,
    propagate,
    sgnroot,
)
from evergraph.feature_graph.neighbors import Features, Neighbors, condense, neighborhood_mean
from evergraph.feature_graph.rank_one import RankOneGraph
from evergraph.feature_graph.support import Support, SupportGraph

__all__ = [
    "DenseGraph",
    "FeatureGraph",
    "Features",
    "Neighbors",
    "Normalization",
    "RankOneGraph",
    "Support",
    "SupportGraph",
    "condense",
    "feature_adjacency",
    "feature_graph",
    "neighborhood_mean",
    "normalize",
    "propagate",
    "sgnroot",
]
