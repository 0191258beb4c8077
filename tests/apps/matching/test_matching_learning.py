"""What learns: training, learning from a stream, geometry as a teacher, the paper's arrangement."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch
from matching_pairs import easy_pair, random_features, texture

from evergraph.apps.matching.arrangements import (
    candidate_network,
    candidate_task,
    graph_batch,
    score,
)
from evergraph.apps.matching.candidates import propose
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.matcher import (
    Matcher,
    verified_labels,
)
from evergraph.apps.matching.train import Fit, examples, fit
from evergraph.apps.matching.truth import unknown_pair
from evergraph.apps.matching.verify import epipolar_distance
from evergraph.evaluate.run import run
from evergraph.feature_graph import feature_adjacency, normalize, propagate, sgnroot
from evergraph.graph.neighbors import Linked
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import METHODS, Finetune, Replay
from evergraph.learn.training import Training
from evergraph.stream.batch import concatenate
from experiments import matching_paper
from experiments import matching_table7 as table7
from experiments.matching import aggregate
from experiments.matching_categories import PAIRED, categories_of, read_categories
from experiments.matching_paper import (
    PAPER_KINDS,
    PaperNetwork,
    PointMatching,
    labeled_points,
    point_batch,
)
from experiments.matching_stream import (
    DomainSource,
    Stream,
    domain_continuum,
    f1_by_domain,
    new_learner,
    page,
)


def hard_pairs(count, start=0):
    return [easy_pair(40, seed, noise=0.9) for seed in range(start, start + count)]


@pytest.fixture(scope="module")
def trained():
    """A trained network, and its loss on the training pairs before and after."""
    torch.manual_seed(0)
    network, data, losses = candidate_network("fgn"), examples(hard_pairs(12)), []
    whole = concatenate(data)
    steps = []
    for part in (0, 1):
        with torch.no_grad():
            losses.append(float(candidate_task().loss(network(whole), whole)))
        if not part:
            fit(network, data, Fit(40, 4), report=steps.append)
    assert steps == list(range(1, 41))
    return network, losses


def test_training_learns(trained):
    network, losses = trained
    assert losses[1] < 0.5 * losses[0]
    tool = Matcher(network=network)
    assert evaluate(hard_pairs(6, 100), tool.match_pair)["f1"] > 0.8


def test_the_same_seed_trains_the_same_network():
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        network = candidate_network("gcn")
        fit(network, examples(hard_pairs(3)), Fit(3, 2), seed=4)
        states.append(network.state_dict())
    assert all(bool((states[0][k] == states[1][k]).all()) for k in states[0])


def test_graphs_side_by_side_stay_apart():
    parts = examples(hard_pairs(3))
    network = candidate_network("gat")
    together = DomainSource(parts, []).batch(torch.arange(3), task=2)
    assert isinstance(together.neighbors, Linked)
    assert together.task.unique().tolist() == [2]
    alone = torch.cat([network(part) for part in parts])
    assert torch.allclose(network(together), alone, atol=1e-5)


def test_training_on_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        fit(candidate_network(), [])
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Fit(steps=0)


# -- the stream ---------------------------------------------------------------------------------


def online(tool, capacity=200):
    training = Training(optimizer="adam", lr=3e-3, steps=2, replay_batches=1, replay_batch_size=64)
    parts = (Replay(), Reservoir(capacity), training, 0, candidate_task())
    return replace(tool, learner=Learner(tool.network, *parts))


def test_a_stream_teaches_with_bounded_memory():
    torch.manual_seed(3)  # weights that know nothing: others happen to match easy pairs
    tool = online(Matcher("fgn"))
    fresh = hard_pairs(4, 200)
    before = evaluate(fresh, tool.match_pair)["f1"]
    for pair in hard_pairs(14):
        assert tool.learn(pair) == len(propose(pair.first, pair.second))
    assert evaluate(fresh, tool.match_pair)["f1"] > before + 0.1
    assert len(tool.learner.memory) == 200
    assert tool.learner.position == 14


def test_a_stream_of_one_label_only():
    tool = online(Matcher("mlp"))
    pair = easy_pair(20)
    far = replace(pair, truth=replace(pair.truth, forward=pair.truth.forward + 500))
    assert tool.learn(far) > 0  # nothing is true here, and the classes stay what they are
    assert tool.learner.classes == [0, 1]
    assert tool.learn(easy_pair(0)) == 0


def unjudged(pair, share=0.5):
    """The same pair, of which some points of the first image cannot be judged."""
    judged = np.random.default_rng(0).uniform(size=len(pair.first)) > share
    return replace(pair, truth=replace(pair.truth, judged=judged))


def test_candidates_without_a_label_teach_nothing_and_are_not_kept():
    pair = unjudged(easy_pair(30))
    graph = propose(pair.first, pair.second)
    labels = pair.labels(graph.first, graph.second)
    assert (labels == -1).any()
    batch = graph_batch(graph, labels)
    known = torch.from_numpy(np.flatnonzero(labels >= 0))
    network, task = candidate_network(), candidate_task()
    few = batch.select(known)
    assert torch.allclose(task.loss(network(batch), batch), task.loss(network(few), few))
    tool = online(Matcher(), 1000)
    assert tool.learn(pair) == len(known)
    items = tool.learner.memory.items
    assert len(items) == len(known)
    assert all(int(item.target[0]) >= 0 for item in items)
    assert not any(isinstance(item.neighbors, Linked) for item in items)
    nothing = replace(pair, truth=replace(pair.truth, judged=pair.truth.judged & False))
    assert examples([nothing]) == []


@pytest.mark.parametrize("method", ["finetune", "replay", "ewc", "mas", "lwf", "gem", "agem"])
def test_every_method_learns_from_whole_graphs(method):
    learner = new_learner(method, Stream(memory=50, steps=1), 0)
    assert type(learner.method) is METHODS[method]
    for batch in examples([unjudged(pair) for pair in hard_pairs(3)]):
        learner.observe(batch)
    assert learner.output(batch).shape == (len(batch), 2)
    assert learner.classes == [0, 1]


def test_geometry_teaches_what_truth_would(trained):
    network, _ = trained
    pair = easy_pair(80, seed=300, noise=0.6)
    graph = propose(pair.first, pair.second)
    labels = verified_labels(pair, graph, score(network, graph))
    truth = pair.labels(graph.first, graph.second)
    known = labels >= 0
    assert known.mean() > 0.5
    assert (labels[known] == truth[known]).mean() > 0.95
    assert (labels == 1).sum() > 30


def test_without_truth_geometry_is_the_teacher(trained):
    network, _ = trained
    tool = online(Matcher(network=network))
    pair = easy_pair(80, seed=301, noise=0.5)
    blind = unknown_pair(pair.first, pair.second, pair.size)
    assert tool.learn(blind) > 50
    strangers = unknown_pair(random_features(30), random_features(30, seed=9), (200, 150))
    assert tool.learn(strangers) == 0


def test_epipolar_distance_is_the_plain_loop():
    pair = easy_pair(8)
    graph = propose(pair.first, pair.second)
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    ends = pair.first.keypoints[graph.first], pair.second.keypoints[graph.second]
    found = epipolar_distance(*ends, matrix)
    for e in range(len(graph)):
        p = np.append(pair.first.keypoints[graph.first[e]], 1)
        q = np.append(pair.second.keypoints[graph.second[e]], 1)
        line1, line0 = matrix @ p, matrix.T @ q
        ways = (abs(q @ line1) / np.hypot(*line1[:2]), abs(p @ line0) / np.hypot(*line0[:2]))
        assert found[e] == pytest.approx(max(ways), rel=1e-6)


def test_a_stream_over_domains_tells_what_was_forgotten():
    how = Stream(memory=100, steps=1)
    train = {"a": [unjudged(pair, 0.1) for pair in hard_pairs(2)], "b": hard_pairs(2, 20)}
    test = {"a": hard_pairs(2, 40), "b": hard_pairs(3, 60)}
    cells = []
    for method in ("finetune", "replay"):

        def build(seed, method=method):
            return domain_continuum(train, test), new_learner(method, how, seed)

        cells.append(run(build, [0], {"method": method}, scorer=f1_by_domain))
    for cell in cells:
        (one,) = cell["runs"]
        matrix = one["matrix"]
        assert np.shape(matrix) == (2, 2)
        assert cell["forgetting_mean"] == pytest.approx(matrix[0][0] - matrix[1][0], abs=1e-9)
        assert list(one["class_accuracy"]) == ["a", "b"]
        assert one["class_accuracy"]["b"] == matrix[1][1]
        assert cell["accuracy_mean"] == pytest.approx((2 * matrix[1][0] + 3 * matrix[1][1]) / 5)
        assert one["curve"][-1][0] == 4  # pairs
        labels = sum(int((b.target >= 0).sum()) for b in examples([*train["a"][1:], *train["b"]]))
        assert one["prequential"][1] == labels
    assert cells[0]["memory_bytes"] == 0
    assert cells[1]["memory_bytes"] > 0
    text = page({"cells": cells, "seeds": [0], "commit": "c"})
    assert f"| replay | {cells[1]['accuracy_mean']:.3f} |" in text


def test_methods_without_memory_need_none():
    tool, how = Matcher("gat"), Training(optimizer="adam", lr=1e-3, steps=1)
    tool.learner = Learner(tool.network, Finetune(), None, how, task=candidate_task())
    assert tool.learn(easy_pair(12)) > 0
    assert list(Reservoir(3).items) == []


# -- the paper's arrangement --------------------------------------------------------------------


def table_of(points, width=8, seed=0):
    return random_features(points, width, seed)


def dumb_layer(network, layer, kind, x):
    """A layer of the paper on the points of one image, point by point."""
    attention, block = network.fgn.attentions[layer], network.fgn.blocks[layer].layer
    weight, bias = block.weight[:, 0], block.bias
    center, around = attention.center[:, 0], attention.neighbor[:, 0]
    means = []
    for i in range(len(x)):
        scores = torch.stack([center @ x[i] + around @ y + attention.bias[0] for y in x])
        share = torch.where(scores > 0, scores, 0.2 * scores).softmax(0)
        means.append(sum(share[j] * x[j] for j in range(len(x))))
    if kind == "fgn-shared":
        total = sum(torch.outer(a, m) for a, m in zip(x, means, strict=True))
        shared = normalize(sgnroot(total), "row")
    out = []
    for point, mean in zip(x, means, strict=True):
        if kind == "gat":
            message = mean
        elif kind == "fgn":
            adjacency = feature_adjacency(point.view(1, -1), mean.view(1, 1, -1))
            message = propagate(normalize(adjacency, "symmetric"), point.view(1, -1)).flatten()
        else:
            message = shared @ point
        out.append(0.9 * point + 0.1 * (weight @ message + bias))
    return torch.stack(out)


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_the_papers_networks_are_the_dumb_loop(kind):
    network = PaperNetwork(kind, 8).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    batch = point_batch(table_of(6), table_of(4, seed=1))
    batch = replace(batch, x=batch.x.double())
    expected = []
    for x in batch.x[0, :, 0].split([6, 4]):
        y = torch.nn.functional.leaky_relu(dumb_layer(network, 0, kind, x), 0.2)
        y = dumb_layer(network, 1, kind, y)
        expected.append(y / y.norm(dim=1, keepdim=True))
    assert torch.allclose(network(batch)[0], torch.cat(expected), atol=1e-9)


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_the_papers_networks_keep_the_order_of_points(kind):
    network = PaperNetwork(kind, 8)
    first, second = table_of(7), table_of(5, seed=1)
    order = np.random.default_rng(0).permutation(7)
    plain = network(point_batch(first, second))[0]
    mixed = network(point_batch(first.take(order), second))[0]
    assert torch.allclose(plain[:7][order], mixed[:7], atol=1e-5)
    assert torch.allclose(plain[7:], mixed[7:], atol=1e-5)
    other = network(point_batch(first, table_of(9, seed=2)))[0]
    assert torch.allclose(plain[:7], other[:7], atol=1e-6)  # whatever the other image is
    with pytest.raises(ValueError, match=r"x must have shape \(B, S, 1, 8\) for this model"):
        network(point_batch(table_of(3, 9), table_of(3, 9)))


def test_both_kinds_have_the_same_parameters():
    sizes = {sum(p.numel() for p in PaperNetwork(kind, 16).parameters()) for kind in PAPER_KINDS}
    assert len(sizes) == 1
    with pytest.raises(ValueError, match="kind must be one of fgn, fgn-shared, gat, got 'gcn'"):
        PaperNetwork("gcn", 8)


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_the_papers_loss_falls(kind):
    torch.manual_seed(0)
    network, task = PaperNetwork(kind, 8), PointMatching()
    batch = labeled_points(easy_pair(20, noise=0.9))
    other = labeled_points(easy_pair(24, seed=3, noise=0.9))  # of another number of points
    before = float(task.loss(network(batch), batch).detach())
    fit(network, [batch, other], Fit(30, 1, 3e-3, cycle=False), task=task)
    assert float(task.loss(network(batch), batch).detach()) < before


def test_the_papers_loss_is_the_plain_loop():
    pair = unjudged(easy_pair(12, noise=0.9), 0.3)
    batch, network, task = labeled_points(pair), PaperNetwork("fgn", 8), PointMatching()
    out = network(batch)[0].detach()
    right, wrong = [], []
    for i in range(12):
        for j in range(12):
            error = np.linalg.norm(pair.truth.forward[i] - pair.second.keypoints[j])
            if pair.truth.judged[i]:
                (right if error <= 1 else wrong).append(float(out[i] @ out[12 + j]))
    hardest = sorted(wrong, reverse=True)[: 2 * len(right)]
    expected = np.mean([1 - c for c in right]) + np.mean(hardest)
    assert float(task.loss(out[None], batch)) == pytest.approx(expected, abs=1e-5)
    top = [i for i in range(12) if pair.truth.judged[i] and (batch.target[0, i] == 1).any()]
    hits = [bool(batch.target[0, i, int((out[i] @ out[12:].T).argmax())] == 1) for i in top]
    assert task.measure(out[None], batch.target) == pytest.approx(np.mean(hits))


def test_a_pair_without_true_matches_teaches_the_paper_nothing():
    learner = Learner(PaperNetwork("gat", 8), Finetune(), task=PointMatching())
    pair = easy_pair(10)
    far = replace(pair, truth=replace(pair.truth, forward=pair.truth.forward + 500))
    for lost in (easy_pair(0), far):
        with pytest.raises(ValueError, match="expected one pair of images with true matches"):
            learner.observe(labeled_points(lost))


def test_the_papers_matcher_survives_its_state():
    network, again = PaperNetwork("fgn", 8), PaperNetwork("fgn", 8)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    again.load_state_dict(network.state_dict())
    pair = easy_pair(20)
    found = again.match(pair)
    assert found.second.tolist() == network.match(pair).second.tolist()
    assert found.first.tolist() != list(range(20))  # the most confident first
    assert len(found) == 20
    assert len(network.match(easy_pair(0))) == 0


def test_networks_of_table_7_are_trained_until_the_error_falls_no_more(monkeypatch):
    script = iter([5.0, 4.0, 4.5, 4.1, 3.0, 3.5, 3.0, 3.2, 9.0])
    drawn = []

    def fake_fit(network, data, how, *rest):
        drawn.append(how.lr)
        with torch.no_grad():
            next(network.parameters()).fill_(len(drawn))

    monkeypatch.setattr(matching_paper, "fit", fake_fit)
    monkeypatch.setattr(matching_paper, "evaluate", lambda *pairs: {"possible_error": next(script)})
    how = matching_paper.Plateau(rates=(1e-3, 1e-4, 1e-5), patience=2, most=7)
    network, curve = matching_paper.converge("gat", [easy_pair(20)], [], how, 0)
    errors = [5.0, 4.0, 4.5, 4.1, 3.0, 3.5, 3.0, 3.2]  # two rounds without less end a rate
    rates = [0.0, *[1e-3] * 3, *[1e-4] * 3, 1e-5]  # and seven rounds everything
    assert curve == list(zip(rates, errors, strict=True))
    assert drawn == rates[1:]
    assert set(next(network.parameters()).flatten().tolist()) == {4.0}  # those of error 3.0


def test_table_7_compares_what_it_should():
    how = table7.Table7()
    assert 600 <= how.points <= 1000
    assert inspect.signature(table7.main).parameters["seeds"].default == 5
    settings = {
        name: inspect.signature(table7.main).parameters[name].default
        for name in ("apart", "points", "each", "frames")
    }
    assert settings == {name: getattr(how, name) for name in settings}
    compared = {*map(frozenset, PAIRED)}
    assert {frozenset(("fgn", "gat")), frozenset(("fgn", "nearest neighbor"))} <= compared
    assert frozenset(("gat", "nearest neighbor")) in compared


def test_categories_are_the_users(tmp_path):
    assert categories_of("office2/Hard/P001", read_categories())[0] == "indoor"
    mine = tmp_path / "mine.json"
    mine.write_text('{"wet": ["ocean*"]}')
    patterns = read_categories(mine)
    assert categories_of("ocean/Easy/P001", patterns) == ["wet"]
    for text, message in (("{", "must be JSON"), ('{"a": 1}', "list of patterns")):
        mine.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_categories(mine)


def test_sequences_are_split_without_overlap():
    names = [f"s{i}" for i in range(10)]
    parts = table7.split_sequences(names, 0.8, 0)
    assert sorted(name for part in parts for name in part) == names
    assert [len(part) for part in parts] == [6, 2, 2]
    names = [f"{place}/Easy/P{number}" for place in "abcd" for number in range(5)]
    for part in table7.split_sequences(names, 0.8, 1)[1:]:
        assert sorted(name[0] for name in part) == list("abcd")
    parts = [table7.split_sequences(names, 0.8, seed)[2] for seed in range(6)]
    assert sorted(name for part in parts[:5] for name in part) == names  # each is tested on once
    assert parts[5] != parts[0]
    with pytest.raises(ValueError, match="at least 3 sequences, got 2"):
        table7.split_sequences(names[:2], 0.8, 0)


def test_cells_of_seeds_become_one():
    cells = [
        {"test": "a", "method": "m", "seed": s, "setting": "", "precision": p, "recall": 0.5,
         "f1": f, "train_seconds": 1.0, "mean_error": 2.0}
        for s, p, f in ((0, 0.4, 0.3), (1, 0.6, 0.5))
    ]  # fmt: skip
    (cell,) = aggregate(cells)
    assert (cell["precision"], cell["f1"], cell["runs"]) == (0.5, 0.4, 2)
    assert cell["f1_sd"] == pytest.approx(np.std([0.3, 0.5], ddof=1))


def test_texture_has_points():
    assert texture().std() > 20
