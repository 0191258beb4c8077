"""Streams: batches of items, their sources and their order (Eq. 1)."""

from evergraph.stream.batch import Batch, concatenate
from evergraph.stream.continuum import (
    Continuum,
    OrderConfig,
    link_continuum,
    node_continuum,
    validation_split,
)
from evergraph.stream.schedule import Schedule
from evergraph.stream.source import NeighborConfig, NodeSource, PairSource, Source

__all__ = [
    "Batch", "Continuum", "NeighborConfig", "NodeSource", "OrderConfig", "PairSource", "Schedule",
    "Source", "concatenate", "link_continuum", "node_continuum", "validation_split",
]  # fmt: skip
