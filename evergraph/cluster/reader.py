"""Tables that all shards read together: each part by one of them, each row to who owns it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evergraph.cluster.partition import (
    Keys,
    Order,
    Parcel,
    Rows,
    homes,
    keys_of,
    take_edges,
    take_nodes,
)
from evergraph.datasets.graph_tables import REPEATED, Edges, Nodes
from evergraph.datasets.infer import Evidence, evidence_of
from evergraph.datasets.report import Problem, Report
from evergraph.datasets.schema import Schema
from evergraph.graph.ids import Id
from evergraph.model.folder import UnknownEnds
from evergraph.model.tables import Tables


@dataclass(frozen=True)
class Piece:
    """What one shard reads: a file, or some rows of a table.

    Attributes:
        number: its place in the order of one machine.
        nodes: a table, or None.
        edges: a table, or None.
        id: the column of ids.
    """

    number: int
    nodes: Any = None
    edges: Any = None
    id: str = "id"


@dataclass(frozen=True)
class Survey:
    """What was found in the pieces of a shard.

    Attributes:
        complaints: by the number of the piece.
        evidence: of the columns of nodes.
        rows: of nodes.
    """

    complaints: dict[int, Report]
    evidence: dict[str, Evidence]
    rows: int


class Reader:
    """Reads pieces of tables and deals their rows to the shards that own them.

    Args:
        place: the number of this shard.
        shards: how many there are.

    Attributes:
        nodes: that this shard owns.
        edges: of which it owns an end.
        ghosts: nodes of others that have edges to own ones.
        share: the schema with the statistics of own nodes.
        received: rows and bytes from other shards, by kind.
    """

    def __init__(self, place: int, shards: int) -> None:
        self.place, self.shards = place, shards
        self.received: Counter[str] = Counter()
        self.begin()

    def begin(self) -> None:
        """Know nothing of what was read before."""
        self.nodes: list[Parcel[Nodes]] = []
        self.edges: list[Parcel[Edges]] = []
        self.ghosts: list[Parcel[Nodes]] = []
        self.share = Schema(())
        self._nodes: list[tuple[Order, Nodes]] = []  # as they were read
        self._edges: list[tuple[Order, Edges]] = []
        self._complaints: dict[int, Report] = {}
        self._asked: list[list[Id]] = []
        self._answers: list[list[bool]] = []
        self._known: set[Id] = set()
        self._wanted: list[Keys] | None = None

    # -- reading --------------------------------------------------------------------------------

    def read(self, *pieces: Piece) -> None:
        """Read pieces and keep them."""
        for piece in pieces:
            report = self._complaints[piece.number] = Report()
            found = Tables.read(piece.nodes, piece.edges, id=piece.id, report=report, part=True)
            self._nodes += [((piece.number, at), part) for at, part in enumerate(found.nodes)]
            self._edges += [((piece.number, at), part) for at, part in enumerate(found.edges)]

    def survey(self) -> Survey:
        """What was found in all pieces."""
        rows = sum(len(part.ids) for _, part in self._nodes)
        evidence = evidence_of(part.features for _, part in self._nodes)
        return Survey(self._complaints, evidence, rows)

    def misfits(self, columns: Schema) -> dict[int, Report]:
        """Complaints about cells that are not what their columns must hold."""
        found: dict[int, Report] = {}
        for (number, _), part in self._nodes:
            Schema(columns.columns).fit(part.features, found.setdefault(number, Report()))
        return found

    def repeats(self, ids: Sequence[Id], column: str) -> list[tuple[Order, int, Id, Problem]]:
        """Where some ids stand, and what to say if it is not the first place."""
        wanted, found = set(ids), []
        for order, part in self._nodes:
            for row, node in enumerate(part.ids):
                if node in wanted:
                    report = Report()
                    part.features.complain(report, row, column, node, *REPEATED)
                    found.append((order, row, node, report.problems[0]))
        return found

    # -- dealing --------------------------------------------------------------------------------

    def waves(self, what: str) -> int:
        """In how many steps `nodes`, `edges` or `ghosts` are dealt."""
        parts: dict[str, Sequence[Any]] = {
            "nodes": self._nodes, "edges": self._edges, "ghosts": self.nodes
        }  # fmt: skip
        return len(parts[what])

    def give_nodes(self, wave: int) -> list[Parcel[Nodes] | None]:
        """Some of the nodes that were read, for each shard."""
        if wave >= len(self._nodes):
            return [None] * self.shards
        order, part = self._nodes[wave]
        keys = keys_of(part.ids)
        owner = homes(keys, self.shards)
        masks = [owner == shard for shard in range(self.shards)]
        return self._dealt(order, part, (keys,), masks, take_nodes, self.nodes)

    def give_edges(self, wave: int) -> list[Parcel[Edges] | None]:
        """Some of the edges that were read, for each shard that owns an end.

        They are not kept, nor are the nodes, which were dealt before.
        """
        self._nodes = []
        if wave >= len(self._edges):
            return [None] * self.shards
        order, part = self._edges[wave]
        self._edges[wave] = order, take_edges(part, np.zeros(0, dtype=np.int64))
        ends = keys_of(part.sources), keys_of(part.targets)
        one, other = (homes(keys, self.shards) for keys in ends)
        masks = [(one == shard) | (other == shard) for shard in range(self.shards)]
        return self._dealt(order, part, ends, masks, take_edges, self.edges)

    def _dealt(
        self,
        order: Order,
        part: Rows,
        keys: tuple[Keys, ...],
        masks: Sequence[Any],
        take: Callable[[Rows, Any], Rows],
        own: list[Parcel[Rows]],
    ) -> list[Parcel[Rows] | None]:
        """Rows for each shard; the own ones stay here."""
        found: list[Parcel[Rows] | None] = []
        for mask in masks:
            rows = np.flatnonzero(mask)
            kept = part if len(rows) == len(mask) else take(part, rows)
            chosen = tuple(one[rows] for one in keys)
            found.append(Parcel(order, kept, chosen) if len(rows) else None)
        if (mine := found[self.place]) is not None:
            own.append(mine)
            found[self.place] = None
        return found

    def take_nodes(self, *parcels: Parcel[Nodes] | None) -> None:
        """Take own nodes that others have read."""
        self._take("rows", self.nodes, parcels)

    def take_edges(self, *parcels: Parcel[Edges] | None) -> None:
        """Take edges of own nodes that others have read."""
        self._take("rows", self.edges, parcels)

    def _take(
        self, what: str, own: list[Parcel[Rows]], parcels: Sequence[Parcel[Rows] | None]
    ) -> None:
        for parcel in parcels:
            if parcel is not None:
                own.append(parcel)
                self.received[what] += len(parcel.keys[0])
                self.received[f"{what}_bytes"] += parcel.nbytes

    def give_ghosts(self, wave: int) -> list[Parcel[Nodes] | None]:
        """Some of the own nodes, for the shards that own their neighbors."""
        if self._wanted is None:
            self._wanted = [self._neighbors_of(shard) for shard in range(self.shards)]
        if wave >= len(self.nodes):
            return [None] * self.shards
        parcel = self.nodes[wave]
        part = replace(parcel.rows, labels=None, splits=None)
        masks = [_among(parcel.keys[0], wanted) for wanted in self._wanted]
        return self._dealt(parcel.order, part, parcel.keys, masks, take_nodes, [])

    def _neighbors_of(self, shard: int) -> Keys:
        """The keys of own nodes that have edges to those of another shard."""
        found: list[Keys] = [np.zeros(0, dtype=np.uint64)]
        for parcel in self.edges if shard != self.place else ():
            owner = [homes(keys, self.shards) for keys in parcel.keys]
            for mine, theirs in ((0, 1), (1, 0)):
                cut = (owner[mine] == self.place) & (owner[theirs] == shard)
                found.append(parcel.keys[mine][cut])
        wanted: Keys = np.unique(np.concatenate(found))
        return wanted

    def take_ghosts(self, *parcels: Parcel[Nodes] | None) -> None:
        """Take ghosts."""
        self._take("ghosts", self.ghosts, parcels)

    # -- checking what came ---------------------------------------------------------------------

    def repeated(self) -> list[Id]:
        """The ids of own nodes that came more than once."""
        keys = [parcel.keys[0] for parcel in self.nodes]
        if not keys:
            return []
        values, counts = np.unique(np.concatenate(keys), return_counts=True)
        twice = values[counts > 1]
        names = Counter(
            parcel.rows.ids[row]
            for parcel in self.nodes
            for row in np.flatnonzero(np.isin(parcel.keys[0], twice)).tolist()
        )
        return [node for node, count in names.items() if count > 1]

    def give_ends(self) -> list[list[Id]]:
        """For each shard the ends of edges that it would own."""
        ends = sorted({n for _, e in self._edges for n in (*e.sources, *e.targets)}, key=repr)
        owner = homes(keys_of(ends), self.shards)
        self._asked = [
            [ends[at] for at in np.flatnonzero(owner == shard).tolist()]
            for shard in range(self.shards)
        ]
        return self._asked

    def take_ends(self, *asked: list[Id]) -> None:
        """Look which of these nodes are there."""
        known = {node for parcel in self.nodes for node in parcel.rows.ids}
        self._answers = [[node in known for node in nodes] for nodes in asked]

    def give_answers(self) -> list[list[bool]]:
        """For each shard which of its ends are there."""
        return self._answers

    def take_answers(self, *answers: list[bool]) -> None:
        """Note which ends of own edges are there."""
        pairs = zip(self._asked, answers, strict=True)
        self._known = {
            node
            for nodes, there in pairs
            for node, is_there in zip(nodes, there, strict=True)
            if is_there
        }

    def keep_known(self, unknown: UnknownEnds) -> dict[int, Report]:
        """Leave out edges to nodes that are not there, or complain about them."""
        found: dict[int, Report] = {}
        for at, (order, part) in enumerate(self._edges):
            report = found.setdefault(order[0], Report())
            (kept,) = Tables([], [part]).with_known_ends(unknown, self._known, report).edges
            self._edges[at] = order, kept
        return found

    def fit(self, columns: Schema) -> int:
        """Take statistics of own nodes; how many complaints there are."""
        self.share, report = Schema(columns.columns), Report()
        for parcel in self.nodes:
            self.share.fit(parcel.rows.features, report)
        return report.count

    def tables(self) -> Iterator[tuple[Tables, bool, bytes]]:
        """What this shard has to store, in order; whether these are ghosts; what tells it apart.

        It is not kept any longer.
        """
        for parcel in _leaving(self.nodes):
            labels = repr(parcel.rows.labels).encode()
            yield Tables([parcel.rows], []), False, parcel.keys[0].tobytes() + labels
        for parcel in _leaving(self.ghosts):
            yield Tables([parcel.rows], []), True, parcel.keys[0].tobytes()
        for link in _leaving(self.edges):
            yield Tables([], [link.rows]), False, b"".join(keys.tobytes() for keys in link.keys)


def _leaving(parcels: list[Parcel[Rows]]) -> Iterator[Parcel[Rows]]:
    """Parcels in order; each is forgotten, so that memory is free when it is stored."""
    parcels.sort(key=_order, reverse=True)
    while parcels:
        yield parcels.pop()


def _among(keys: Keys, wanted: Keys) -> NDArray[np.bool_]:
    """Which keys are among ascending ones."""
    found: NDArray[np.bool_] = np.searchsorted(wanted, keys, "right") > np.searchsorted(
        wanted, keys
    )
    return found


def _order(parcel: Parcel[Any]) -> Order:
    return parcel.order
