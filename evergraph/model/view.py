"""What answers questions about a graph: the classifier of a moment, and all that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Embedding, Floats, Ints
from evergraph.graph.growing import GrowingGraph
from evergraph.learn.exact import rows_of
from evergraph.learn.network import NetworkLearner, average
from evergraph.learn.solution import Solution


@dataclass(frozen=True)
class View:
    """A classifier that does not change, on a graph that may.

    Attributes:
        solution: the closed form.
        embedding: makes its rows.
        graph: whose nodes are asked for.
        schema: encodes new nodes.
        network: that is mixed with the closed form, or answers alone.
        alone: whether the network answers alone, once it has learned something.
    """

    solution: Solution
    embedding: Embedding
    graph: GrowingGraph
    schema: Schema
    network: NetworkLearner | None = None
    alone: bool = False

    def probabilities(self, slots: Ints, graph: GrowingGraph) -> tuple[Floats, Floats, Floats]:
        """Rows of nodes of a graph, the probabilities of the closed form, and those told.

        The closed form answers alone as long as the network has learned nothing.
        """
        rows = rows_of(self.embedding, graph, slots)
        exact = self.solution.probabilities(rows)
        if self.network is None:
            return rows, exact, exact
        found, known = self.network.probabilities(graph, slots, self.solution.classes)
        told = found if self.alone and known.any() else average(exact, found, known)
        return rows, exact, told
