"""Published layouts: files written here in the exact form, read back, and damaged."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from evergraph.datasets import DatasetCorrupt, load
from evergraph.datasets.catalog import SOURCES
from evergraph.datasets.formats import read_linqs, read_npz, read_ogb, read_time_stream
from evergraph.datasets.planetoid import read_planetoid
from evergraph.graph.rows import SparseRows

RNG = np.random.default_rng(0)


def dense(features: torch.Tensor | SparseRows) -> torch.Tensor:
    return features.to_dense() if isinstance(features, SparseRows) else features


# LINQS


def write_linqs(folder: Path, words: np.ndarray, classes: list[str]) -> list[tuple[int, int]]:
    folder.mkdir(parents=True, exist_ok=True)
    ids = RNG.permutation(10**6)[: len(words)]
    lines = [
        "\t".join([str(node), *map(str, row), name])
        for node, row, name in zip(ids, words.tolist(), classes, strict=True)
    ]
    (folder / "cora.content").write_text("\n".join(lines) + "\n")
    pairs = [(int(a), int(b)) for a, b in RNG.integers(0, len(words), (50, 2))]
    (folder / "cora.cites").write_text("".join(f"{ids[a]}\t{ids[b]}\n" for a, b in pairs))
    return pairs


def test_linqs_round_trip(tmp_path: Path) -> None:
    words = RNG.integers(0, 2, (1510, 6))
    classes = [("Theory", "Case_Based", "Genetics")[index] for index in RNG.integers(0, 3, 1510)]
    pairs = write_linqs(tmp_path / "cora_linqs", words, classes)
    dataset = load("cora", tmp_path, verify=False)
    graph = dataset.graph
    assert np.array_equal(dense(graph.features).numpy(), words)
    assert graph.class_names == ("Case_Based", "Genetics", "Theory")
    assert graph.labels is not None
    assert [graph.class_names[label] for label in graph.labels.tolist()] == classes
    assert graph.edges.T.tolist() == [[citing, cited] for cited, citing in pairs]
    assert not graph.directed
    assert dataset.train.tolist() == [*range(140), *range(500, 1500)]
    assert dataset.test.tolist() == [*range(200, 500)]
    assert dataset.name == graph.name == "cora"


@pytest.mark.parametrize(
    ("content", "cites", "message"),
    [
        ("1\t0\t1\ta\n2\t0\tb\n", "", "cora.content, line 2: expected an id, 2 words .* got 1"),
        ("1\t0\t1\ta\n1\t0\t1\ta\n", "", "line 2: an id must be unique, got 1 again"),
        ("1\t0\t2\ta\n", "", "line 1: a word must be 0 or 1, got 2"),
        ("garbage\n", "", "line 1: expected an id, some words"),
        ("1\t0\t1\ta\n", "", "needs at least 1500 nodes, but .* has 1"),
        (None, "0\t1\n0\n", "cora.cites, line 2: expected two ids, got '0'"),
        (None, "0\t1\n5\t9999\n", "line 2: paper 9999 is not in the content file"),
    ],
)
def test_bad_linqs_files(tmp_path: Path, content: str | None, cites: str, message: str) -> None:
    enough = "".join(f"{node}\t0\t1\ta\n" for node in range(1500))
    (tmp_path / "cora.content").write_text(enough if content is None else content)
    (tmp_path / "cora.cites").write_text(cites)
    with pytest.raises(ValueError, match=message):
        read_linqs(tmp_path)


# Planetoid


class Planetoid:
    """A small data set in Planetoid's form, with a gap in test.index as Citeseer has it."""

    first, known, classes, width = 6, 520, 3, 9
    test_index = (521, 520, 524, 522)  # 523 is isolated

    def __init__(self) -> None:
        self.allx = (RNG.random((self.known, self.width)) < 0.3) * 0.5
        self.tx = (RNG.random((4, self.width)) < 0.5) * 0.25
        self.ally = np.eye(self.classes, dtype=np.int32)[RNG.integers(0, 3, self.known)]
        self.ally[515] = 0  # no label at all
        self.ty = np.eye(self.classes, dtype=np.int32)[RNG.integers(0, 3, 4)]
        self.graph: defaultdict[int, list[int]] = defaultdict(list)
        for source, target in RNG.integers(0, self.known, (40, 2)).tolist():
            self.graph[source].append(target)
            self.graph[target].append(source)

    def write(self, folder: Path, protocol: int = 2, **changes: object) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        parts: dict[str, object] = {
            "x": sp.csr_matrix(self.allx[: self.first].astype(np.float32)),
            "y": self.ally[: self.first],
            "tx": sp.csr_matrix(self.tx.astype(np.float32)),
            "ty": self.ty,
            "allx": sp.csr_matrix(self.allx.astype(np.float32)),
            "ally": self.ally,
            "graph": self.graph,
        } | changes
        for part, value in parts.items():
            (folder / f"ind.citeseer.{part}").write_bytes(pickle.dumps(value, protocol))
        index = "".join(f"{node}\n" for node in self.test_index)
        (folder / "ind.citeseer.test.index").write_text(index)
        return folder


@pytest.mark.parametrize("protocol", [2, 4])
def test_planetoid_round_trip(tmp_path: Path, protocol: int) -> None:
    raw = Planetoid()
    raw.write(tmp_path / "CiteSeer" / "raw", protocol)
    dataset = load("citeseer", tmp_path, verify=False)
    graph = dataset.graph
    features = np.zeros((525, raw.width))
    labels = np.full(525, -1)
    for node in range(raw.known):
        features[node] = raw.allx[node]
        labels[node] = raw.ally[node].argmax() if raw.ally[node].any() else -1
    for row, node in enumerate(raw.test_index):
        features[node] = raw.tx[row]
        labels[node] = raw.ty[row].argmax()
    assert np.allclose(dense(graph.features).numpy(), features)
    assert graph.labels is not None
    assert graph.labels.tolist() == labels.tolist()
    assert (labels[515], labels[523]) == (-1, -1)
    expected = sorted((s, t) for s, targets in raw.graph.items() for t in targets)
    assert sorted(map(tuple, graph.edges.T.tolist())) == expected


def test_planetoid_splits(tmp_path: Path) -> None:
    raw = Planetoid()
    raw.ally[515, 0] = 1
    folder = raw.write(tmp_path)
    paper, public = (read_planetoid(folder, "citeseer", kind) for kind in ("paper", "planetoid"))
    assert paper.train.tolist() == [*range(6), 520, 521, 522, 524]
    assert paper.test.tolist() == [*range(6, 506)]
    assert public.train.tolist() == [*range(6)]
    assert public.test.tolist() == [520, 521, 522, 524]
    with pytest.raises(ValueError, match="'paper' or 'planetoid', got 'other'"):
        read_planetoid(folder, "citeseer", "other")  # type: ignore[arg-type]


class Evil:
    """Runs a command when an ordinary reader opens the pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = Planetoid().write(tmp_path / "raw", graph=Evil(mark))
    with pytest.raises(
        ValueError, match=r"ind\.citeseer\.graph is not a Planetoid file: only .*system"
    ):
        read_planetoid(folder, "citeseer")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ally": np.array([Ellipsis])}, "ally is not a Planetoid file: .*numbers"),
        ({"graph": [1, 2]}, "graph is not a Planetoid file: expected dict, got list"),
        ({"allx": np.zeros((3, 3))}, "allx is not a Planetoid file: expected Csr"),
        ({"ty": np.eye(3, dtype=np.int32)}, r"must fit together, .* \[520, 3\]"),
    ],
)
def test_planetoid_files_of_another_kind(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_planetoid(Planetoid().write(tmp_path, **changes), "citeseer")


def test_truncated_planetoid_files(tmp_path: Path) -> None:
    folder = Planetoid().write(tmp_path)
    path = folder / "ind.citeseer.allx"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"allx is not a Planetoid file: .* fetch it again"):
        read_planetoid(folder, "citeseer")
    Planetoid().write(tmp_path)
    (folder / "ind.citeseer.test.index").write_text("520\nfive\n")
    with pytest.raises(ValueError, match=r"one node number per line: .*five"):
        read_planetoid(folder, "citeseer")


# npz


def npz_arrays() -> tuple[sp.csr_matrix, sp.csr_matrix, np.ndarray]:
    attributes = sp.random(60, 11, 0.3, "csr", dtype=np.float32, rng=RNG)
    adjacency = sp.random(60, 60, 0.05, "csr", dtype=np.float32, rng=RNG)
    return attributes, adjacency, np.repeat(np.arange(3), 20)


def write_npz(
    path: Path, drop: str = "", **extra: np.ndarray
) -> tuple[sp.csr_matrix, sp.csr_matrix, np.ndarray]:
    attributes, adjacency, labels = npz_arrays()
    arrays: dict[str, np.ndarray] = {"labels": labels}
    for prefix, matrix in (("attr", attributes), ("adj", adjacency)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{prefix}_{part}"] = np.asarray(getattr(matrix, part))
    arrays["node_names"] = np.array(["a", None], dtype=object)  # some of the real files have these
    arrays.pop(drop, None)
    arrays |= extra
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return attributes, adjacency, labels


def test_npz_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz"
    attributes, adjacency, labels = write_npz(path)
    dataset = load("amazon-photo", tmp_path, verify=False, seed=1)
    graph = dataset.graph
    assert np.array_equal(dense(graph.features).numpy(), attributes.toarray())
    assert graph.labels is not None
    assert graph.labels.tolist() == labels.tolist()
    coordinates = adjacency.tocoo()
    pairs = sorted(zip(coordinates.row.tolist(), coordinates.col.tolist(), strict=True))
    assert sorted(map(tuple, graph.edges.T.tolist())) == pairs
    assert not graph.directed
    assert torch.bincount(graph.labels[dataset.train]).tolist() == [12, 12, 12]
    assert torch.bincount(graph.labels[dataset.test]).tolist() == [4, 4, 4]
    assert torch.equal(load("amazon-photo", tmp_path, verify=False, seed=1).train, dataset.train)
    assert not torch.equal(
        load("amazon-photo", tmp_path, verify=False, seed=2).train, dataset.train
    )


FOREIGN = "must hold '{}' as published, .* nodes, .* but holds {}.*verify=False"


@pytest.mark.parametrize("name", ["amazon-photo", "coauthor-cs", "flickr"])
def test_a_foreign_npz_file_is_refused(tmp_path: Path, name: str) -> None:
    source = SOURCES[name]
    write_npz(tmp_path / source.folder / source.files[0])
    with pytest.raises(DatasetCorrupt, match=FOREIGN.format(name, "60 nodes, 11 features and 3")):
        load(name, tmp_path)


def test_a_damaged_npz_file_is_refused(tmp_path: Path) -> None:
    """One wrong byte in the middle, where the file can still be opened."""
    path = tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz"
    write_npz(path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as members:
        name = members.getinfo("labels.npy")
    content[name.header_offset + name.file_size] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"amazon_electronics_photo.npz must hold .*CRC"):
        load("amazon-photo", tmp_path, verify=False)


@pytest.mark.parametrize("name", ["labels", "adj_indices", "attr_indices", "domain"])
def test_npz_numbers_are_not_truncated(tmp_path: Path, name: str) -> None:
    write_npz(tmp_path / "graph.npz", **{name: np.full(60, 0.7)})
    with pytest.raises(ValueError, match=f"{name} must be integers, got float64"):
        read_npz(tmp_path / "graph.npz", "bad")


def test_bad_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    write_npz(path, drop="adj_indices")
    with pytest.raises(ValueError, match=r"must hold attr_.*adj_indices.*fetch it again"):
        read_npz(path, "bad")
    write_npz(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"must hold attr_.*fetch it again"):
        read_npz(path, "bad")


def test_npz_with_masks_domains_and_labels_from_one(tmp_path: Path) -> None:
    masks = np.zeros((2, 2, 60), dtype=bool)  # train and test, of two splits
    masks[0, 0, :5] = masks[0, 1, 10:20] = masks[1, 0, 30:34] = masks[1, 1, 40:] = True
    labels, domain = np.repeat([1, 2, -1], 20), np.repeat([0, 1], 30)
    write_npz(
        tmp_path / "graphs" / "flickr.npz",
        labels=labels, domain=domain, train_masks=masks[0, :, :], test_masks=masks[1, :, :],
    )  # fmt: skip
    with pytest.raises(ValueError, match="test needs nodes with a label, but node 40 has none"):
        load("flickr", tmp_path, verify=False, seed=1)
    masks[1, 1, 40:] = False
    masks[1, 1, 5] = True
    write_npz(
        tmp_path / "graphs" / "flickr.npz",
        labels=labels, domain=domain, train_masks=masks[0], test_masks=masks[1],
    )  # fmt: skip
    first, second = (load("flickr", tmp_path, verify=False, seed=seed) for seed in (2, 3))
    assert (first.train.tolist(), first.test.tolist()) == ([*range(5)], [*range(30, 34)])
    assert (second.train.tolist(), second.test.tolist()) == ([*range(10, 20)], [5])
    assert first.graph.labels is not None
    assert first.graph.labels.tolist() == [0] * 20 + [1] * 20 + [-1] * 20
    assert first.graph.domain is not None
    assert first.graph.domain.tolist() == domain.tolist()
    drawn = load("flickr", tmp_path, verify=False, seed=2, split="random")
    assert (len(drawn.train), len(drawn.test)) == (24, 8)


def test_bad_npz_masks(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    for wrong in (np.ones((60, 2), dtype=bool), np.ones((2, 60)), np.ones(60, dtype=bool)):
        write_npz(path, train_masks=wrong, test_masks=wrong)
        with pytest.raises(ValueError, match=r"must be bool of shape \(splits, 60\), got"):
            read_npz(path, "bad")


# Time streams


def write_time_stream(folder: Path, **files: str) -> Path:
    """Seven nodes in three steps: 4 has no label, 6 has no edge."""
    (folder / "stream_edges").mkdir(parents=True, exist_ok=True)
    content = {
        "labels": "0 1\n1 0\n2 1\n3 0\n5 2\n6 2\n",
        "stream_edges/0": "0\t1\n1\t2\n2\t1\n",
        "stream_edges/1": "3\t0\n3\t3\n3\t1\n",
        "stream_edges/2": "4\t5\n0\t2\n",
        "train_nodes": "0\n2\n5\n6\n",
        "val_nodes": "1\n",
        "test_nodes": "3\n",
    }
    for name, text in (content | files).items():
        (folder / name).write_text(text)
    return folder


def test_time_stream_round_trip(tmp_path: Path) -> None:
    dataset = read_time_stream(write_time_stream(tmp_path), "toy")
    graph = dataset.graph
    assert graph.labels is not None
    assert graph.time is not None
    assert graph.edge_time is not None
    assert graph.labels.tolist() == [1, 0, 1, 0, -1, 2, 2]
    assert graph.edges.T.tolist() == [
        [0, 1], [1, 2], [2, 1], [3, 0], [3, 3], [3, 1], [4, 5], [0, 2],
    ]  # fmt: skip
    assert graph.edge_time.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert graph.time.tolist() == [0, 0, 0, 1, 2, 2, 3], "node 6 never arrives"
    assert not graph.directed
    assert (dataset.train.tolist(), dataset.test.tolist()) == ([0, 2, 5], [3])


def test_time_stream_features_against_the_dumbest_loop(tmp_path: Path) -> None:
    graph = read_time_stream(write_time_stream(tmp_path), "toy").graph
    features = dense(graph.features)
    near = {0: [1], 1: [0, 2], 2: [1], 3: [0, 1], 4: [5], 5: [4], 6: []}  # in the first step
    for node, neighbors in near.items():
        expected = np.zeros(64)
        for neighbor in neighbors:
            mixed = (neighbor + 0x9E3779B97F4A7C15) % 2**64
            mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
            mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
            mixed ^= mixed >> 31
            expected[(mixed >> 1) % 63] += 1 if mixed % 2 else -1
        expected /= np.sqrt(max(len(neighbors), 1))
        expected[63] = np.log(1 + len(neighbors))
        np.testing.assert_allclose(features[node].numpy(), expected, rtol=1e-6)


def test_time_stream_features_do_not_see_later_edges(tmp_path: Path) -> None:
    one = read_time_stream(write_time_stream(tmp_path), "toy").graph
    later = write_time_stream(tmp_path, **{"stream_edges/2": "4\t5\n0\t2\n1\t3\n2\t3\n"})
    other = read_time_stream(later, "toy").graph
    assert len(other.edges.T) == len(one.edges.T) + 2
    assert torch.equal(dense(one.features), dense(other.features))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("labels", "0 a\n", "labels must hold integers between blanks"),
        ("labels", "0\n", "labels must have .* rows and 2 columns, got 1 and 1"),
        ("labels", "0 -3\n", "labels must hold integers of at least 0, got the smallest -3"),
        ("labels", "1000000000000 1\n", "without large gaps, got node 1000000000000 among 7 nodes"),
        ("train_nodes", "9\n", "train_nodes must hold nodes with a label or an edge, got 9"),
        ("train_nodes", "4\n", "train needs nodes with a label, but node 4 has none"),
        ("stream_edges/7", "0 1\n", "named 0, 1, 2, ..., got 0, 1, 2, 7"),
    ],
)
def test_bad_time_streams(tmp_path: Path, file: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_time_stream(write_time_stream(tmp_path, **{file: text}), "bad")


def test_time_streams_are_found_by_name(tmp_path: Path) -> None:
    folder = write_time_stream(tmp_path / "streams" / "arxiv")
    for step in range(3, 13):
        (folder / "stream_edges" / str(step)).write_text(f"{step} {step + 1}\n")
    dataset = load("arxiv-stream", tmp_path, verify=False)
    assert dataset.name == dataset.graph.name == "arxiv-stream"
    assert dataset.graph.time is not None
    assert int(dataset.graph.time.max()) == 12


# OGB


def write_ogb(folder: Path) -> dict[str, np.ndarray]:
    tables = {
        "raw/edge": RNG.integers(0, 30, (70, 2)),
        "raw/node-feat": RNG.normal(size=(30, 5)).round(6),
        "raw/node-label": RNG.integers(0, 4, (30, 1)),
        "raw/node_year": RNG.integers(1990, 2021, (30, 1)),
        "raw/num-node-list": np.array([[30]]),
        "raw/num-edge-list": np.array([[70]]),
        "split/time/train": np.arange(0, 15)[:, None],
        "split/time/valid": np.arange(15, 20)[:, None],
        "split/time/test": np.arange(20, 30)[:, None],
    }
    for name, table in tables.items():
        write_csv(folder / f"{name}.csv.gz", table)
    return tables


def write_csv(path: Path, table: np.ndarray) -> None:
    text = io.StringIO()
    np.savetxt(text, table, fmt="%d" if table.dtype.kind == "i" else "%.6f", delimiter=",")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.getvalue().encode()))


def test_ogb_round_trip(tmp_path: Path) -> None:
    tables = write_ogb(tmp_path / "ogbn_arxiv")
    dataset = load("ogbn-arxiv", tmp_path, verify=False)
    graph = dataset.graph
    assert graph.directed
    assert np.allclose(dense(graph.features).numpy(), tables["raw/node-feat"])
    assert graph.edges.T.tolist() == tables["raw/edge"].tolist()
    assert graph.labels is not None
    assert graph.time is not None
    assert graph.labels.tolist() == tables["raw/node-label"][:, 0].tolist()
    assert graph.time.tolist() == tables["raw/node_year"][:, 0].tolist()
    assert dataset.train.tolist() == [*range(15)]
    assert dataset.test.tolist() == [*range(20, 30)]


def test_a_foreign_ogb_folder_is_refused(tmp_path: Path) -> None:
    write_ogb(tmp_path / "ogbn_arxiv")
    with pytest.raises(DatasetCorrupt, match=FOREIGN.format("ogbn-arxiv", "30 nodes, 5 features")):
        load("ogbn-arxiv", tmp_path)


def test_bad_ogb_files(tmp_path: Path) -> None:
    write_ogb(tmp_path)
    write_csv(tmp_path / "raw" / "node-label.csv.gz", np.full((30, 1), 1.5))
    with pytest.raises(ValueError, match=r"node-label.* must hold integers, or nan .* got 1\.5"):
        read_ogb(tmp_path)
    write_ogb(tmp_path)
    features = tmp_path / "raw" / "node-feat.csv.gz"
    whole = features.read_bytes()
    features.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match=r"node-feat.* truncated or damaged"):
        read_ogb(tmp_path)
    features.write_bytes(b"plain text")
    with pytest.raises(ValueError, match=r"node-feat.* truncated or damaged"):
        read_ogb(tmp_path)
    features.write_bytes(gzip.compress(b"1.0,2.0\n3.0,x\n"))
    with pytest.raises(ValueError, match=r"node-feat.* must hold numbers .*'x'"):
        read_ogb(tmp_path)
    features.write_bytes(gzip.compress(b"1.0,2.0\n"))
    with pytest.raises(ValueError, match=r"node-feat.* must have 30 rows .* got 1 and 2"):
        read_ogb(tmp_path)
    features.write_bytes(whole)
    write_csv(tmp_path / "raw" / "edge.csv.gz", np.full((70, 2), 30))
    with pytest.raises(ValueError, match=r"edge 0 goes from node 30 to node 30, .* 0 to 29"):
        read_ogb(tmp_path)
