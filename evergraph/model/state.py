"""What is in memory of a model folder: the graph of its store, and the learner that follows it."""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Rows
from evergraph.graph.database import FileError
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Coded, Id
from evergraph.graph.store import Store
from evergraph.learn.checkpoint import (
    CheckpointError,
    CheckpointWarning,
    damaged,
    previous,
    read_checkpoint,
    write_checkpoint,
)
from evergraph.learn.exact import ExactLearner, landmark_order
from evergraph.learn.network import NetworkLearner, Todo
from evergraph.learn.solution import Solution
from evergraph.learn.sums import Sums
from evergraph.model.folder import (
    GRAPH,
    LEARNER,
    NETWORK,
    Settings,
    new_folder,
    write_settings,
)
from evergraph.model.schemas import CHUNK, mark, nodes_of
from evergraph.model.tables import Tables
from evergraph.model.view import View

Base = tuple[Id, dict[str, Any]]
"""Id and cells of a node that was there at `train` or `refit`."""


class State:
    """The graph, the schema and the learner: all follow from the store and can be made again.

    Args:
        path: the model folder.
        store: its graph.sqlite.
        settings: those of its model.json.

    Attributes:
        schema: kinds of columns and their statistics, as the store holds them.
        graph: the graph of the store.
        landmarks: ids of the nodes that rows are compared with.
        learner: the closed form of the graph.
        network: that learns beside it, if the settings ask for one; it follows from the events
            and their transactions.
        position: how many events are in the graph.
        lock: held while the graph changes, for readers in other threads.
        scorer: a classifier of a moment ago and how many labels it knew, see `record`.
    """

    schema: Schema
    graph: GrowingGraph
    landmarks: set[Id]
    learner: ExactLearner
    position: int
    scorer: tuple[int, Solution] | None
    network: NetworkLearner | None

    def __init__(self, path: Path, store: Store, settings: Settings) -> None:
        self.path, self.store, self.settings = path, store, settings
        self.lock = threading.Lock()
        self._anew = False  # whether the store does not know the network yet
        self.reload()

    def reload(self) -> None:
        """Make all that is in memory from the files, whatever an interrupt has left of it."""
        self.load()
        self.network = None if self.settings.learner == "exact" else self._wake()

    def load(self) -> None:
        """Build the graph of the store, and the learner that follows it."""
        settings, self.scorer = self.settings, None
        self.read_schema()
        self.position = self.store.position
        self.graph = GrowingGraph(
            max(self.schema.width, 1), directed=settings.directed, hops=settings.hops,
            cap=settings.cap,
        )  # fmt: skip
        fill(self.graph, self.store, self.schema)
        self._follow()
        self._resume()

    def read_schema(self) -> None:
        """Take the schema of the store."""
        text = self.store.get("schema")
        if text is None:
            raise FileError(f"{self.store.path} holds no model: restore it from a copy")
        self.schema = Schema.from_json(str(text))

    def _follow(self) -> None:
        """A learner with the landmarks of now: base nodes, see `landmark_order`."""
        chosen = landmarks_in(self.store, self.settings.landmarks)
        self.landmarks = {name for name, _ in chosen}
        self._compared = landmark_rows(self.schema, chosen)
        self.learner = ExactLearner(
            self.graph, self.settings.blocks, self._compared, held_out=self.settings.held_out
        )

    def _wake(self) -> NetworkLearner:
        """The network as it is in the files; a new one that has all labels to learn if it is not.

        A reader may find a file that is one transaction ahead, and takes the one before it.
        """

        def fresh() -> NetworkLearner:
            width, hops = self.graph.num_features, self.settings.hops
            return NetworkLearner(width, hops, self.settings.memory)

        file, text = self.path / NETWORK, self.store.get("network")
        if text is not None:
            todo = Todo.from_json(str(text))
            for generation in (file, previous(file)):
                network = fresh()
                if network.load(generation, todo):
                    return network
            rule = f"{file} is missing, damaged or of another state: the network is made anew"
            warnings.warn(f"{rule} from all labels", CheckpointWarning, stacklevel=2)
        network, self._anew = fresh(), True
        network.begin(self.graph)
        return network

    def settle(self) -> None:
        """Let the network learn what it has to, on the graph as it is now, and write it."""
        if self.network is None:
            return
        self.network.follow(self.graph)
        if self.store.readonly:
            return
        self.network.save(self.path / NETWORK)
        if self._anew:
            with self.store.transaction():
                self.store.set("network", self.network.todo.to_json())
            previous(self.path / NETWORK).unlink(missing_ok=True)
            self._anew = False

    def view(self, solution: Solution | None = None) -> View:
        """What answers questions, with the classifier of now or another."""
        if solution is None:
            if not self.graph.classes:
                raise ValueError(
                    "nothing has been learned yet: the graph has no labels; learn some"
                )
            solution = self.learner.solution()
        alone = self.settings.learner == "network"
        parts = self.learner.embedding, self.graph, self.schema, self.network
        return View(solution, *parts, alone=alone)

    def digest(self) -> str:
        """A hash of all that decides a prediction: equal for equal graphs, after any history.

        With a network, for equal histories.
        """
        network = "" if self.network is None else self.network.digest()
        return joined_digest(self._fingerprint(), self.learner.digest(), network)

    def _fingerprint(self) -> str:
        return fingerprint(self.settings, self.schema, self.landmarks, self._compared)

    def save(self) -> None:
        """Write the sums, so that the next `open` need not make them again, and the network."""
        self.store.check_writable()
        self.settle()
        self.learner.refresh()
        arrays, values = self.learner.sums.arrays()
        tensors = {name: torch.from_numpy(part) for name, part in arrays.items()}
        extra = {"position": self.store.position, "of": self._fingerprint()}
        write_checkpoint(self.path / LEARNER, tensors, {**values, **extra})
        write_settings(self.path, self.schema, self.settings, list(self.graph.classes))

    def _resume(self) -> None:
        """Take the sums from the file if they are those of the store; else make them anew."""
        try:
            tensors, values = read_checkpoint(self.path / LEARNER)
            same = (values["position"], values["of"]) == (self.store.position, self._fingerprint())
            if same:
                arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
                self.learner.restore(Sums.from_arrays(arrays, values))
        except (CheckpointError, ValueError, KeyError):
            return  # damaged or of another state: nothing is lost

    def purge(self) -> None:
        """Leave nothing of what was deleted in the files; `open` repeats it if it was killed."""
        self.store.purge()
        sums, network = self.path / LEARNER, self.path / NETWORK
        for old in (sums, previous(sums), damaged(sums), previous(network), damaged(network)):
            old.unlink(missing_ok=True)
        self.save()
        with self.store.transaction():
            self.store.set("forgetting", None)


def new_state(path: Path, tables: Tables, schema: Schema, settings: Settings) -> State:
    """Make a model folder of tables and a schema that was fitted to them."""
    with new_folder(path):
        store = Store(path / GRAPH, directed=settings.directed)
        try:
            with store.transaction():
                tables.put(store)
                mark(store, schema)
            state = State(path, store, settings)
            state.save()
        except BaseException:
            store.close()
            raise
    return state


def fill(graph: GrowingGraph, store: Store, schema: Schema) -> None:
    """Put all that a store holds into an empty graph; edges that wait are left out."""
    for nodes in nodes_of(store):
        rows = schema.encode([node.cells for node in nodes])
        times = [np.nan if node.time is None else node.time for node in nodes]
        labels = [node.label for node in nodes]
        graph.put_nodes([n.id for n in nodes], *rows, labels=labels, times=times)
    _fill_edges(graph, store)


def _fill_edges(graph: GrowingGraph, store: Store) -> None:
    """Put all edges, of which there are many, at once; while they are read they are numbers."""
    parts: list[tuple[Any, ...]] = []
    links = store.edges()
    while part := list(islice(links, CHUNK)):
        source, target, weight, time = zip(*part, strict=True)
        slots = [graph.slots(ends).astype(np.int32) for ends in (source, target)]
        parts.append((*slots, filled(weight, 1.0), filled(time, np.nan)))
    if parts:
        sources, targets, weights, times = zip(*parts, strict=True)
        names = graph.ids(np.arange(len(graph)))  # of a graph in which no slot was given up
        one, other = (Coded(names, np.concatenate(ends)) for ends in (sources, targets))
        sizes = list(map(len, sources))
        columns = _joined(weights, sizes, 1.0), _joined(times, sizes, np.nan)
        graph.put_edges(one, other, *columns)


def _joined(parts: Sequence[list[Any] | None], sizes: Sequence[int], usual: float) -> Any:
    """Parts of a column, each as `filled` gives it, as one."""
    if all(part is None for part in parts):
        return None
    pairs = zip(parts, sizes, strict=True)
    return np.concatenate([np.full(n, usual) if part is None else part for part, n in pairs])


def filled(values: Sequence[Any], usual: float) -> list[Any] | None:
    """Values with what is usual in place of None; None if there is nothing else."""
    if all(value is None for value in values):
        return None
    return [usual if value is None else value for value in values]


def landmarks_in(
    store: Store, count: int, owns: Callable[[Id], bool] = lambda _: True
) -> list[Base]:
    """The base nodes of a store that are landmarks; cells of others are not read."""
    chosen = nsmallest(count, filter(owns, store.base_ids()), key=landmark_order)
    return [base for node in chosen for base in store.bases(node)]


def first_landmarks(bases: Iterable[Base], count: int) -> list[Base]:
    """Those of some base nodes that are landmarks, see `landmark_order`."""
    return nsmallest(count, bases, key=lambda base: landmark_order(base[0]))


def landmark_rows(schema: Schema, bases: Sequence[Base]) -> Rows:
    """The features of landmarks, `(L, F)` int64."""
    width = max(schema.width, 1)
    if not bases:
        return sparse.csr_array((0, width), dtype=np.int64)
    indptr, index, value = schema.encode([cells for _, cells in bases])
    return sparse.csr_array((value.astype(np.int64), index, indptr), shape=(len(bases), width))


def fingerprint(
    settings: Settings, schema: Schema, landmarks: Collection[Id], compared: Rows
) -> str:
    """A hash of settings, statistics and landmarks."""
    text = json.dumps([asdict(settings), schema.to_json()])
    names = repr(sorted(map(str, landmarks)))
    found = hashlib.sha256((text + names).encode())
    for part in compared.indptr, compared.indices, compared.data:
        found.update(np.asarray(part, dtype=np.int64).tobytes())
    return found.hexdigest()


def joined_digest(*parts: str) -> str:
    """One hash of several."""
    return hashlib.sha256("".join(parts).encode()).hexdigest()
