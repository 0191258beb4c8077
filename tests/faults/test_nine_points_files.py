"""The nine attacks that version 7247736 did not withstand: 6 to 9, on runs, files and memory."""

import copy
import gc
import json
import resource
import signal
import struct
import sys
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from nine_points import (
    batch,
    call,
    checkpoint,
    child,
    invoke,
    learner,
    module,
    output,
    recognizer,
    recording,
)

from evergraph import ClassBalanced, Learner, Reservoir

RUN = ["run", "--dataset", "generated", "--method", "analytic", "--seeds", "1", "--json"]
LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")

# -- 6. runs --------------------------------------------------------------------------------


def test_6_an_out_that_is_a_file_is_refused_before_the_run(tmp_path):
    letter, checkpoint = tmp_path / "letter", tmp_path / "checkpoint"
    letter.write_text("dear all")
    shown = invoke(*RUN, "--out", letter, "--checkpoint", checkpoint, "--every", "0")
    assert shown.exit_code == 2, shown.output
    assert not checkpoint.exists()  # nothing was run


def test_6_a_foreign_file_is_not_overwritten_by_a_checkpoint(tmp_path):
    letter = tmp_path / "letter"
    letter.write_text("dear all")
    shown = invoke(*RUN, "--out", tmp_path / "out", "--checkpoint", letter)
    assert shown.exit_code == 2, shown.output
    assert letter.read_text() == "dear all"


def run_until_told(path):
    """A run that says when it has learned three batches, and waits there for a line."""
    from evergraph.cli import app

    learn, calls = Learner.observe, iter(range(10**9))

    def observe(self, items):
        learn(self, items)
        if next(calls) == 2:
            print("learning", flush=True)
            sys.stdin.readline()

    Learner.observe = observe
    app([*RUN, "--checkpoint", path, "--every", "1e9", "--out", f"{path}-out"])


@contextmanager
def running(path):
    with child(run_until_told, path) as process:
        try:
            assert process.stdout.readline() == "learning\n", process.stderr.read()
            yield process
        finally:
            process.kill()


def test_6_sigterm_saves_what_was_learned(tmp_path):
    with running(tmp_path / "c") as process:
        process.send_signal(signal.SIGTERM)
        process.communicate("\n", timeout=120)
    assert process.returncode == 143
    _, values = checkpoint.read_checkpoint(tmp_path / "c")
    assert values["position"] == 3


def test_6_a_second_writer_of_a_checkpoint_is_refused(tmp_path):
    with running(tmp_path / "c") as process:
        shown = invoke(*RUN, "--checkpoint", tmp_path / "c", "--out", tmp_path / "out")
        assert shown.exit_code == 2, shown.output
        process.communicate("\n", timeout=120)
    assert process.returncode == 0


# -- 7. odd input ---------------------------------------------------------------------------


def load_with_little_memory(folder):
    from evergraph.datasets import load

    load(Path(folder) / "usual")  # what libraries reserve at their first use is not counted
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
    dataset = load(folder)
    print(json.dumps(dataset.graph.labels.tolist()))


@LINUX
def test_7_a_label_of_a_billion_costs_no_memory(tmp_path):
    wanted = [0, 10**9] * 10
    for folder, labels in ((tmp_path, wanted), (tmp_path / "usual", [0, 1] * 10)):
        folder.mkdir(exist_ok=True)
        rows = [f"{node},{label},1.0" for node, label in enumerate(labels)]
        (folder / "nodes.csv").write_text("\n".join(["id,label,x0", *rows]))
        (folder / "edges.csv").write_text("source,target\n0,1\n")
    assert output(load_with_little_memory, tmp_path) == wanted


def test_7_a_picture_that_claims_billions_of_pixels_is_refused(tmp_path):
    pytest.importorskip("cv2")
    read_image = module(
        "evergraph.apps.matching.images", "evergraph.applications.matching.images"
    ).read_image
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    content = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ValueError, match="60,000"):
        read_image(tmp_path / "p.png")


def test_7_an_activity_may_be_called_like_markup(tmp_path):
    lesson = recording(tmp_path / "run.csv", "[/oops]", 2)
    learned = invoke("action", "learn", recognizer(tmp_path)[0], lesson, "--out", tmp_path / "new")
    assert learned.exit_code == 0, learned.exception
    assert "[/oops]" in learned.output


@pytest.mark.parametrize(
    "wrong",
    [
        {"y": torch.tensor([0.0, 1.5])},
        {"edge_index": torch.tensor([[0.2], [1.0]])},
        {"train_mask": torch.tensor([0, 1]), "test_mask": torch.tensor([1, 0])},
        {"train_mask": torch.tensor([0]), "test_mask": torch.tensor([1])},
    ],
    ids=["labels", "edges", "numbers as masks", "indices as masks"],
)
def test_7_pyg_values_are_not_truncated(wrong):
    from evergraph.datasets import from_pyg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = pytest.importorskip("torch_geometric.data").Data
    good = {"x": torch.eye(2), "edge_index": torch.tensor([[0], [1]]), "y": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        from_pyg(data(**(good | wrong)))


# -- 8. memory ------------------------------------------------------------------------------


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fill(count):
    """What a memory of small items counts, and by how much the process has grown."""
    memory = Reservoir(int(count))
    memory.add(batch())  # what is made once is there before
    before, counted = resident(), memory.nbytes
    for seed in range(int(count) // 100):
        memory.add(batch(seed, size=100))
    print(json.dumps([memory.nbytes - counted, resident() - before]))


@LINUX
def test_8_a_memory_takes_what_it_counts():
    counted, taken = output(fill, 40_000)
    assert taken < 3 * counted


def calls_per_item(classes, capacity, items=50):
    """Calls of any function while a full memory is offered items of all classes."""
    memory = ClassBalanced(capacity)
    for seed in range(2 * capacity // 1000):
        memory.add(batch(seed, classes, size=1000))
    offered = [item.compact() for item in batch(99, classes, size=items)]
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for item in offered:
            memory.add(item)
    finally:
        sys.setprofile(None)
    assert len(memory) == capacity
    return count / items


def test_8_the_work_per_item_does_not_grow_with_classes_and_items():
    few, many = calls_per_item(10, 500), calls_per_item(1000, 4000)
    assert many < 2 * few


# -- 9. bytes -------------------------------------------------------------------------------


def test_9_the_bytes_of_save_are_a_function_of_the_state(tmp_path):
    made, written = learner(), set()
    for number in range(12):
        copy.deepcopy(made).save(tmp_path / str(number))
        written.add((tmp_path / str(number)).read_bytes())
    assert len(written) == 1


def test_9_foreign_content_under_the_name_of_a_data_set_is_refused(tmp_path):
    from evergraph.datasets import load

    path = tmp_path / "Photo" / "raw" / "amazon_electronics_photo.npz"
    path.parent.mkdir(parents=True)
    matrix = {"data": np.ones(30, np.float32), "indices": np.arange(30), "indptr": np.arange(31)}
    arrays = {f"{kind}_{part}": a for kind in ("attr", "adj") for part, a in matrix.items()}
    np.savez(path, attr_shape=(30, 30), adj_shape=(30, 30), labels=np.arange(30) % 3, **arrays)
    with pytest.raises(ValueError, match="amazon"):
        load("amazon-photo", tmp_path)


if __name__ == "__main__":
    call()
