"""A feature graph network with replay on a growing graph: every label is learned once.

Items are nodes with the means of their hops, as the closed form has them, at the moment at which
they are learned. What the network has still to do is kept beside the graph (`Todo`), so that one
that was stopped at any moment does it later, to the same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evergraph.feature_graph.fixed_point import Rows
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.graph.neighbors import Neighbors
from evergraph.graph.nodes import FRACTION
from evergraph.graph.rows import SparseRows
from evergraph.learn.checkpoint import CheckpointError
from evergraph.learn.exact import hop_means
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods.replay import Replay
from evergraph.learn.training import Training
from evergraph.nn.fgn import FGN
from evergraph.noise import draw_from
from evergraph.stream.batch import Batch

BATCH = 10  # labels that are learned together
ROWS = 1024  # nodes that are predicted at a time
TRAINING = Training(
    optimizer="adam", lr=0.003, steps=1, averaging=0.9, replay_batch_size=50, replay_batches=4
)
LAYERS: dict[str, Any] = {"normalization": "column", "concatenate": True, "dropout": 0.3}

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Todo:
    """What a network has still to do; stored with the events that it follows from.

    Attributes:
        of: the digest of the network that has to do it.
        waiting: nodes whose label is not learned yet, in the order in which labels came. Every
            `BATCH` of them are learned together.
        renew: whether remembered items have to be made anew, because something was taken out of
            the graph.
    """

    of: str
    waiting: tuple[Id, ...] = ()
    renew: bool = False

    @property
    def due(self) -> bool:
        """Whether there is something to do now."""
        return self.renew or len(self.waiting) >= BATCH

    def after(self, graph: GrowingGraph, labels: Mapping[Id, str | None], removed: bool) -> Todo:
        """The same with what events bring.

        Args:
            graph: as it is before them.
            labels: of the nodes whose label they set, in their order; None takes it away.
            removed: whether they delete a node or an edge.
        """
        waiting = dict.fromkeys(self.waiting)
        for node, label in labels.items():
            (old,) = graph.labels(graph.slots([node])) if node in graph else (None,)
            removed |= old not in (None, label)
            if label is None:
                waiting.pop(node, None)
            elif label != old:
                waiting.setdefault(node)
        return replace(self, waiting=tuple(waiting), renew=self.renew or removed)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Todo:
        """The opposite of `to_json`."""
        values = json.loads(text)
        return cls(values["of"], tuple(values["waiting"]), values["renew"])


class NetworkLearner:
    """FGN with replay, beside a growing graph.

    Args:
        num_features: F of the graph.
        hops: K.
        capacity: items that are remembered at the most.
        seed: of everything that is drawn.
        training: how gradients are used.
        layers: settings of `FGN`.

    Attributes:
        todo: what is still to do; see `follow`.
        names: of the classes, by their number; None where no node of a class was left.
        seen: how many labels had their turn.
        skipped: how many of them made training diverge, and changed nothing.

    Example:
        >>> graph = GrowingGraph(num_features=2)
        >>> for node in range(40):
        ...     graph.put_node(node, [node % 2], [2**16], label=["even", "odd"][node % 2])
        >>> network = NetworkLearner(num_features=2, hops=1)
        >>> network.begin(graph)
        >>> network.follow(graph)
        True
        >>> likely, known = network.probabilities(graph, graph.slots([8]), ["even", "odd"])
        >>> likely.argmax(1).tolist(), known.tolist()
        ([0], [True, True])
    """

    def __init__(
        self,
        num_features: int,
        hops: int,
        capacity: int = 500,
        seed: int = 0,
        *,
        training: Training = TRAINING,
        layers: Mapping[str, Any] = LAYERS,
    ) -> None:
        with draw_from(torch.Generator().manual_seed(seed)):
            model = FGN(num_features, hops=hops, **layers)
        memory = Reservoir(capacity, seed=seed)
        self.memory = memory
        self.learner = Learner(model, Replay(), memory, training, seed, outliers="pass")
        self.names: list[str | None] = []
        self.seen = self.skipped = 0
        self._parent = self._saved = ""
        self.todo = Todo(self.digest())

    def digest(self) -> str:
        """A hash of the whole state: it follows from the events and their transactions."""
        text = json.dumps([self.learner.digest(), self.names, self.seen, self.skipped])
        return hashlib.sha256(text.encode()).hexdigest()

    def counts(self) -> dict[str, int]:
        """How many labels were learned, diverged and wait, and how many items are remembered."""
        return {
            "learned": self.seen - self.skipped,
            "diverged": self.skipped,
            "waiting": len(self.todo.waiting),
            "remembered": len(self.memory),
        }

    # -- learning -----------------------------------------------------------------------------

    def begin(self, graph: GrowingGraph) -> None:
        """Let all labels wait that a graph has, in the order of their nodes' keys."""
        slots = graph.slots()
        named = np.array([label is not None for label in graph.labels(slots)], dtype=np.bool_)
        self.todo = replace(self.todo, waiting=tuple(graph.ids(slots[named])))

    def follow(self, graph: GrowingGraph) -> bool:
        """Do what is to do, on the graph as it is now; whether there was something.

        It can be called again if it was interrupted.
        """
        if not self.todo.due:
            return False
        if self.todo.renew:
            self._renew(graph)
            self.todo = replace(self.todo, renew=False)
        while self.todo.due:
            self._learn(graph, self.todo.waiting[:BATCH])
            self.todo = replace(self.todo, waiting=self.todo.waiting[BATCH:])
        self._parent = self.todo.of
        self.todo = replace(self.todo, of=self.digest())
        return True

    def _learn(self, graph: GrowingGraph, nodes: Sequence[Id]) -> None:
        slots = graph.slots(nodes)
        self.names += sorted(set(map(str, graph.labels(slots))).difference(self.names))
        try:
            self.learner.observe(self._items(graph, slots))
        except FloatingPointError:
            self.skipped += len(nodes)
        self.seen += len(nodes)

    def _renew(self, graph: GrowingGraph) -> None:
        """Make remembered items anew of the graph as it is now, those that still have their label.

        Nothing is left of what was taken out of the graph, in them or in their neighbors; the
        names of classes without a node go too.
        """
        slots, kept = graph.slots(), self.memory.node.numpy().view(np.uint64)
        keys = graph.keys(slots)
        place = np.minimum(np.searchsorted(keys, kept), max(len(keys) - 1, 0))
        same = np.flatnonzero(keys[place] == kept) if len(keys) else np.zeros(0, dtype=np.int64)
        labels = graph.labels(slots[place[same]])
        target = self.memory.target[torch.from_numpy(same)].tolist()
        right = [self.names[t] == label for t, label in zip(target, labels, strict=True)]
        same = same[np.array(right, dtype=np.bool_)]
        tensors, values = self.memory.state()
        fresh = {"keys": tensors["keys"][torch.from_numpy(same)]}
        if len(same):
            fresh |= self._items(graph, slots[place[same]]).tensors()
        self.memory.load_state(fresh, values)
        self.names = [name if name in graph.classes else None for name in self.names]

    def _items(self, graph: GrowingGraph, slots: Ints) -> Batch:
        """Nodes as they are now: features, the mean of each hop, label."""
        size, hops = len(slots), self.learner.model.hops
        indptr, index, value = graph.rows(slots)
        own = sparse.csr_array((value, index, indptr), shape=(size, graph.num_features))
        means = sparse.csr_array(sparse.vstack(hop_means(graph, slots, hops)))
        order = np.arange(size * hops).reshape(hops, size).T.ravel()  # node by node
        owner, hop = torch.arange(size).repeat_interleave(hops), torch.arange(1, hops + 1)
        neighbors = Neighbors(_features(means[order]), owner, hop.repeat(size))
        number = {name: at for at, name in enumerate(self.names) if name is not None}
        target = torch.tensor([number.get(name or "", -1) for name in graph.labels(slots)])
        node = torch.from_numpy(graph.keys(slots).view(np.int64).copy())
        return Batch(_features(own), neighbors, target.long(), torch.full((size,), -1), node)

    # -- asking -------------------------------------------------------------------------------

    def probabilities(
        self, graph: GrowingGraph, slots: Ints, classes: Sequence[str]
    ) -> tuple[Floats, Bools]:
        """Probabilities `(n, K)` of these classes, and which of them were learned, `(K,)`.

        Classes that were not have probability 0; so has everything before the first is learned.
        """
        place: dict[str | None, int] = {name: at for at, name in enumerate(classes)}
        found = [place.get(self.names[number], -1) for number in self.learner.classes]
        column = np.array(found, dtype=np.int64)
        likely, known = np.zeros((len(slots), len(classes))), np.zeros(len(classes), dtype=np.bool_)
        known[column[column >= 0]] = True
        for start in range(0, len(slots) if known.any() else 0, ROWS):
            part = slice(start, start + ROWS)
            output = self.learner.output(self._items(graph, slots[part])).double().numpy()
            output = output[:, column >= 0]
            raised = np.exp(output - output.max(1, keepdims=True))
            likely[part, column[column >= 0]] = raised / raised.sum(1, keepdims=True)
        return likely, known

    # -- state --------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write what is needed to resume; nothing if it is there already."""
        if self._saved != self.todo.of:
            self.learner.save(path, {
                "names": self.names, "seen": self.seen, "skipped": self.skipped,
                "of": self.todo.of, "parent": self._parent,
            })  # fmt: skip
            self._saved = self.todo.of

    def load(self, path: Path, todo: Todo) -> bool:
        """Resume from a file if it is of the network that has this to do, or has done it."""
        try:
            extra = self.learner.load(path)
            names, seen, skipped = extra["names"], extra["seen"], extra["skipped"]
            of, parent = extra["of"], extra["parent"]
        except (CheckpointError, KeyError):
            return False
        if todo.of not in (of, parent):
            return False
        self.names, self.seen, self.skipped = names, seen, skipped
        self._parent, self._saved = parent, of
        if of != todo.of:  # done
            todo = Todo(of, todo.waiting[len(todo.waiting) // BATCH * BATCH :])
        self.todo = todo
        return True


def average(exact: Floats, network: Floats, known: Bools) -> Floats:
    """The mean of two tables of probabilities over the classes that both know.

    What only the first one knows keeps its probability.

    Example:
        >>> exact, network = np.array([[0.6, 0.2, 0.2]]), np.array([[0.25, 0.75, 0.0]])
        >>> average(exact, network, np.array([True, True, False])).round(3).tolist()
        [[0.4, 0.4, 0.2]]
    """
    out = exact.copy()
    share = exact[:, known].sum(1, keepdims=True)
    out[:, known] = (exact[:, known] + share * network[:, known]) / 2
    return out


def _features(rows: Rows) -> SparseRows:
    """Fixed-point rows as a network reads them, in one order."""
    rows = sparse.csr_array(rows)
    rows.eliminate_zeros()
    rows.sort_indices()
    indptr, index = (part.astype(np.int64) for part in (rows.indptr, rows.indices))
    value = torch.from_numpy(rows.data.astype(np.float32)) / 2.0**FRACTION
    return SparseRows(torch.from_numpy(indptr), torch.from_numpy(index), value, rows.shape[1])
