"""Feature graphs (Section 4): the equations, and exact faster forms of them."""

from evergraph.feature_graph.build import FeatureGraph, feature_graph
from evergraph.feature_graph.dense import DenseGraph
from evergraph.feature_graph.equations import (
    Normalization,
    feature_adjacency,
    normalize,
    propagate,
    sgnroot,
)
from evergraph.feature_graph.lean import LeanGraph
from evergraph.feature_graph.neighborhoods import (
    Neighborhoods,
    Packed,
    Places,
    Table,
    condense,
    neighborhood_mean,
)
from evergraph.feature_graph.rank_one import RankOneGraph
from evergraph.feature_graph.support import Support, SupportGraph

__all__ = [
    "DenseGraph", "FeatureGraph", "LeanGraph", "Neighborhoods", "Normalization", "Packed", "Places",
    "RankOneGraph", "Support", "SupportGraph", "Table", "condense", "feature_adjacency",
    "feature_graph", "neighborhood_mean", "normalize", "propagate", "sgnroot",
]  # fmt: skip
