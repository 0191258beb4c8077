"""Stores: all or nothing, whatever happens; what is deleted is gone; bad files are named."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.graph import GrowingGraph
from evergraph.graph.database import StoreError
from evergraph.graph.store import Edge, Store

IDS = ["a", "b", "7", 7, -1, "ß", "nul\0l", 2**63 - 1]
ids = st.sampled_from(IDS)
weights = st.none() | st.integers(1, 8).map(lambda n: n / 4)
times = st.none() | st.integers(0, 3).map(float)
labels = st.none() | st.sampled_from(["x", "y"])
events = st.lists(
    st.one_of(
        st.tuples(
            st.just("put_node"), ids, st.integers(1, 9).map(lambda n: {"n": n}), labels, times
        ),
        st.tuples(
            st.just("put_node"), ids, st.integers(1, 9).map(lambda n: {"n": n}), labels, times
        ),
        st.tuples(st.just("put_edge"), ids, ids, weights, times),
        st.tuples(st.just("put_edge"), ids, ids, weights, times),
        st.tuples(st.just("put_label"), ids, labels),
        st.tuples(st.just("delete_node"), ids),
        st.tuples(st.just("delete_edge"), ids, ids),
        st.just(("restart",)),
        st.just(("roll back",)),
    ),
    max_size=40,
)


class Plain:
    """The dumbest store: two dictionaries."""

    def __init__(self, directed: bool) -> None:
        self.directed = directed
        self.nodes: dict = {}  # id -> [cells, label, time]
        self.edges: dict = {}  # pair -> [weight, time], waiting or not

    def pair(self, source, target):
        if self.directed or (isinstance(source, str), source) <= (isinstance(target, str), target):
            return source, target
        return target, source

    def put_node(self, node, cells, label, when) -> bool:
        old = self.nodes.get(node, [None, None, None])
        self.nodes[node] = [cells, label or old[1], old[2] if when is None else when]
        return True

    def put_edge(self, source, target, weight, when) -> bool:
        pair = self.pair(source, target)
        if source != target:
            old = self.edges.get(pair, [None, None])
            new = zip((weight, when), old, strict=True)
            self.edges[pair] = [o if v is None else v for v, o in new]
        return True

    def put_label(self, node, label) -> bool:
        if node in self.nodes:
            self.nodes[node][1] = label
        return node in self.nodes

    def delete_node(self, node) -> bool:
        if node not in self.nodes:
            return False
        del self.nodes[node]
        self.edges = {pair: edge for pair, edge in self.edges.items() if node not in pair}
        return True

    def delete_edge(self, source, target) -> bool:
        return self.edges.pop(self.pair(source, target), None) is not None

    def split(self) -> tuple[dict, dict]:
        """The edges that are there, and those that wait."""
        there = {p: tuple(e) for p, e in self.edges.items() if set(p) <= self.nodes.keys()}
        return there, {p: tuple(e) for p, e in self.edges.items() if p not in there}


def assert_same(store: Store, plain: Plain) -> None:
    found = {node.id: [node.cells, node.label, node.time] for node in store.nodes()}
    assert found == plain.nodes
    assert [type(node) for node in found] == sorted(map(type, found), key=lambda t: t is str)
    there, waiting = plain.split()
    assert {edge[:2]: edge[2:] for edge in store.edges()} == there
    assert {edge[:2]: edge[2:] for edge in store.waiting()} == waiting


def rebuilt(store: Store) -> list:
    """What a growing graph that is read from the store holds."""
    graph = GrowingGraph(1, directed=store.directed)
    for node in store.nodes():
        graph.put_node(node.id, [0], [node.cells["n"]], label=node.label, time=node.time)
    for edge in store.edges():
        graph.put_edge(*edge)
    return content(graph)


def content(graph: GrowingGraph) -> list:
    slots = graph.slots()
    near = graph.neighborhood(slots, 2, cap=3, causal=True)
    return [
        graph.ids(slots),
        graph.labels(slots),
        graph.sums(slots).toarray().tolist(),
        graph.degree(slots).tolist(),
        graph.ids(near.nodes.numpy()),
        None if near.weight is None else near.weight.tolist(),
    ]


@settings(max_examples=60, deadline=None)
@given(events, st.booleans())
def test_any_history_is_stored_and_survives_restarts(history, directed) -> None:
    plain = Plain(directed)
    live = GrowingGraph(1, directed=directed)  # follows the store event by event
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.sqlite"
        store = Store(path, directed=directed)
        accepted = 0
        for kind, *rest in history:
            if kind == "restart":
                store.close()
                store = Store(path)
                assert store.directed == directed
                continue
            if kind == "roll back":
                with suppress(ZeroDivisionError), store.transaction():
                    store.put_node("never", {})
                    store.put_edge("never", "a")
                    raise ZeroDivisionError
                continue
            before = plain.split()[0]
            if not getattr(plain, kind)(*rest):
                with pytest.raises(StoreError, match="the store has no"), store.transaction():
                    getattr(store, kind)(*rest)
                continue
            with store.transaction():
                answer = getattr(store, kind)(*rest)
            accepted += 1
            there, waiting = plain.split()
            if kind == "put_node":
                assert {edge[:2] for edge in answer} == there.keys() - before.keys()
                live.put_node(rest[0], [0], [rest[1]["n"]], label=rest[2], time=rest[3])
                for edge in answer:
                    live.put_edge(*edge)
            elif kind == "put_edge":
                assert answer == (plain.pair(*rest[:2]) not in waiting)
                if answer and rest[0] in live:
                    live.put_edge(*rest)
            elif kind != "delete_edge" or plain.pair(*rest) in before:
                getattr(live, kind)(*rest)
        assert store.position == accepted
        assert_same(store, plain)
        assert rebuilt(store) == content(live)
        store.close()
        with Store(path, readonly=True) as store:
            assert_same(store, plain)


def test_batches_are_the_same_as_single_events(tmp_path) -> None:
    nodes = [(node, {"n": at}, "x" if at % 2 else None, float(at)) for at, node in enumerate(IDS)]
    edges = [(one, other, None, 2.0) for one in IDS for other in IDS]
    with Store(tmp_path / "one") as one, Store(tmp_path / "many") as many:
        with one.transaction():
            waiting = sum(not one.put_edge(*edge) for edge in edges[:20])
            released = [edge for node in nodes for edge in one.put_node(*node)]
            for edge in edges[20:]:
                assert one.put_edge(*edge)
        with many.transaction():
            assert many.put_edges(edges[:20]) == waiting
            assert sorted(many.put_nodes(nodes), key=str) == sorted(released, key=str)
            assert many.put_edges(edges[20:]) == 0
        assert list(one.nodes()) == list(many.nodes())
        assert list(one.edges()) == list(many.edges())
        assert len(list(one.edges())) == len(IDS) * (len(IDS) - 1) // 2
        assert one.position == many.position == len(nodes) + len(edges)
        assert one.node("ß").label_position == 20 + IDS.index("ß")


def test_vectors_meta_and_labels(tmp_path) -> None:
    with Store(tmp_path / "s") as store:
        with store.transaction():
            store.put_node("a", {"text": "grüß", "list": [1, None, True]}, label="x")
            store.put_node("b", {})
            store.put_edge("a", "b", [0.5, 2], 3)
            store.set("learner", b"\x00\xff")
        with store.transaction():
            store.put_label("b", "y")
            store.put_label("a", "x")
            store.put_label("b", None)
            store.put_label("b", "z")
        assert list(store.edges()) == [Edge("a", "b", (0.5, 2.0), 3.0)]
        assert store.node("a").cells == {"text": "grüß", "list": [1, None, True]}
        assert [node.label_position for node in store.nodes()] == [0, 6]
        assert store.get("learner") == b"\x00\xff"
        assert store.get("nothing") is None
        assert store.node("c") is None


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (("put_node", 1.5, {}), "an id must be a string or an integer, got 1.5"),
        (("put_node", True, {}), "an id must be a string or an integer, got True"),
        (("put_node", 2**63, {}), "an integer id must fit into 64 bits, got one of 64 bits"),
        (("put_node", "x" * 2**20, {}), "1 to 1024 bytes in UTF-8, got 1048576"),
        (("put_node", "\udc80", {}), "an id must be valid Unicode"),
        (("put_node", "", {}), "1 to 1024 bytes in UTF-8, got 0"),
        (("put_node", "x", {"a": float("nan")}), "what JSON can hold"),
        (("put_node", "x", {"a": object()}), "what JSON can hold"),
        (("put_node", "x", {"a": "\udc80"}), "what JSON can hold"),
        (("put_node", "x", {}, 7), "a label must be a string, got 7"),
        (("put_node", "x", {}, None, float("inf")), "a time must be a finite number, got inf"),
        (("put_node", "x", {}, None, 10**400), "a time must be a finite number"),
        (("put_edge", "a", "b", "heavy"), "a weight must be a finite number, got 'heavy'"),
        (("put_edge", "a", "b", [1.0, None]), "a weight must be a finite number, got None"),
        (("put_label", "c", "x"), "the store has no node 'c'"),
        (("delete_node", "c"), "the store has no node 'c'"),
        (("delete_edge", "a", "c"), "the store has no edge from 'a' to 'c'"),
        (("set", "x", 2**70), "cannot write"),
    ],
)
def test_events_that_are_refused_change_nothing(tmp_path, event, rule) -> None:
    kind, *rest = event
    with Store(tmp_path / "s") as store:
        with store.transaction():
            store.put_node("a", {})
            store.put_node("b", {})
        event = lambda: (store.put_node("lost", {}), getattr(store, kind)(*rest))  # noqa: E731
        with pytest.raises(ValueError, match=rule) as error, store.transaction():
            event()
        assert len(str(error.value)) < 400
        assert [node.id for node in store.nodes()] == ["a", "b"]
        assert store.position == 2


def test_changes_need_a_transaction_and_only_one(tmp_path) -> None:
    with Store(tmp_path / "s") as store:
        with pytest.raises(StoreError, match="changes need a transaction"):
            store.put_node("a", {})
        with (
            pytest.raises(StoreError, match="cannot be nested"),
            store.transaction(),
            store.transaction(),
        ):
            pass
        assert store.position == 0
    with pytest.raises(StoreError, match="is closed"):
        list(store.nodes())


WRITER = """
import os, signal, sys, time
from evergraph.graph.store import Store

def write(path, pipe):
    store = Store(path)
    while True:
        with store.transaction():
            for step in range(5):
                at = store.position
                if at % 7 == 6:
                    store.delete_node(f"node {at - 3}")
                else:
                    store.put_node(f"node {at}", {"text": "x" * (at * 37 % 500)})
        os.write(pipe, f"{store.position} ".encode())

for moment in range(int(sys.argv[2])):
    out, into = os.pipe()
    process = os.fork()
    if not process:
        write(sys.argv[1], into)
    os.close(into)
    heard = os.read(out, 100)
    time.sleep(moment * 0.37 % 1 * 0.02)  # another moment of a transaction each time
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    while more := os.read(out, 10000):
        heard += more
    os.close(out)
    with Store(sys.argv[1]) as store:
        print(heard.split()[-1].decode(), store.position, *(node.id[5:] for node in store.nodes()))
"""


def child(code: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_writer_loses_nothing_acknowledged_and_leaves_no_half_transaction(
    tmp_path,
) -> None:
    out, trouble = child(WRITER, tmp_path / "s", 25).communicate()
    assert not trouble
    lines = [[int(word) for word in line.split()] for line in out.splitlines()]
    assert len(lines) == 25
    for acknowledged, position, *nodes in lines:
        assert position >= acknowledged
        assert position % 5 == 0
        expected = {at for at in range(position) if at % 7 != 6}
        expected -= {at - 3 for at in range(6, position, 7)}
        assert set(nodes) == expected


FULL = """
import resource, sys
from evergraph.graph.store import Store, StoreError
store = Store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    while True:
        with store.transaction():
            for _ in range(20):
                store.put_node(store.position, {"text": "x" * 1000})
except StoreError as error:
    print(store.position, error, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with store.transaction():
    store.put_node("after", {})
print(store.position)
"""


def test_a_full_disk_is_one_line_and_the_store_goes_on_when_there_is_space(tmp_path) -> None:
    out, trouble = child(FULL, tmp_path / "s").communicate()
    assert not trouble
    first, last = out.splitlines()
    reached, message = first.split(" ", 1)
    assert message.startswith("cannot write ")
    assert int(reached) % 20 == 0
    assert int(reached) > 0
    assert int(last) == int(reached) + 1
    with Store(tmp_path / "s") as store:
        assert [node.id for node in store.nodes()] == [*range(int(reached)), "after"]


READER = """
import os, sys
from evergraph.graph.store import Store, StoreError
if os.geteuid() == 0:
    os.setuid(65534)  # whom the permissions of the folder concern
with Store(sys.argv[1], readonly=True) as store:
    print([node.id for node in store.nodes()])
try:
    Store(sys.argv[1])
except StoreError as error:
    print(error)
"""


def test_a_read_only_folder_can_be_read_and_says_why_it_cannot_be_written() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        with Store(folder / "s") as store, store.transaction():
            store.put_node("a", {})
        (folder / ".s.lock").unlink()
        (folder / "s").chmod(0o444)
        folder.chmod(0o555)
        out, trouble = child(READER, folder / "s").communicate()
        assert not trouble
        nodes, message = out.splitlines()
        assert nodes == "['a']"
        assert message.startswith("cannot open ")
        assert "make file and folder writable" in message
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_reading_only_refuses_changes_and_missing_files(tmp_path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        Store(tmp_path / "s", readonly=True)
    with Store(tmp_path / "s") as writer, Store(tmp_path / "s", readonly=True) as reader:
        with writer.transaction():
            writer.put_node("a", {})
            assert list(reader.nodes()) == []
        assert [node.id for node in reader.nodes()] == ["a"]
        with pytest.raises(StoreError, match="reading only"), reader.transaction():
            pass


def test_a_second_writer_gets_one_line(tmp_path) -> None:
    with Store(tmp_path / "s"):
        with pytest.raises(StoreError, match="is being written by another process"):
            Store(tmp_path / "s")
        code = "import sys; from evergraph.graph.store import Store; Store(sys.argv[1])"
        trouble = child(code, tmp_path / "s").communicate()[1]
        assert "StoreError" in trouble.splitlines()[-1]
    Store(tmp_path / "s").close()


def filled(path: Path, count: int = 400) -> None:
    with Store(path) as store, store.transaction():
        for at in range(count):
            store.put_node(at, {"text": f"{at} " * 50})


def test_damaged_foreign_and_newer_files_are_refused(tmp_path) -> None:
    text = tmp_path / "text"
    text.write_text("id,age\n" * 1000)
    with pytest.raises(StoreError, match="not a database; restore it from a copy"):
        Store(text)
    assert text.read_text().startswith("id,age")
    foreign = tmp_path / "foreign"
    db = sqlite3.connect(foreign)
    db.execute("CREATE TABLE other (x)")
    db.close()
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match="a database of another program"):
        Store(foreign)
    assert foreign.read_bytes() == before
    filled(tmp_path / "newer")
    db = sqlite3.connect(tmp_path / "newer")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="has version 99, and this evergraph knows versions up to"):
        Store(tmp_path / "newer")
    db = sqlite3.connect(tmp_path / "newer")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(StoreError, match=r"has version 1, .* knows version 2: make it again"):
        Store(tmp_path / "newer")
    filled(tmp_path / "torn")
    content = bytearray((tmp_path / "torn").read_bytes())
    content[8192:40960] = os.urandom(40960 - 8192)
    (tmp_path / "torn").write_bytes(content)
    with pytest.raises(StoreError, match="restore it from a copy"):
        Store(tmp_path / "torn")
    filled(tmp_path / "short")
    os.truncate(tmp_path / "short", 20000)
    with pytest.raises(StoreError, match="restore it from a copy"):
        Store(tmp_path / "short")
    filled(tmp_path / "plain")
    with pytest.raises(StoreError, match="directed=False, got directed=True"):
        Store(tmp_path / "plain", directed=True)
    (tmp_path / "empty").touch()
    with pytest.raises(StoreError, match="is empty"):
        Store(tmp_path / "empty", readonly=True)
    Store(tmp_path / "empty").close()


def test_a_backup_is_the_same_while_the_store_is_in_use(tmp_path) -> None:
    with Store(tmp_path / "s", directed=True) as store:
        with store.transaction():
            store.put_node("a", {"x": 1})
            store.put_edge("a", "b")
        store.backup(tmp_path / "copy")
        with store.transaction():
            store.put_node("b", {})
        with pytest.raises(StoreError, match="exists"):
            store.backup(tmp_path / "copy")
    with Store(tmp_path / "copy") as copy:
        assert (copy.position, copy.directed) == (2, True)
        assert [node.id for node in copy.nodes()] == ["a"]
        assert [edge[:2] for edge in copy.waiting()] == [("a", "b")]


def leftovers(path: Path, words: list[bytes]) -> set[bytes]:
    files = [path, *path.parent.glob(path.name + "-*")]
    content = b"".join(file.read_bytes() for file in files)
    return {word for word in words if word in content}


def test_no_byte_of_a_deleted_node_is_left(tmp_path) -> None:
    """Nodes come in random order, so that pages split and cells move about."""
    path = tmp_path / "s"
    order = [at * 7919 % 3000 for at in range(3000)]
    gone = order[100::29]
    names = {at: f"person-{at:05d}" for at in order}
    secrets = {at: f"secret<{at * 48271 % 65537:05d}>" for at in order}
    with Store(path) as store:
        for start in range(0, 3000, 100):
            with store.transaction():
                for at in order[start : start + 100]:
                    cells = {"text": "x" * (at % 300) + secrets[at]}
                    store.put_node(names[at], cells, label=f"class {at % 3}")
                    store.put_edge(names[at], names[at // 2])
                    store.put_edge(names[at], f"stranger of {names[at]}")
        words = [word.encode() for at in gone for word in (names[at], secrets[at])]
        store.checkpoint()
        assert leftovers(path, words) == set(words)
        with store.transaction():
            for at in gone:
                store.delete_node(names[at])
        store.purge()
        assert leftovers(path, words) == set()
        kept = [word.encode() for at in order[:100] for word in (names[at], secrets[at])]
        assert leftovers(path, kept) == set(kept)
    assert leftovers(path, words) == set()


def test_base_cells_stay_as_they_were(tmp_path):
    with Store(tmp_path / "graph.sqlite") as store:
        with store.transaction():
            store.put_nodes([("a", {"x": 1}, None, None), (2, {"x": 2}, None, None)], base=True)
            store.put_node("later", {"x": 3})
            for value in (5, 6):
                store.put_node("a", {"x": value})
        assert dict(store.bases()) == {2: {"x": 2}, "a": {"x": 1}}
        assert store.node("a").cells == {"x": 6}
        assert dict(store.bases("later")) == {}
        with store.transaction():
            store.delete_node("a")
        assert dict(store.bases()) == {2: {"x": 2}}


def test_labels_that_are_held_back_stay_apart_until_the_node_has_one(tmp_path):
    with Store(tmp_path / "graph.sqlite") as store:
        with store.transaction():
            store.put_nodes([(node, {}, None, None) for node in ("a", "b", "c", 7)])
            store.hold_back([("a", "test", "x"), ("b", "test", None), (7, "valid", "y")])
            store.hold_back([("c", "test", "secret-label")])
        assert [node.label for node in store.nodes()] == [None] * 4
        held = [(7, "valid", "y"), ("a", "test", "x"), ("b", "test", None)]
        assert list(store.held_back()) == [*held, ("c", "test", "secret-label")]
        with store.transaction():
            store.put_label("a", "z")
            store.put_label("c", None)
            store.delete_node(7)
        assert list(store.held_back()) == [("b", "test", None)]
        store.purge()
    assert b"secret-label" not in (tmp_path / "graph.sqlite").read_bytes()


def test_base_edges_are_those_that_were_not_changed(tmp_path):
    with Store(tmp_path / "graph.sqlite") as store:
        with store.transaction():
            store.put_nodes([(node, {}, None, None) for node in "abc"])
            pairs = [("a", "b", 2.0, 1.0), ("b", "c", None, None), ("c", "a", None, None)]
            store.put_edges([*pairs, ("c", "later", None, None)], base=True)
        with store.transaction():
            store.put_edge("b", "a", 2.0)  # the same
            store.put_edge("b", "c", 3.0)
            store.delete_edge("a", "c")
            store.put_edge("a", "c")
            store.put_edge("a", "other")
            store.put_node("later", {})
        base = {(e.source, e.target) for e in store.base_edges()}
        assert base == {("a", "b"), ("c", "later")}
        assert store.base_counts() == [2, 0]
        others = {(e.source, e.target) for e in store.base_edges(False)}
        assert others == {("b", "c"), ("a", "c"), ("a", "other")}
        with store.transaction():
            store.put_node("a", {"n": 1})
            store.rebase()
            store.put_label("b", "old")
            store.rebase()
            store.put_label("b", "new")
        assert list(store.base_labels()) == [("b", "old")]
        assert store.base_counts() == [5, 1]
        with store.transaction():
            store.put_label("b", None)
        assert list(store.base_labels()) == []
        assert len(list(store.base_edges())) == 5
        assert dict(store.bases()) == {"a": {"n": 1}, "b": {}, "c": {}, "later": {}}
