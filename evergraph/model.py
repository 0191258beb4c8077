"""A model folder: feed it what happens to a graph, in any order, and ask it at any time.

    graph.sqlite         nodes, edges, labels, and the position in the stream of events
    model.json           settings, kinds of columns, their statistics
    learner.safetensors  the sums of the closed form, at a position

Events are durable when `learn` has taken them. What is in memory, and in learner.safetensors,
follows from graph.sqlite and can be made again: to the same digest, whatever the history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from evergraph import __version__
from evergraph.checks import shorten
from evergraph.datasets.columns import from_rows
from evergraph.datasets.events import Event, event_of
from evergraph.datasets.fields import id_of
from evergraph.datasets.graph_tables import Edges, Nodes, read_edges, read_nodes
from evergraph.datasets.report import Problem, Report
from evergraph.datasets.schema import Schema
from evergraph.feature_graph.fixed_point import Blocks, Rows
from evergraph.graph.database import FileError
from evergraph.graph.growing import GrowingGraph
from evergraph.graph.ids import Id
from evergraph.graph.links import fixed_weight
from evergraph.graph.store import Store
from evergraph.learn.checkpoint import (
    CheckpointError,
    previous,
    read_checkpoint,
    write_checkpoint,
    write_file,
)
from evergraph.learn.exact import ExactLearner, landmark_order
from evergraph.learn.solution import Solution
from evergraph.learn.sums import Sums

VERSION = 1
GRAPH, SETTINGS, LEARNER = "graph.sqlite", "model.json", "learner.safetensors"
UNFINISHED = ".unfinished"  # in a folder that `train` is making
CHUNK = 10_000  # nodes that are read from the store at a time
ROWS = 4096  # nodes that are predicted at a time
FIELDS = ("type", "id", "source", "target", "label", "weight", "time")
CURVE = 200  # points of the record of accuracy that are kept


@dataclass(frozen=True)
class Settings:
    """What a model is made with.

    Attributes:
        hops: K, how far a node looks.
        cap: how many neighbors count, those with the smallest keys; None for all.
        directed: whether an edge counts from source to target only.
        linear, max_width, landmarks: see `Blocks`.
        held_out: labelled nodes that choose and calibrate, see `ExactLearner`.
    """

    hops: int = 2
    cap: int | None = None
    directed: bool = False
    linear: tuple[str, ...] = Blocks.linear
    max_width: int = Blocks.max_width
    landmarks: int = Blocks.landmarks
    held_out: int = 400

    @property
    def blocks(self) -> Blocks:
        """What rows are made of."""
        return Blocks(self.linear, self.max_width, self.landmarks)


@dataclass(frozen=True)
class Prediction:
    """What a node is: `id`, `label`, its `probability`, and how well it fits no class.

    Attributes:
        label_set: classes that hold the right one with the probability that was asked for.
    """

    id: Id
    label: str
    probability: float
    novelty: float
    label_set: tuple[str, ...]


class Model:
    """A growing graph on disk and a classifier that always follows it.

    Make one with `train`, open one with `evergraph.open`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> place = TemporaryDirectory()
        >>> nodes = {"id": range(60), "age": [20, 50] * 30, "label": ["young", "old"] * 30}
        >>> model = Model.train(place.name + "/model", nodes, {"source": [0], "target": [2]})
        >>> model.learn_one({"type": "node", "id": "ann", "age": 49})
        >>> model.predict(["ann"])[0].label
        'old'
        >>> model.forget(nodes=["ann"])
        >>> model.close()
        >>> place.cleanup()
    """

    def __init__(self, path: Path, store: Store, schema: Schema, settings: Settings) -> None:
        self.path, self.store, self.schema, self.settings = path, store, schema, settings
        self._scorer: tuple[int, Solution] | None = None
        self._load()

    # -- making and opening -------------------------------------------------------------------

    @classmethod
    def train(
        cls,
        path: Path | str,
        nodes: Any,
        edges: Any = None,
        *,
        schema: Schema | None = None,
        settings: Settings = Settings(),  # noqa: B008
        id: str = "id",
    ) -> Model:
        """Make a model folder from tables of nodes and edges; see `read_nodes`, `read_edges`.

        Kinds of columns are inferred unless a schema is given, and standardized over these nodes.
        All complaints about the tables come in one error, and nothing is written then.
        """
        path, report = Path(path), Report()
        _check_new(path)
        found = list(read_nodes(nodes, report, id=id))
        linked = [] if edges is None else list(read_edges(edges, report))
        for link in linked:
            _check_weights(link, report)
        report.check()
        schema = Schema.infer(part.features for part in found) if schema is None else schema
        for part in found:
            schema.fit(part.features, report)
        report.check()
        with _new_folder(path):
            store = Store(path / GRAPH, directed=settings.directed)
            try:
                with store.transaction():
                    for part in found:
                        store.put_nodes(part.records(), base=True)
                    for link in linked:
                        store.put_edges(link.records())
                    store.set("schema", schema.to_json())
                made = cls(path, store, schema, settings)
                made.save()
            except BaseException:
                store.close()
                raise
        return made

    @classmethod
    def open(cls, path: Path | str, *, readonly: bool = False) -> Model:
        """Open a model folder; nothing else is needed."""
        path = Path(path)
        try:
            text = (path / SETTINGS).read_text()
            values = json.loads(text)
            if values["version"] != VERSION:
                raise ValueError(f"version {VERSION} is known, got {values['version']}")
            given = values["settings"]
            settings = Settings(**{**given, "linear": tuple(given["linear"])})
        except OSError as error:
            raise ValueError(
                f"{path} is no model folder ({error.strerror or error}); make one with train"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path / SETTINGS} cannot be read ({error}); restore it") from error
        store = Store(path / GRAPH, readonly=readonly)
        try:
            with store.snapshot():
                schema = Schema.from_json(str(store.get("schema")))
                made = cls(path, store, schema, settings)
            if not readonly and store.get("forgetting"):
                made._purge()
        except BaseException:
            store.close()
            raise
        return made

    def close(self) -> None:
        """Give the folder free for others."""
        self.store.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> None:
        """Build the graph of the store, and the learner that follows it."""
        settings = self.settings
        self.graph = GrowingGraph(
            max(self.schema.width, 1), directed=settings.directed, hops=settings.hops,
            cap=settings.cap,
        )  # fmt: skip
        part: list[Any] = []
        for node in self.store.nodes():
            part.append(node)
            if len(part) == CHUNK:
                self._put_nodes(part)
                part = []
        self._put_nodes(part)
        links = list(self.store.edges())
        if links:
            ends = [e.source for e in links], [e.target for e in links]
            weights = [1.0 if e.weight is None else e.weight for e in links]
            times = [np.nan if e.time is None else e.time for e in links]
            self.graph.put_edges(*ends, weights, times)
        self._follow()
        self._resume()

    def _put_nodes(self, nodes: Sequence[Any]) -> None:
        if nodes:
            rows = self.schema.encode([node.cells for node in nodes])
            times = [np.nan if node.time is None else node.time for node in nodes]
            labels = [node.label for node in nodes]
            self.graph.put_nodes([n.id for n in nodes], *rows, labels=labels, times=times)

    def _follow(self) -> None:
        """A learner with the landmarks of now: base nodes, see `landmark_order`."""
        bases = sorted(self.store.bases(), key=lambda pair: landmark_order(pair[0]))
        chosen = [cells for _, cells in bases[: self.settings.landmarks]]
        self.landmarks = {name for name, _ in bases[: self.settings.landmarks]}
        rows = _matrix(self.schema, chosen, self.graph.num_features)
        self.learner = ExactLearner(
            self.graph, self.settings.blocks, rows, held_out=self.settings.held_out
        )

    # -- learning -----------------------------------------------------------------------------

    def learn(
        self,
        events: Iterable[Event | Mapping[str, Any]],
        report: Report | None = None,
        *,
        note: tuple[str, str] | None = None,
        file: str = "events",
    ) -> int:
        """Take events in one transaction: all that are good, durably; returns how many.

        Args:
            events: as `read_events` gives them, or dictionaries with the same keys.
            report: collects complaints about events that are refused; without it, the first one
                is raised and nothing is taken.
            note: a name and a value for the store, written in the same transaction.
            file: where the events come from, for complaints.
        """
        own = Report() if report is None else report
        wanted = list(_events(events, own, file))
        rows = self._encode([e for e in wanted if e.type == "node"], own, file)
        right, seen = self._score(wanted)
        taken: list[tuple[Event, Any]] = []
        before = self.store.position
        try:
            with self.store.transaction():
                for event in wanted:
                    if event.type == "node" and id(event) not in rows:
                        continue
                    try:
                        taken.append((event, self._store(event)))
                    except FileError:
                        raise
                    except ValueError as error:
                        own.note(_refusal(event, error, file))
                if report is None:
                    own.check()
                if note is not None:
                    self.store.set(*note)
                self._record(right, seen)
            self._expect([event for event, _ in taken])
            stale = [self._apply(event, rows.get(id(event)), found) for event, found in taken]
            if any(stale):
                self._load()
        except BaseException:
            self.schema = Schema.from_json(str(self.store.get("schema")))
            if self.store.position != before:  # stored, but not all of it is in memory
                self._load()
            raise
        return len(taken)

    def learn_one(self, event: Mapping[str, Any]) -> None:
        """Take one event, a dictionary as a line of an event file holds it."""
        self.learn([event])

    def _encode(self, nodes: Sequence[Event], report: Report, file: str) -> dict[int, Any]:
        """The features of the events that bring nodes, by the identity of the event."""
        found, lines = Report(), [event.line for event in nodes]
        cells = [event.cells for event in nodes]
        chunk = from_rows(cells, found, file=file, unit="line", lines=lines)
        indptr, index, value = self.schema.encode(chunk, found)
        if found.count:
            if len(nodes) == 1:
                for problem in found.problems:  # those about a whole column have no line
                    report.note(replace(problem, line=lines[0], unit="line"))
                return {}
            half = len(nodes) // 2
            first = self._encode(nodes[:half], report, file)
            return first | self._encode(nodes[half:], report, file)
        bounds = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
        parts = ((index[a:b], value[a:b]) for a, b in bounds)
        return {id(event): part for event, part in zip(nodes, parts, strict=True)}

    def _store(self, event: Event) -> Any:
        """Write an event to the store; returns what else it brings about."""
        store = self.store
        node, source, target = _places(event)
        if event.type == "node":
            return store.put_node(node, event.cells, event.label, event.time)
        if event.type == "edge":
            if isinstance(event.weight, list):
                raise ValueError(f"the weight of an edge must be one number, got {event.weight}")
            if event.weight is not None and fixed_weight(event.weight, None) < 0:
                raise ValueError(f"a weight must be 0 or more, got {event.weight}")
            return store.put_edge(source, target, event.weight, event.time)
        if event.type == "delete_edge":
            return store.delete_edge(source, target)
        if event.type == "delete_node":
            base = [cells for _, cells in store.bases(node)]
            store.delete_node(node)
            if base:
                self.schema.forget(base)
                store.set("schema", self.schema.to_json())
            return bool(base)
        return store.put_label(node, event.label)

    def _expect(self, events: Sequence[Event]) -> None:
        """Let the learner take out at once what events are about to change."""
        reach = {"edge": self.graph.hops - 1, "delete_edge": self.graph.hops - 1}
        reach |= {"node": self.graph.hops, "delete_node": self.graph.hops}
        near: dict[int, set[Id]] = {}
        for e in events:
            ends = (e.source, e.target) if e.id is None else (e.id,)
            near.setdefault(reach.get(e.type, 0), set()).update(n for n in ends if n is not None)
        for hops, nodes in near.items():
            self.graph.expect(nodes, hops)

    def _apply(self, event: Event, row: Any, found: Any) -> bool:
        """Change the graph as the store was changed; whether all has to be made anew."""
        graph = self.graph
        node, source, target = _places(event)
        if event.type == "node":
            graph.put_node(node, *row, label=event.label, time=event.time)
            for edge in found:
                graph.put_edge(*edge)
        elif event.type == "edge":
            if found and source != target:  # no node has an edge to itself
                graph.put_edge(source, target, event.weight, event.time)
        elif event.type == "delete_edge":
            graph.delete_edge(source, target)
        elif event.type == "delete_node":
            graph.delete_node(node)
            return bool(found)  # statistics and landmarks may have changed
        else:
            graph.put_label(node, event.label)
        return False

    def forget(
        self,
        nodes: Sequence[Id] = (),
        edges: Sequence[tuple[Id, Id]] = (),
        labels: Sequence[Id] = (),
    ) -> None:
        """Take nodes, edges or labels out with all their traces, in memory and in the files."""
        events = [Event("delete_label", 0, id=_id(node)) for node in labels]
        events += [Event("delete_edge", 0, source=_id(a), target=_id(b)) for a, b in edges]
        events += [Event("delete_node", 0, id=_id(node)) for node in nodes]
        self.learn(events, note=("forgetting", "1"), file="forget")
        try:
            self._purge()
        except (ValueError, OSError) as error:
            raise FileError(
                f"{error}; what was named is forgotten, but bytes of it are left in the files: the "
                "next learn or forget removes them first"
            ) from error

    def _purge(self) -> None:
        """Leave nothing of what was deleted in the files; `open` repeats it if it was killed."""
        self.store.purge()
        for old in (self.path / LEARNER, previous(self.path / LEARNER)):
            old.unlink(missing_ok=True)
        self.save()
        with self.store.transaction():
            self.store.set("forgetting", None)

    # -- asking ---------------------------------------------------------------------------------

    def predict(
        self, nodes: Any = None, edges: Any = None, *, coverage: float = 0.9, id: str = "id"
    ) -> list[Prediction]:
        """What nodes are: of the graph by their ids, or new ones with features, not to be stored.

        Args:
            nodes: a list of ids; or a table, as `train` takes it; None for all of the graph.
            edges: of new nodes, a table.
            coverage: how often label sets shall hold the right class.
            id: the column of ids in a table of nodes.
        """
        solution = self._solution()
        names = np.array(solution.classes, dtype=object)
        made: list[Prediction] = []
        for ids, rows in self._rows(nodes, edges, id):
            likely, novelty = solution.probabilities(rows), solution.novelty(rows)
            inside = solution.label_sets(likely, coverage)
            best = likely.argmax(1).tolist()
            made += [
                Prediction(node, str(names[k]), float(p[k]), float(new), tuple(names[row]))
                for node, k, p, new, row in zip(ids, best, likely, novelty, inside, strict=True)
            ]
        return made

    def predict_one(self, node: Id | Mapping[str, Any]) -> Prediction:
        """The same of one node: an id, or a dictionary of cells."""
        return self.predict([node])[0]

    def predict_proba(self, nodes: Any = None, edges: Any = None) -> NDArray[np.float64]:
        """Probabilities of the classes, `(n, K)`, in the order of `classes`."""
        solution = self._solution()
        parts = [solution.probabilities(rows) for _, rows in self._rows(nodes, edges)]
        return np.concatenate([np.zeros((0, len(solution.classes))), *parts])

    def _solution(self) -> Solution:
        if not self.graph.classes:
            raise ValueError("nothing has been learned yet: the graph has no labels; learn some")
        return self.learner.solution()

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return list(self.graph.classes)

    def _rows(
        self, nodes: Any, edges: Any, id: str = "id"
    ) -> Iterator[tuple[list[Id], NDArray[np.float64]]]:
        """Ids and rows of nodes, some at a time, since rows are wide."""
        ids, slots, graph = self._find(nodes, edges, id)
        for start in range(0, len(ids), ROWS):
            part = slice(start, start + ROWS)
            yield ids[part], self.learner.rows(slots[part], graph)

    def _find(
        self, nodes: Any, edges: Any, id: str
    ) -> tuple[list[Id], NDArray[np.int64], GrowingGraph]:
        """Ids and slots of nodes; new ones are seen in a graph of their surroundings."""
        if isinstance(nodes, list | tuple) and nodes and isinstance(nodes[0], Mapping):
            nodes = [{"id": f"row {at}", **node} for at, node in enumerate(nodes)]
        elif nodes is None or isinstance(nodes, list | tuple):
            if nodes is not None:
                nodes = [_id(node) for node in nodes]
            if edges is None:
                slots = self.graph.slots(nodes)
                return self.graph.ids(slots), slots, self.graph
            nodes = {"id": self.graph.ids(self.graph.slots()) if nodes is None else list(nodes)}
        report = Report()
        parts = list(read_nodes(nodes, report, id=id))
        tables = [] if edges is None else list(read_edges(edges, report))
        for table in tables:
            _check_weights(table, report)
        report.check()
        links = [pair for table in tables for pair in table.records()]
        ids = [node for part in parts for node in part.ids]
        near = self.graph.surroundings(
            [
                node
                for node in (*ids, *(end for link in links for end in link[:2]))
                if node in self.graph
            ]
        )
        for part in parts:
            self._put_given(part, near)
        for link in links:
            near.put_edge(*link)
        return ids, near.slots(ids), near

    def _put_given(self, part: Nodes, near: GrowingGraph) -> None:
        """Put nodes with the features that were given; known ones without any stay as they are."""
        if not part.features.table.num_columns:
            return
        known = np.flatnonzero([node in self.graph for node in part.ids])
        cells = part.features.take(known).table.to_pylist()
        bare = [all(cell in (None, "") for cell in row.values()) for row in cells]
        rows = np.setdiff1d(np.arange(len(part.ids)), known[bare])
        encoded = self.schema.encode(part.features.take(rows))
        near.put_nodes([part.ids[row] for row in rows.tolist()], *encoded)

    # -- state ----------------------------------------------------------------------------------

    def digest(self) -> str:
        """A hash of all that decides a prediction: equal for equal graphs, after any history."""
        return hashlib.sha256((self._fingerprint() + self.learner.digest()).encode()).hexdigest()

    def _fingerprint(self) -> str:
        """A hash of settings, statistics and landmarks."""
        text = json.dumps([asdict(self.settings), self.schema.to_json()])
        return hashlib.sha256((text + repr(sorted(map(str, self.landmarks)))).encode()).hexdigest()

    def save(self) -> None:
        """Write the sums, so that the next `open` need not make them again."""
        self.learner.refresh()
        arrays, values = self.learner.sums.arrays()
        tensors = {name: torch.from_numpy(part) for name, part in arrays.items()}
        extra = {"position": self.store.position, "of": self._fingerprint()}
        write_checkpoint(self.path / LEARNER, tensors, {**values, **extra})
        _write_settings(self.path, self.schema, self.settings, self.classes)

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

    def inspect(self) -> dict[str, Any]:
        """Counts, classes, schema, accuracy over time, and the digest."""
        curve = json.loads(str(self.store.get("curve") or "[]"))
        right, seen = (sum(point[k] for point in curve) for k in (1, 2))
        return {
            "nodes": len(self.graph),
            "edges": self.graph.num_edges,
            "waiting_edges": sum(1 for _ in self.store.waiting()),
            "labels": sum(self.graph.classes.values()),
            "classes": self.graph.classes,
            "position": self.store.position,
            "prequential_accuracy": right / seen if seen else None,
            "curve": curve,
            "schema": self.schema.describe(),
            "settings": asdict(self.settings),
            "bytes": self.graph.nbytes,
            "digest": self.digest(),
        }

    def _score(self, events: Sequence[Event]) -> tuple[int, int]:
        """How many nodes that are about to get their first label would be predicted right.

        The classifier is solved again when there are a tenth more labels than it knew.
        """
        graph = self.graph
        late: dict[Id, str] = {
            e.id: e.label
            for e in events
            if e.id is not None and e.label is not None and e.id in graph
        }
        slots = graph.slots(list(late)) if late else np.zeros(0, dtype=np.int64)
        fresh = np.array([label is None for label in graph.labels(slots)], dtype=np.bool_)
        labels = sum(graph.classes.values())
        if not fresh.any() or len(graph.classes) < 2:
            return 0, 0
        if self._scorer is None or labels > 1.1 * self._scorer[0]:
            self._scorer = labels, self.learner.solution()
        solution = self._scorer[1]
        best = solution.probabilities(self.learner.rows(slots[fresh])).argmax(1)
        named = [solution.classes[k] for k in best.tolist()]
        truth = [late[node] for node in graph.ids(slots[fresh])]
        return sum(a == b for a, b in zip(named, truth, strict=True)), len(truth)

    def _record(self, right: int, seen: int) -> None:
        """Add to the record of accuracy; old points are joined in pairs when there are many."""
        if not seen:
            return
        curve = json.loads(str(self.store.get("curve") or "[]"))
        curve.append([self.store.position, right, seen])
        if len(curve) > CURVE:
            pairs = zip(curve[::2], curve[1::2], strict=False)
            tail = curve[len(curve) // 2 * 2 :]
            curve = [[b[0], a[1] + b[1], a[2] + b[2]] for a, b in pairs] + tail
        self.store.set("curve", json.dumps(curve))


def open(path: Path | str, *, readonly: bool = False) -> Model:
    """Open a model folder; nothing else is needed."""
    return Model.open(path, readonly=readonly)


def _check_new(path: Path) -> None:
    """Refuse a path that holds something, other than what a killed `train` has left."""
    held = {file.name for file in path.iterdir()} if path.is_dir() else {path.name}
    if path.exists() and held and (SETTINGS in held or UNFINISHED not in held):
        raise ValueError(f"{path} is there already: move it, or choose another path")


@contextmanager
def _new_folder(path: Path) -> Iterator[None]:
    """Make a folder, and take it away again if the block fails; a mark tells what was killed."""
    there, mark = path.exists(), path / UNFINISHED
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"cannot make {path} ({error.strerror}); free some space, or choose another path"
        ) from error
    if mark.exists() and (path / GRAPH).exists():
        Store(path / GRAPH).close()  # an error if it is being made right now
    try:
        mark.touch()
        _empty(path)
        yield
        mark.unlink()
    except BaseException:
        with suppress(OSError):
            _empty(path)
            mark.unlink(missing_ok=True)
            if not there:
                path.rmdir()
        raise


def _empty(path: Path) -> None:
    """Remove the files of an unfinished model."""
    for file in path.iterdir():
        if file.name.removeprefix(".").startswith((GRAPH, SETTINGS, LEARNER)):
            file.unlink()


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


def _events(events: Iterable[Any], report: Report, file: str) -> Iterator[Event]:
    """Events as they are; dictionaries mean what they would mean as lines of a file."""
    for line, event in enumerate(events, 1):
        if isinstance(event, Event):
            yield event
            continue

        def complain(value: object, *rest: str, line: int = line) -> None:
            rule, way_out, column = rest
            report.add(file, line, column, value, rule, way_out)

        row = {name: _plain(value) for name, value in event.items()}
        if (found := event_of(row, line, complain)) is not None:
            yield found


def _refusal(event: Event, error: ValueError, file: str) -> Problem:
    """What the store says against an event."""
    rule, _, value = str(error).partition(", got ")
    named = {name: v for name in FIELDS if (v := getattr(event, name)) is not None}
    return Problem(file, event.line or None, None, value or shorten(named), rule, "correct it")


def _plain(value: Any) -> Any:
    """A value without the types of numpy."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _id(value: Any) -> Id:
    """An id as tables and events have it."""
    return id_of(_plain(value))


def _places(event: Event) -> tuple[Id, Id, Id]:
    """The node, source and target of an event; those that its type needs are there."""
    return cast("tuple[Id, Id, Id]", (event.id, event.source, event.target))


def _matrix(schema: Schema, cells: Sequence[Mapping[str, Any]], width: int) -> Rows:
    if not cells:
        return sparse.csr_array((0, width), dtype=np.int64)
    indptr, index, value = schema.encode(list(cells))
    return sparse.csr_array((value.astype(np.int64), index, indptr), shape=(len(cells), width))


def _write_settings(
    path: Path, schema: Schema, settings: Settings, classes: Sequence[str] = ()
) -> None:
    """Write model.json as a whole; statistics are in the store, with what they are made of."""
    values = {
        "version": VERSION,
        "evergraph": __version__,
        "settings": asdict(settings),
        "classes": list(classes),
        "columns": [{"name": column.name, "kind": column.kind} for column in schema.columns],
    }
    write_file(path / SETTINGS, json.dumps(values, indent=1).encode())
