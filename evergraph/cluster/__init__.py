"""The same learner on many machines: shards that are joined exactly."""

from evergraph.cluster.cluster import Cluster

__all__ = ["Cluster"]
