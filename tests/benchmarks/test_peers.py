"""The benchmark against PyG's GCN gives both sides the same items, memory and steps."""

import pytest

from benchmarks.peers import BLOCK, GCN, WARM, compare, side, storages
from evergraph.datasets import load

pytest.importorskip("torch_geometric")


def test_both_sides_learn_the_same_stream():
    dataset = load("generated")
    (ours, fgn), (theirs, gcn) = (side(name, dataset, 0) for name in ("fgn", "gcn"))
    assert isinstance(gcn.model, GCN)
    assert fgn.training == gcn.training
    assert type(fgn.memory) is type(gcn.memory)
    assert fgn.memory is not gcn.memory
    assert [b.node.tolist() for b in ours] == [b.node.tolist() for b in theirs]


def test_a_gcn_learns_the_same_in_both_storages():
    """Sparse rows and dense features are two ways to hold the same items."""
    outputs = []
    for stored in storages(load("generated")):
        stream, learner = side("gcn", stored, 0)
        batches = list(stream)[::20]  # of several classes
        for batch in batches:
            learner.observe(batch)
        outputs.append(learner.output(batches[0]))
    one, other = outputs
    assert (one - other).abs().max() < 1e-3 < 0.01 < one.abs().max()


def test_ratios_are_of_times_per_item():
    dataset = load("generated")
    row = compare(dataset, turns=2)
    batches = list(side("fgn", dataset, 0)[0])
    assert row["items"] == sum(map(len, batches[WARM : WARM + 2 * BLOCK]))
    for clock in ("cpu", "wall"):
        assert row[f"fgn_over_gcn_{clock}"] > 0
        assert row[f"gcn_ms_per_item_{clock}"] > 0
