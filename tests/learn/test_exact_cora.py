"""The whole of real Cora in a random order, with deletions and restarts, equals one pass."""

import os

import numpy as np
import pytest

import evergraph
from evergraph.datasets import load
from evergraph.model import Model

FIRST, DELETED = 900, 300  # nodes given to `train`, and nodes that go again
BATCH = 700  # events per transaction


def _content() -> tuple[list[dict], list[tuple[str, str]]]:
    """Cora's nodes with their words and labels, and its edges."""
    if not os.environ.get("EVERGRAPH_DATA"):
        pytest.skip("EVERGRAPH_DATA names no folder of real data")
    graph = load("cora", fetch=False).graph
    rows, words = graph.features.rows.tolist(), graph.features.indices.tolist()
    nodes = [
        {"id": f"paper {k}", "words": [], "label": graph.class_names[c]}
        for k, c in enumerate(graph.labels.tolist())
    ]
    for row, word in zip(rows, words, strict=True):
        nodes[row]["words"].append(f"w{word}")
    return nodes, [(f"paper {a}", f"paper {b}") for a, b in graph.edges.T.tolist()]


def _table(nodes: list[dict]) -> dict[str, list]:
    return {name: [node[name] for node in nodes] for name in ("id", "words", "label")}


def _history(nodes, edges, deleted, rng) -> list[dict]:
    """All that happens after `train`, in a random order: a node, then its label, then its end."""
    timed = [(rng.random(), {"type": "edge", "source": a, "target": b}) for a, b in edges]
    for at, node in enumerate(nodes):
        name, moments = node["id"], sorted(rng.random(3).tolist())
        if at >= FIRST:
            timed.append((moments[0], {"type": "node", "id": name, "words": node["words"]}))
        if at >= FIRST or node["late"]:
            timed.append((moments[1], {"type": "label", "id": name, "label": node["label"]}))
        if name in deleted:
            timed.append((moments[2], {"type": "delete_node", "id": name}))
    return [event for _, event in sorted(timed, key=lambda pair: pair[0])]


@pytest.mark.slow
def test_any_history_of_cora_gives_the_digest_of_one_pass(tmp_path):
    rng = np.random.default_rng(0)
    nodes, edges = _content()
    rng.shuffle(nodes)
    deleted = {nodes[k]["id"] for k in rng.permutation(len(nodes))[:DELETED]}
    for node in nodes:
        node["late"] = bool(rng.random() < 0.5)
    first = [{**n, "label": None if n["late"] else n["label"]} for n in nodes[:FIRST]]
    events = _history(nodes, edges, deleted, rng)
    assert len(events) > len(nodes) + len(edges)
    batches = [events[start : start + BATCH] for start in range(0, len(events), BATCH)]

    model = Model.train(tmp_path / "history", _table(first))
    for number, batch in enumerate(batches):
        model.learn(batch)
        if number in (len(batches) // 3, 2 * len(batches) // 3):
            if number == len(batches) // 3:
                model.save()  # the other restart finds sums of an earlier position
            model.close()
            model = evergraph.open(tmp_path / "history")
    digest, found = model.digest(), model.inspect()
    answers = {one.id: (one.label, one.probability) for one in model.predict()}
    model.close()

    kept = [node for node in first if node["id"] not in deleted]
    final = [node for node in nodes if node["id"] not in deleted]
    rest = [{"type": "node", **{k: node[k] for k in ("id", "words", "label")}} for node in final]
    rest += [
        {"type": "edge", "source": a, "target": b}
        for a, b in edges
        if a not in deleted and b not in deleted
    ]
    with Model.train(tmp_path / "fresh", _table(kept)) as fresh:
        fresh.learn(rest)
        assert fresh.digest() == digest
        same = fresh.inspect()
        assert {one.id: (one.label, one.probability) for one in fresh.predict()} == answers
    for count in ("nodes", "edges", "labels", "classes"):
        assert found[count] == same[count]
    assert found["nodes"] == found["labels"] == len(nodes) - DELETED
