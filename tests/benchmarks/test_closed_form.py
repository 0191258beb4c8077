"""The benchmark of the closed form measures what it says."""

from benchmarks.closed_form import adding, learned
from evergraph.datasets import load


def test_the_reference_learns_the_same_classifier():
    dataset = load("generated")
    (cpu, wall), accuracy = learned(dataset)
    (old_cpu, old_wall), reference = learned(dataset, reference=True)
    assert accuracy == reference > 0.5
    assert min(cpu, wall, old_cpu, old_wall) > 0


def test_rows_are_those_of_the_stream():
    dataset = load("generated")
    found = adding(dataset, repetitions=1)
    assert found["width"] == dataset.graph.num_features
    assert found["rows"] == len(dataset.train)
    assert found["rows_per_second"] > 0 < found["share_of_dgemm"]
