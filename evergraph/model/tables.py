"""Tables of nodes and edges, read as a whole and checked, for the store of a model folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evergraph.checks import shorten
from evergraph.datasets.fields import FieldError, id_of
from evergraph.datasets.graph_tables import Edges, Nodes, read_edges, read_nodes
from evergraph.datasets.infer import evidence_of
from evergraph.datasets.report import Report
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.graph.store import Store
from evergraph.model.folder import UnknownEnds
from evergraph.model.schemas import kinds

ENDS_RULE = "both ends of an edge must be nodes that are there"
ENDS_WAY_OUT = "add the node, or let unknown ends wait or be dropped when you train"


@dataclass(frozen=True)
class Tables:
    """Nodes and edges that are free of complaints, in chunks."""

    nodes: list[Nodes]
    edges: list[Edges]

    @classmethod
    def read(
        cls, nodes: Any, edges: Any, *, id: str, report: Report | None = None, part: bool = False
    ) -> Tables:
        """Read tables as `read_nodes` and `read_edges` do.

        Args:
            nodes: a table, or None.
            edges: a table, or None.
            id: the column of ids.
            report: collects complaints; without it, all come in one error.
            part: whether these are parts of tables, which may be empty.
        """
        own = Report() if report is None else report
        found = [] if nodes is None else list(read_nodes(nodes, own, id=id, may_be_empty=part))
        linked = [] if edges is None else list(read_edges(edges, own))
        for link in linked:
            _check_weights(link, own)
        if report is None:
            own.check()
        return cls(found, linked)

    def with_known_ends(
        self,
        unknown: UnknownEnds,
        known: set[Id] | None = None,
        report: Report | None = None,
    ) -> Tables:
        """The same without edges to nodes that are not there, or an error, as the setting says.

        Args:
            unknown: the setting.
            known: the nodes that are there; without it, those of the table.
            report: collects complaints; without it, all come in one error.
        """
        if unknown == "wait":
            return self
        own = Report() if report is None else report
        known = {node for part in self.nodes for node in part.ids} if known is None else known
        edges = []
        for link in self.edges:
            pairs = list(zip(link.sources, link.targets, strict=True))
            bad = [row for row, ends in enumerate(pairs) if not known.issuperset(ends)]
            for row in bad if unknown == "error" else ():
                column = "target" if pairs[row][0] in known else "source"
                end = dict(zip(("source", "target"), pairs[row], strict=True))[column]
                link.chunk.complain(own, row, column, end, ENDS_RULE, ENDS_WAY_OUT)
            edges.append(link.without(bad) if bad else link)
        if report is None:
            own.check()
        return Tables(self.nodes, edges)

    def fit(self, schema: Schema | None) -> Schema:
        """A schema, inferred unless its kinds are given, with the statistics of these nodes."""
        report = Report()
        found = kinds(schema, evidence_of(part.features for part in self.nodes))
        for part in self.nodes:
            found.fit(part.features, report)
        report.check()
        return found

    def put(self, store: Store) -> None:
        """Write all to a store as its base; labels of other splits than train are held back."""
        for part in self.nodes:
            held = {k for k, split in enumerate(part.splits or ()) if split not in (None, "train")}
            labels = part.labels or [None] * len(part.ids)
            shown = [None if k in held else label for k, label in enumerate(labels)]
            store.put_nodes(replace(part, labels=shown).records(), base=True)
            splits = part.splits or []
            store.hold_back((part.ids[k], str(splits[k]), labels[k]) for k in sorted(held))
        for link in self.edges:
            store.put_edges(link.records(), base=True)


def _check_weights(part: Edges, report: Report) -> None:
    """Complain about weights that a mean over neighbors cannot have."""
    if part.weights is None:
        return
    if part.weights.ndim > 1:
        rule, way_out = "the weight of an edge must be one number", "choose one of the columns"
        report.add(part.chunk.file, None, "weight", part.weights.shape[1], rule, way_out)
        return
    for row in np.flatnonzero(part.weights < 0).tolist():
        rule, value = "a weight must be 0 or more", float(part.weights[row])
        part.chunk.complain(report, row, "weight", value, rule, "correct it")


def as_id(value: Any) -> Id:
    """An id as tables and events have it."""
    try:
        return id_of(plain(value))
    except FieldError as error:
        raise ValueError(f"{error.rule}, got {shorten(value)}; {error.way_out}") from None


def plain(value: Any) -> Any:
    """A value without the types of numpy."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
