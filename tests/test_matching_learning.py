"""What learns: training, learning from a stream, geometry as a teacher, the paper's arrangement."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matching_scenes import easy_pair, random_features, texture

import evergraph.apps.matching as package
from evergraph.apps.matching.arrangements import CandidateArrangement
from evergraph.apps.matching.candidates import propose
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.fit import Fit, collate, examples, fit
from evergraph.apps.matching.matcher import Matcher, Online
from evergraph.apps.matching.network import CandidateNetwork
from evergraph.apps.matching.paper import (
    PAPER_KINDS,
    PaperArrangement,
    PaperLayer,
    PaperNetwork,
    fit_paper,
    pair_loss,
)
from evergraph.apps.matching.truth import epipolar_distance, unknown_pair, verified_labels
from evergraph.feature_graph import Neighbors
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Finetune
from evergraph.learn.training import Training
from experiments import matching_table7 as table7
from experiments.matching_experiment import aggregate
from experiments.matching_stream import Stream, follow, summary


def hard_pairs(count, start=0):
    return [easy_pair(40, seed, noise=0.9) for seed in range(start, start + count)]


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    network = CandidateNetwork("fgn")
    losses = []
    fit(network, examples(hard_pairs(12)), Fit(40, 4), report=lambda _, loss: losses.append(loss))
    return network, losses


def test_training_learns(trained):
    network, losses = trained
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    tool = Matcher(CandidateArrangement(network))
    assert evaluate(hard_pairs(6, 100), tool.match_pair)["f1"] > 0.8


def test_the_same_seed_trains_the_same_network():
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        network = CandidateNetwork("gcn")
        fit(network, examples(hard_pairs(3)), Fit(3, 2), seed=4)
        states.append(network.state_dict())
    assert all(bool((states[0][k] == states[1][k]).all()) for k in states[0])


def test_graphs_side_by_side_stay_apart():
    parts = examples(hard_pairs(3))
    features, index, weight, _ = collate(parts)
    network = CandidateNetwork("gat")
    whole = network.on_graph(features, index, weight)
    alone = torch.cat([network.on_graph(*collate([part])[:3]) for part in parts])
    assert torch.allclose(whole, alone, atol=1e-5)


def test_training_on_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        fit(CandidateNetwork(), [])
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Fit(steps=0)


# -- the stream ---------------------------------------------------------------------------------


def online(capacity=200):
    training = Training(optimizer="adam", lr=3e-3, steps=2, replay_batches=1, replay_batch_size=64)
    return replace(Online.default(capacity), training=training)


def test_a_stream_teaches_with_bounded_memory():
    torch.manual_seed(0)
    tool = Matcher(CandidateArrangement(CandidateNetwork("fgn")), online=online())
    fresh = hard_pairs(4, 200)
    before = evaluate(fresh, tool.match_pair)["f1"]
    for pair in hard_pairs(14):
        assert tool.learn(pair) == len(propose(pair.first, pair.second))
    assert evaluate(fresh, tool.match_pair)["f1"] > before + 0.1
    assert len(tool.learner.memory) == 200
    assert tool.learner.position == 14


def test_a_stream_of_one_label_only():
    tool = Matcher(CandidateArrangement(CandidateNetwork("mlp")), online=online())
    pair = easy_pair(20)
    far = replace(pair, truth=replace(pair.truth, forward=pair.truth.forward + 500))
    assert tool.learn(far) > 0  # nothing is true here, and the classes stay what they are
    assert tool.learner.classes == [0, 1]
    assert tool.learn(easy_pair(0)) == 0


def test_geometry_teaches_what_truth_would(trained):
    network, _ = trained
    arrangement = CandidateArrangement(network)
    pair = easy_pair(80, seed=300, noise=0.6)
    graph = propose(pair.first, pair.second)
    labels = verified_labels(pair, graph, arrangement.score(graph))
    truth = pair.labels(graph.first, graph.second)
    known = labels >= 0
    assert known.mean() > 0.5
    assert (labels[known] == truth[known]).mean() > 0.95
    assert (labels == 1).sum() > 30


def test_without_truth_geometry_is_the_teacher(trained):
    network, _ = trained
    tool = Matcher(CandidateArrangement(network), online=online())
    pair = easy_pair(80, seed=301, noise=0.5)
    blind = unknown_pair(pair.first, pair.second, pair.size)
    assert tool.learn(blind) > 50
    strangers = unknown_pair(random_features(30), random_features(30, seed=9), (200, 150))
    assert tool.learn(strangers) == 0


def test_epipolar_distance_is_the_plain_loop():
    pair = easy_pair(8)
    graph = propose(pair.first, pair.second)
    matrix = np.random.default_rng(0).normal(size=(3, 3))
    found = epipolar_distance(pair, graph, matrix)
    for e in range(len(graph)):
        p = np.append(pair.first.keypoints[graph.first[e]], 1)
        q = np.append(pair.second.keypoints[graph.second[e]], 1)
        line1, line0 = matrix @ p, matrix.T @ q
        ways = (abs(q @ line1) / np.hypot(*line1[:2]), abs(p @ line0) / np.hypot(*line0[:2]))
        assert found[e] == pytest.approx(max(ways), rel=1e-6)


def test_a_stream_over_domains_tells_what_was_forgotten():
    how = Stream(memory=100, steps=1)
    train = {"a": hard_pairs(2), "b": hard_pairs(2, 20)}
    test = {"a": hard_pairs(2, 40), "b": hard_pairs(2, 60)}
    runs = [follow(train, test, method, how, 0) for method in ("finetune", "replay")]
    for run in runs:
        assert np.shape(run["f1_matrix"]) == (2, 2)
        best = max(run["f1_matrix"][0][0], 0)
        assert run["forgetting"] == pytest.approx(best - run["f1_matrix"][1][0], abs=1e-9)
    assert runs[0]["memory_bytes"] == 0
    assert runs[1]["memory_bytes"] > 0
    assert [row["method"] for row in summary(runs)] == ["finetune", "replay"]


def test_only_candidates_learn_from_a_stream():
    tool = Matcher(PaperArrangement(PaperNetwork("gat", 8)))
    with pytest.raises(ValueError, match="needs the candidate arrangement, got PaperArrangement"):
        tool.learn(easy_pair())


def test_methods_without_memory_need_none():
    how = Online(Finetune(), None, Training(optimizer="adam", lr=1e-3, steps=1))
    tool = Matcher(CandidateArrangement(CandidateNetwork("gat")), online=how)
    assert tool.learn(easy_pair(12)) > 0
    assert Reservoir(3).items == []


# -- the paper's arrangement --------------------------------------------------------------------


def test_attention_on_all_points_is_the_librarys():
    x = torch.randn(6, 8)
    layer = PaperLayer("gat", 8)
    everybody = Neighbors(x.repeat(6, 1).unsqueeze(1), torch.arange(6).repeat_interleave(6))
    weight = layer.attention(x.unsqueeze(1), everybody).view(6, 6)
    assert torch.allclose(layer._mean(x, x), weight @ x, atol=1e-6)


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_the_papers_networks_keep_the_order_of_points(kind):
    network = PaperNetwork(kind, 8)
    x = torch.randn(7, 8)
    order = torch.randperm(7)
    assert torch.allclose(network(x)[order], network(x[order]), atol=1e-5)
    with pytest.raises(ValueError, match="width 8 of this network, got 9"):
        network(torch.randn(3, 9))


def test_both_kinds_have_the_same_parameters():
    sizes = {sum(p.numel() for p in PaperNetwork(kind, 16).parameters()) for kind in PAPER_KINDS}
    assert len(sizes) == 1


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_the_papers_loss_falls(kind):
    torch.manual_seed(0)
    network = PaperNetwork(kind, 8)
    pair = easy_pair(20, noise=0.9)
    before = float(pair_loss(network, pair).detach())
    fit_paper(network, [pair], 15, 3e-3)
    assert float(pair_loss(network, pair).detach()) < before
    assert pair_loss(network, easy_pair(0)) is None


def test_the_papers_matcher_survives_its_file(tmp_path):
    tool = Matcher(PaperArrangement(PaperNetwork("fgn", 8)))
    tool.save(tmp_path / "paper.safetensors")
    pair = easy_pair(20)
    again = Matcher.load(tmp_path / "paper.safetensors").match_pair(pair)
    assert again.second.tolist() == tool.match_pair(pair).second.tolist()
    assert len(again) == 20
    assert len(tool.match_pair(easy_pair(0))) == 0


def test_categories_are_the_users(tmp_path):
    assert table7.categories_of("office2/Hard/P001", table7.read_categories())[0] == "indoor"
    mine = tmp_path / "mine.json"
    mine.write_text('{"wet": ["ocean*"]}')
    patterns = table7.read_categories(mine)
    assert table7.categories_of("ocean/Easy/P001", patterns) == ["wet"]
    for text, message in (("{", "must be JSON"), ('{"a": 1}', "list of patterns")):
        mine.write_text(text)
        with pytest.raises(ValueError, match=message):
            table7.read_categories(mine)


def test_sequences_are_split_without_overlap():
    names = [f"s{i}" for i in range(10)]
    parts = table7.split_sequences(names, 0.8, 0)
    assert sorted(name for part in parts for name in part) == names
    assert [len(part) for part in parts] == [6, 2, 2]
    names = [f"{place}/Easy/P{number}" for place in "abcd" for number in range(5)]
    for part in table7.split_sequences(names, 0.8, 1)[1:]:
        assert sorted(name[0] for name in part) == list("abcd")
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


# -- the shape of the package -------------------------------------------------------------------

ORDER = [
    ["images", "kernels"],
    ["features"],
    ["assignment", "candidates"],
    ["truth"],
    ["homography", "tartanair", "baselines", "network", "evaluate"],
    ["arrangements", "paper", "sources"],
    ["fit", "matcher"],
    ["train"],
]


def test_files_of_the_package_build_on_those_before():
    folder = Path(package.__file__).parent
    rank = {name: place for place, group in enumerate(ORDER) for name in group}
    assert {p.stem for p in folder.glob("*.py")} - {"__init__"} == set(rank)
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = node.module.removeprefix("evergraph.apps.matching").strip(".")
                if "apps.matching" in node.module:
                    for name in [inner] if inner else [alias.name for alias in node.names]:
                        assert rank[name] < rank[path.stem], f"{path.stem} imports {name}"


def test_texture_has_points():
    assert texture().std() > 20
