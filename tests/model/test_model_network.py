"""The network on the road of the model folder: one setting, one fate with the events."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import people

import evergraph
from evergraph.datasets import load
from evergraph.datasets.objects import dataset_tables
from evergraph.graph.dataset import split_by_class
from evergraph.learn.checkpoint import CheckpointWarning
from evergraph.learn.network import NetworkLearner, average
from evergraph.model import Model, Settings


def settings(learner, memory=30):
    return Settings(landmarks=16, held_out=30, learner=learner, memory=memory)


def train(path, learner="both", size=240, **options):
    nodes, edges = people()
    first = {name: column[:size] for name, column in nodes.items()}
    return Model.train(path, first, edges, settings=settings(learner, **options))


def history(size=240, chunk=13, start=120):
    """The rest of the people, with late labels, corrections and deletions, in transactions."""
    nodes, _ = people()
    events = []
    for k in range(start, size):
        row = {name: column[k] for name, column in nodes.items()}
        label = row.pop("label")
        events += [{"type": "node", **row}, {"type": "label", "id": row["id"], "label": label}]
        if k % 10 == 3:
            events.append({"type": "delete_node", "id": f"p{k - 7}"})
        if k % 10 == 5:
            events.append({"type": "label", "id": f"p{k - 1}", "label": "old"})
        if k % 17 == 5:
            events.append({"type": "delete_label", "id": f"p{k - 118}"})
        if k % 11 == 5:
            events.append({"type": "edge", "source": f"p{k}", "target": "p0"})
    return [events[at : at + chunk] for at in range(0, len(events), chunk)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder that took the whole history in one process, and its digest after each part."""
    path = tmp_path_factory.mktemp("whole") / "model"
    with train(path, size=120) as model:
        digests = []
        for part in history():
            model.learn(part)
            digests.append(model.digest())
        yield model, digests


@pytest.mark.parametrize("learner", ["network", "both"])
def test_it_predicts_and_opens_again_to_the_same_digest(tmp_path, learner):
    nodes, _ = people()
    with train(tmp_path / "model", learner) as model:
        found, digest = model.predict(), model.digest()
        counts = model.inspect()["network"]
        right = [one.label == nodes["label"][int(one.id[1:])] for one in found]
        assert np.mean(right) > 0.9
        assert all(one.label in one.label_set for one in found)
        assert np.allclose(model.predict_proba().sum(1), 1)
    assert counts == {"learned": 240, "diverged": 0, "waiting": 0, "remembered": 30}
    with evergraph.open(tmp_path / "model", readonly=True) as again:
        assert again.predict() == found
        assert again.digest() == digest


def test_the_setting_chooses_who_tells_probabilities(tmp_path):
    found = {}
    for learner in ("exact", "network", "both"):
        with train(tmp_path / learner, learner) as model:
            found[learner] = model.predict_proba(["p1", "p2", "p3"])
            assert (model.state.network is None) == (learner == "exact")
            assert (tmp_path / learner / "network.safetensors").exists() == (learner != "exact")
    assert not np.allclose(found["exact"], found["network"], atol=1e-3)
    assert np.allclose(found["both"], (found["exact"] + found["network"]) / 2)


def test_unknown_learners_are_refused(tmp_path):
    with pytest.raises(ValueError, match="learner must be one of exact, network, both, got 'tree'"):
        Settings(learner="tree")
    with pytest.raises(ValueError, match="memory must be an integer of at least 1, got 0"):
        Settings(memory=0)
    train(tmp_path / "model").close()
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"both"', '"tree"'))
    with pytest.raises(ValueError, match="learner must be one of"):
        evergraph.open(tmp_path / "model")


class Killed(BaseException):
    """Stands for the end of the process."""


def dies(monkeypatch, moment):
    """Let a process end between the commit of events and the end of the network's work."""
    follow, learn, save = (getattr(NetworkLearner, n) for n in ("follow", "_learn", "save"))

    def dying_follow(network, graph):
        if network.todo.due:
            raise Killed
        return follow(network, graph)

    def dying_learn(network, graph, nodes):
        learn(network, graph, nodes)
        raise Killed

    def dying_save(network, path):
        if network._saved != network.todo.of:
            raise Killed
        save(network, path)

    for name, function in (("follow", dying_follow), ("_learn", dying_learn), ("save", dying_save)):
        if name == moment:
            monkeypatch.setattr(NetworkLearner, name, function)


def stopped(model, part):
    """Whether the process ended."""
    try:
        model.learn(part)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("moment", ["follow", "_learn", "save", "never"])
def test_killed_after_any_commit_it_ends_with_the_same_bits(tmp_path, whole, monkeypatch, moment):
    train(tmp_path / "model", size=120).close()
    deaths = 0
    for part, digest in zip(history(), whole[1], strict=True):
        with monkeypatch.context() as patch, evergraph.open(tmp_path / "model") as model:
            dies(patch, moment)
            deaths += stopped(model, part)
        with evergraph.open(tmp_path / "model") as again:
            assert again.digest() == digest
    assert (deaths > 5) == (moment != "never")
    with evergraph.open(tmp_path / "model") as again:
        ours, theirs = (m.state.network.learner.model.state_dict() for m in (again, whole[0]))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_readers_do_the_rest_in_memory_only(tmp_path, whole, monkeypatch):
    train(tmp_path / "model", size=120).close()
    with monkeypatch.context() as patch, evergraph.open(tmp_path / "model") as model:
        dies(patch, "follow")
        done = next(at for at, part in enumerate(history()) if stopped(model, part))
    before = {file: file.read_bytes() for file in tmp_path.glob("model/*.safetensors*")}
    with evergraph.open(tmp_path / "model", readonly=True) as reader:
        assert reader.digest() == whole[1][done]
    assert {file: file.read_bytes() for file in tmp_path.glob("model/*.safetensors*")} == before


def test_a_reader_beside_a_writer_takes_the_generation_of_its_moment(tmp_path):
    parts = history()
    with train(tmp_path / "model", size=120) as model:
        for part in parts[:3]:
            model.learn(part)
        digest = model.digest()
        shutil.copytree(tmp_path / "model", tmp_path / "copy")
        model.learn(parts[3])
        for name in ("network.safetensors", "network.safetensors.previous"):
            shutil.copy(tmp_path / "model" / name, tmp_path / "copy" / name)
    with evergraph.open(tmp_path / "copy", readonly=True) as reader:
        assert reader.digest() == digest


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_lost_network_is_made_anew_and_said(tmp_path, harm):
    with train(tmp_path / "model") as model:
        digest = model.digest()
    file = tmp_path / "model" / "network.safetensors"
    content = file.read_bytes()
    file.unlink()
    if harm == "damaged":
        file.write_bytes(content[:-1])
    with pytest.warns(CheckpointWarning, match="is made anew from all labels"):
        again = evergraph.open(tmp_path / "model")
    assert again.digest() == digest  # all labels came with `train`
    again.close()
    evergraph.open(tmp_path / "model").close()  # without a warning


def test_an_old_folder_gets_a_network_when_it_is_asked_for(tmp_path):
    with train(tmp_path / "both") as model:
        digest = model.digest()
    train(tmp_path / "model", "exact").close()
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"exact"', '"both"'))
    with evergraph.open(tmp_path / "model") as model:
        assert model.digest() == digest
    with evergraph.open(tmp_path / "model") as again:
        assert again.digest() == digest


def test_before_the_first_ten_labels_the_closed_form_answers(tmp_path):
    nodes, edges = people()
    nodes = {**nodes, "label": [label if k < 7 else "" for k, label in enumerate(nodes["label"])]}
    with Model.train(tmp_path / "model", nodes, edges, settings=settings("network")) as model:
        assert model.inspect()["network"]["waiting"] == 7
        exact = model.state.learner.solution().probabilities(
            model.state.learner.rows(model.graph.slots(["p9"]))
        )
        assert np.array_equal(model.predict_proba(["p9"]), exact)


def test_forgetting_leaves_nothing_in_memory_and_files_but_the_weights(tmp_path):
    guest = {"type": "node", "id": "xyzzy-guest", "age": 77.25, "country": "qqcountryqq"}
    with train(tmp_path / "model", memory=500) as model:
        model.learn([{**guest, "label": "qqclassqq"}])
        model.learn([{"type": "edge", "source": "xyzzy-guest", "target": f"p{k}"} for k in (1, 2)])
        late = [{"type": "node", "id": f"q{k}", "age": 30 + k, "label": "old"} for k in range(9)]
        model.learn(late)
        network = model.state.network
        key = int(model.graph.keys(model.graph.slots(["xyzzy-guest"])).view(np.int64)[0])
        assert key in network.memory.node.tolist()
        model.forget(nodes=["xyzzy-guest"])
        assert network.learner.model.head.outputs == 3  # the weights of its class are still there
        assert key not in network.memory.node.tolist()
        assert len(network.memory) == 249
        slots = model.graph.slots()
        place = np.searchsorted(model.graph.keys(slots), network.memory.node.numpy().view("u8"))
        now = network._items(model.graph, slots[place])
        held = network.memory.batch(range(249))
        assert (held.neighbors.features.to_dense() == now.neighbors.features.to_dense()).all()
        assert "qqclassqq" not in model.classes
        assert "qqclassqq" not in [one.label for one in model.predict()]
        digest = model.digest()
    for file in (tmp_path / "model").iterdir():
        content = file.read_bytes()
        assert not [name for name in (b"xyzzy", b"qqcountryqq", b"qqclassqq") if name in content]
        assert key.to_bytes(8, "little", signed=True) not in content
    with evergraph.open(tmp_path / "model") as again:
        assert again.digest() == digest


def test_a_refit_network_has_forgotten(tmp_path):
    """Then it is the network that `train` makes of the graph as it is now."""
    nodes, edges = people()
    with train(tmp_path / "model") as model:
        model.forget(nodes=["p7"])
        model.refit()
        digest = model.digest()
    assert not (tmp_path / "model" / "network.safetensors.previous").exists()
    kept = {name: [*column[:7], *column[8:]] for name, column in nodes.items()}
    pairs = [pair for pair in zip(*edges.values(), strict=True) if "p7" not in pair]
    left = {"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}
    with Model.train(tmp_path / "never", kept, left, settings=settings("both")) as never:
        assert never.digest() == digest
    with evergraph.open(tmp_path / "model") as again:
        assert again.digest() == digest


def test_late_labels_are_scored_by_the_learner_that_is_chosen(tmp_path):
    with train(tmp_path / "model", "both") as model:
        model.learn([{"type": "node", "id": f"n{k}", "age": [25, 60][k % 2]} for k in range(40)])
        slots = model.graph.slots([f"n{k}" for k in range(40)])
        solution = model.state.learner.solution()
        exact = solution.probabilities(model.state.learner.rows(slots))
        told = average(
            exact, *model.state.network.probabilities(model.graph, slots, ["old", "young"])
        )
        truth = [["young", "old"][k % 2] for k in range(40)]
        right = sum(
            ["old", "young"][k] == name for k, name in zip(told.argmax(1), truth, strict=True)
        )
        model.learn(
            [{"type": "label", "id": f"n{k}", "label": name} for k, name in enumerate(truth)]
        )
        assert model.inspect()["curve"][-1][1:] == [right, 40]


@pytest.mark.slow
def test_on_cora_the_mean_of_both_is_no_worse_than_either(tmp_path):
    if not os.environ.get("EVERGRAPH_DATA"):
        pytest.skip("EVERGRAPH_DATA names no folder of real data")
    cora = load("cora", fetch=False)
    train, test = split_by_class(cora.graph.labels)
    hidden = torch.full_like(cora.graph.labels, -1).index_copy(0, train, cora.graph.labels[train])
    known = replace(cora, graph=replace(cora.graph, labels=hidden), train=train, test=test[:0])
    truth = [cora.graph.class_names[label] for label in cora.graph.labels[test].tolist()]
    found = {}
    for learner in ("exact", "network", "both"):
        options = Settings(learner=learner)
        with Model.train(tmp_path / learner, *dataset_tables(known), settings=options) as model:
            told = [one.label for one in model.predict(test.tolist())]
        found[learner] = np.mean([a == b for a, b in zip(told, truth, strict=True)])
    assert found["network"] > 0.85
    assert found["both"] >= max(found["exact"], found["network"])
