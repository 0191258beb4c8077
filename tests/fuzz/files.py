"""Folders of tables and of recordings, malformed in all ways."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st

from evergraph.apps.action.sources import read_folder as read_recordings
from evergraph.datasets.folder import read_folder
from evergraph.graph import SparseRows
from evergraph.stream import node_continuum
from tests.fuzz.batches import usual
from tests.fuzz.invariants import refusal

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
CELLS = (
    "", " ", "0", "1", "2", "3", "-1", "1.5", "nan", "inf", "-inf", "1e400", "1e39", "a", "b",
    "train", "test", "val", "0x10", "1_000", "None", "true", "NaN", "٣", "\u200b", '"', "'", ",",
    "a b a", "0 1 2", "-3 4", "99999999999999999999", "9" * 400, "\x00", "ü", "[1]", "{}",
)  # fmt: skip
COLUMNS = ("id", "label", "time", "split", "words", "x0", "x1", "x01", "x", "", " id", "ID", "w")
BYTES = (b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\n\n", b'"', b"\xe9", b",,,,", b"#")


@st.composite
def content(draw, header, rows):
    """A table as CSV: usually well formed, then damaged."""
    lines = [header, *rows]
    for _ in range(draw(st.integers(0, 2))):
        row = draw(st.integers(0, len(lines) - 1))
        cells = list(lines[row]) or [""]
        place = draw(st.integers(0, len(cells) - 1))
        change = draw(st.sampled_from(("cell", "cell", "cell", "more", "fewer", "twice", "column")))
        if change == "cell":
            cells[place] = draw(st.sampled_from(CELLS))
        elif change == "more":
            cells.append(draw(st.sampled_from(CELLS)))
        elif change == "fewer":
            del cells[place]
        elif change == "column":
            cells[place] = draw(st.sampled_from(COLUMNS))
        if change == "twice":
            lines.insert(row, lines[row])
        else:
            lines[row] = cells
    if draw(usual(st.just(False), st.just(True))):
        lines = lines[: draw(st.integers(0, len(lines)))]
    separator = draw(usual(st.just(","), st.sampled_from((";", "\t"))))
    text = "\n".join(separator.join(line) for line in lines).encode("utf-8", "surrogatepass")
    if text and draw(usual(st.just(False), st.just(True))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from(BYTES)) + text[place:]
    return text


@st.composite
def tables(draw):
    """Files of a folder by name."""
    size = draw(st.integers(1, 8))
    bags = draw(st.booleans())
    header = ["id", "label", "words"] if bags else ["id", "label", "x0", "x1"]
    features = ["red green"] if bags else ["0.5", "-1"]
    nodes = [[str(i), "ab"[i % 2], *features] for i in range(size)]
    if draw(st.booleans()):
        header.append("split")
        nodes = [[*row, "train" if i % 2 else "test"] for i, row in enumerate(nodes)]
    if draw(st.booleans()):
        header.append("time")
        nodes = [[*row, str(i)] for i, row in enumerate(nodes)]
    edges = [[str(i), str((i + 1) % size)] for i in range(size)]
    names = ["source", "target"]
    if draw(st.booleans()):
        names, edges = [*names, "weight"], [[*row, "2"] for row in edges]
    found = {"nodes.csv": draw(content(header, nodes)), "edges.csv": draw(content(names, edges))}
    if draw(usual(st.just(False), st.just(True))):
        del found[draw(st.sampled_from(sorted(found)))]
    if draw(usual(st.just(False), st.just(True))):
        found["nodes.jsonl"] = draw(
            st.sampled_from((b"{}", b"[1]", b'{"id": 1, "x0": NaN}', b'{"id": {}}', b"{", b""))
        )
        found.pop("nodes.csv", None)
    return found


def written(files, folder):
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder


def table_trial(files):
    """A folder is read and all of it makes sense, or it is refused in the package's own words."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        read = []
        if refusal(lambda: read.append(read_folder(written(files, Path(name))))) is not None:
            return "refused"
    data = read[0]
    features = data.graph.features
    values = features.values if isinstance(features, SparseRows) else features
    assert bool(values.isfinite().all()), "features are not finite"
    assert data.graph.weight is None or bool(data.graph.weight.isfinite().all())
    edges = data.graph.edges
    assert not edges.numel() or 0 <= int(edges.min()) <= int(edges.max()) < len(features)
    if refusal(lambda: next(iter(node_continuum(data)), None)) is not None:
        return "no stream"
    return "read"


@st.composite
def recordings(draw):
    """One or two recordings, and a rate to read them with."""
    found = {}
    for number in range(draw(st.integers(1, 2))):
        size = draw(st.integers(0, 30))
        header = ["time", "arm.x", "arm.y", "activity"]
        rows = [
            [f"{i * 0.04:.2f}", f"{np.sin(i):.3f}", "1", "walk" if i < 15 else "sit"]
            for i in range(size)
        ]
        found[f"walk-1-{number}.csv"] = draw(content(header, rows))
    return found, draw(usual(st.just(25.0), st.sampled_from((1.0, 1e-9, 1e9, 0.0, -1.0))))


def recording_trial(case):
    """Recordings are read and finite, or refused in the package's own words."""
    files, rate = case
    with tempfile.TemporaryDirectory(dir=SCRATCH) as name:
        read = []
        folder = written(files, Path(name))
        if refusal(lambda: read.append(read_recordings(folder, rate))) is not None:
            return "refused"
    for recording in read[0].recordings:
        assert bool(torch.as_tensor(recording.samples).isfinite().all()), "samples are not finite"
    return "read"
