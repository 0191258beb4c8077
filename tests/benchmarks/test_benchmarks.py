"""The benchmarks report what they promise; times are never asserted."""

import json

import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from benchmarks import growth, imports, live, loading, memory
from benchmarks.batches import bags_of_words, dense_embeddings
from benchmarks.measure import milliseconds, peak_mb
from benchmarks.speed import forms, speed

KEYS = {
    "naive_ms",
    "fast_ms",
    "ratio",
    "max_abs_diff_logits",
    "max_abs_diff_grad",
    "naive_peak_mb",
    "fast_peak_mb",
}


@pytest.mark.parametrize("case", [bags_of_words(4, 200), dense_embeddings(4, 16, 3)])
def test_speed_compares_equal_numbers(case):
    row = speed(case, naive_repeats=2, fast_repeats=2)
    assert row.keys() >= KEYS
    assert row["ratio"] == pytest.approx(row["naive_ms"] / row["fast_ms"])
    assert row["max_abs_diff_logits"] < 1e-4
    assert row["max_abs_diff_grad"] < 1e-4


def test_generated_bags_have_the_same_nonzeros_for_any_width():
    for width in (100, 1000):
        case = bags_of_words(3, width, own=5, support=20, neighbors=4)
        assert case.batch.x.counts.tolist() == [5, 5, 5]
        for item in range(3):
            around = case.batch.neighbors
            mine = around.features[torch.nonzero(around.owner == item).flatten()]
            assert len(mine.indices.unique()) == 20


def test_growth_is_measured_at_every_size():
    rows = list(growth.by_features((100, 200)))
    assert [row["features"] for row in rows] == [100, 200]
    assert rows[0]["bytes_per_item"] == rows[1]["bytes_per_item"]  # flat in F
    rows = list(growth.by_neighbors((1, 10, 100)))
    assert growth.exponent(rows, "neighbors", "bytes_per_item") > 0.8  # linear in neighbors
    rows = list(growth.by_stream((20, 40)))
    assert [row["items"] for row in rows] == [20, 40]


def test_exponent_of_known_laws():
    rows = [{"size": n, "flat": 3.0, "linear": 2.0 * n, "square": n**2} for n in (1, 10, 100)]
    for value, slope in (("flat", 0), ("linear", 1), ("square", 2)):
        assert growth.exponent(rows, "size", value) == pytest.approx(slope, abs=1e-12)


def test_milliseconds_takes_turns():
    order = []
    steps = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = milliseconds(steps, {"a": 4, "b": 2})
    assert set(times) == {"a", "b"}
    assert "".join(order) == "ab" + "aabaab"


def test_peak_sees_a_large_allocation():
    assert peak_mb(lambda: torch.ones(2**24).sum()) > 32


def test_the_command_prints_json_and_nothing_else(monkeypatch):
    runner = CliRunner()
    monkeypatch.setattr(growth.by_features, "__defaults__", ((100, 200),))
    monkeypatch.setattr(growth.by_neighbors, "__defaults__", ((1, 5),))
    monkeypatch.setattr(growth.by_stream, "__defaults__", ((20, 40), lambda seen: None))
    monkeypatch.setattr(growth, "WARM", 100)
    app = Typer()
    app.command()(growth.command)
    result = runner.invoke(app, ["--stream", "2000", "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert {"by_features", "by_neighbors", "by_items", "exponents", "commit"} <= content.keys()
    assert [row["items"] for row in content["learner"]] == list(range(200, 2001, 200))
    assert content["learner"][-1]["prequential"] > 0.5


def test_memory_costs_are_measured_at_every_size():
    found = memory.measure((2, 5), (30, 60), balanced=40)
    assert [row["classes"] for row in found["by_classes"]] == [2, 5]
    assert [row["capacity"] for row in found["by_capacity"]] == [30, 60]
    assert memory.gather_over_list(60, 10) > 0
    told = memory.counted_and_paid(20_000)
    assert told["ratio"] == pytest.approx(told["paid_mb"] / told["counted_mb"])
    assert told["ratio"] < 1.3


def test_code_of_before_follows_the_same_stream(monkeypatch):
    monkeypatch.setattr(memory, "CASES", ())
    for method in ("replay", "analytic"):
        found = growth.beside(growth.ROOT, 600, method, turns=1)
        assert found["throughput_over_before"] > 0
        assert found["memory_bytes"] == found["memory_bytes_before"] > 0
    rows = memory.beside(growth.ROOT, None, items=400)
    assert [row["method"] for row in rows] == ["replay", "analytic"]
    assert all(row["kept_bytes"] == row["kept_bytes_before"] > 0 for row in rows)


def test_import_cost_is_told_as_a_ratio():
    app = Typer()
    app.command()(imports.command)
    result = CliRunner().invoke(app, ["--repeats", "1", "--json"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["torch_over_torch"] == 1
    assert {"evergraph_over_torch", "help_over_torch", "cpu_seconds"} <= content.keys()


def test_live_reports_events_updates_and_ratios(tmp_path):
    app = Typer()
    app.command()(live.command)
    options = ["--events", "10000", "--stored", "2000", "--largest", "1000"]
    made = CliRunner().invoke(app, [*options, "--json", "--out", str(tmp_path / "live.json")])
    assert made.exit_code == 0, made.output
    found = json.loads((tmp_path / "live.json").read_text())
    assert [row["nodes"] for row in found["updates"]] == [1000]
    assert len(found["tenths"]) == live.PARTS
    assert found["tenths"][-1]["nodes"] == pytest.approx(10_000 / (live.LINKS + 2), rel=0.01)
    assert found["last_to_first"].keys() >= {"cpu_us_per_event", "edge_us_p99"}
    assert found["model"]["events"] > 1990


def test_live_events_name_nodes_that_are_there():
    seen = set()
    for kind, values in live.events(4000):
        if kind == "node":
            assert values[0] not in seen
            seen.add(values[0])
            assert (values[1][1:] > values[1][:-1]).all()
        else:
            assert seen.issuperset(values[: 2 if kind == "edge" else 1])


def test_loading_times_every_step_of_both(tmp_path):
    found = loading.measure(nodes=300, edges=500, repeats=1)
    assert list(found["steps"]) == [
        "read nodes", "infer", "fit", "encode", "put nodes", "read edges", "put edges"
    ]  # fmt: skip
    ratio = found["evergraph"]["cpu_s"] / found["pyarrow"]["cpu_s"]
    assert found["cpu_ratio"] == pytest.approx(ratio)
    graph = loading.load(loading.write_tables(tmp_path, 300, 500), lambda _: None)
    assert len(graph) == 300
    assert 450 < graph.num_edges <= 500
    assert len(graph.classes) == 5


def test_both_forms_take_the_same_step():
    row = forms(num_features=80, share=0.25, repeats=1)
    assert row["max_abs_diff_logits"] < 1e-4
    assert row["support_over_dense_cpu"] > 0
