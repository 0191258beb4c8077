"""The benchmark of the service measures both servers with the same requests."""

import pytest

from benchmarks import serve


@pytest.mark.parametrize("shape", serve.SHAPES)
def test_both_servers_take_all_events(shape, monkeypatch):
    monkeypatch.setattr(serve, "BASE", 200)
    monkeypatch.setattr(serve, "BULK", 40)
    found = serve.measure(shape, rounds=1, seconds=0.5)
    for figure in ("events_per_second", "cpu_us_per_event"):
        assert set(found[figure]) == {"single", "one_client", "bulk"}
    part = found["events_per_second"]["bulk"]
    assert part["ratio"] == pytest.approx(part["evergraph"] / part["bare"])
    asked = found["predictions"]["learning"]
    assert 0 < asked["p50_ms"] <= asked["p99_ms"] <= asked["max_ms"]
    assert asked["events_per_second"] > 0


def test_a_label_follows_its_node_and_edges_lead_to_earlier_ones():
    events = serve.Story("sparse").events(400)
    seen = set()
    for event in events:
        if event["type"] == "node":
            seen.add(event["id"])
        elif event["type"] == "label":
            assert event["id"] in seen
        elif event["source"] != event["target"]:
            assert event["target"] < event["source"]
