"""Learners and methods: contracts over all of them, and exact stops and starts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.feature_selection import f_classif

from evergraph.datasets import generate
from evergraph.datasets.generate import PRESETS
from evergraph.feature_graph.embedding import fixed_embedding
from evergraph.feature_graph.fixed_point import ONE
from evergraph.graph import SparseRows
from evergraph.graph.neighbors import as_dense
from evergraph.learn import CheckpointError, Learner, Reservoir, Training
from evergraph.learn.checkpoint import read_checkpoint, write_checkpoint
from evergraph.learn.methods import METHODS, Analytic, Finetune, Replay
from evergraph.learn.methods.gem import nearest_step
from evergraph.nn import FGN, baseline
from evergraph.stream import concatenate, node_continuum


@pytest.fixture(scope="module")
def data():
    """A small graph of three topics."""
    growth = replace(PRESETS["citation"], nodes=400, classes=3, features=90, words=12, signal=0.9)
    return generate(growth)


def make(name, data, optimizer="sgd", dropout=0.2, capacity=40):
    torch.manual_seed(0)
    model = FGN(data.graph.num_features, 0, channels=(4, 4), dropout=dropout)
    settings = {"epochs": 2} if name == "joint" else {}
    training = Training(optimizer=optimizer, steps=2, momentum=0.5, lr=0.02)
    memory = Reservoir(capacity, seed=0)
    return Learner(model, METHODS[name](**settings), memory, training)


def stream(data, **settings):
    return node_continuum(data, **{"scenario": "class", **settings})


def fingerprint(learner, batch):
    return learner.output(batch), learner.classes, learner.position


@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_predicts(name, data):
    learner = make(name, data)
    batches = list(stream(data, scenario="data"))
    for batch in batches:
        learner.observe(batch)
    assert sorted(learner.classes) == [0, 1, 2]
    predicted = learner.predict(batches[0])
    assert set(predicted.tolist()) <= {0, 1, 2}
    assert learner.evaluate(stream(data).test()) > 0.45  # chance is about a third
    item = next(iter(batches[0]))
    assert learner.predict_one(item) in {0, 1, 2}
    learner.learn_one(item)
    assert learner.position == len(batches) + 1


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_pause_changes_no_bit(name, optimizer, data, tmp_path):
    """Save in mid-stream, load into a fresh learner, go on: the same numbers to the last bit."""
    batches = list(stream(data))
    cut = len(batches) // 2
    whole, first = make(name, data, optimizer), make(name, data, optimizer)
    for batch in batches[:cut]:
        whole.observe(batch)
        first.observe(batch)
    path = tmp_path / "learner.safetensors"
    first.save(path, {"note": [1, 2]})
    torch.manual_seed(123)  # what others do with randomness must not matter
    second = Learner(
        FGN(data.graph.num_features, 0, channels=(4, 4), dropout=0.2),
        make(name, data).method,
        Reservoir(40, seed=77),
        whole.training,
        seed=5,
    )
    assert second.load(path) == {"note": [1, 2]}
    for batch in batches[cut:]:
        whole.observe(batch)
        second.observe(batch)
    one, other = fingerprint(whole, batches[0]), fingerprint(second, batches[0])
    assert torch.equal(one[0], other[0])
    assert one[1:] == other[1:]
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key]), key


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_learner(name, data):
    results = []
    for noise in (1, 2):
        learner = make(name, data)
        torch.manual_seed(noise)
        for batch in list(stream(data))[:8]:
            learner.observe(batch)
        results.append(learner.output(batch))
    assert torch.equal(*results)


def test_new_classes_leave_the_old_logits_alone(data):
    learner = make("finetune", data, dropout=0.0)
    first, *_, last = list(stream(data))
    learner.observe(first)
    model = learner.model.eval()
    before = model(first)
    learner.task.meet(model.head, last)
    after = model(first)
    assert after.shape[1] == before.shape[1] + 1
    assert torch.equal(after[:, : before.shape[1]], before)
    assert (after[:, before.shape[1] :] == 0).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_optimizer_remembers_across_growth(optimizer, data):
    learner = make("finetune", data, optimizer)
    first, second, third = (
        next(b for b in stream(data) if int(b.task[0]) == task) for task in range(3)
    )
    learner.observe(first)  # with a single class there is no gradient yet
    learner.observe(second)
    key = f"head.weight:{'velocity' if optimizer == 'sgd' else 'mean'}"
    held = learner.optimizer.state[key].clone()
    learner.task.meet(learner.model.head, third)
    weight = learner.model.head.weight
    grown, _ = learner.optimizer._kept(*key.split(":"), weight)
    assert grown.shape == weight.shape
    assert learner.optimizer.state[key] is grown
    assert held.any()
    assert torch.equal(grown[..., : held.shape[-1]], held)
    assert (grown[..., held.shape[-1] :] == 0).all()


def test_averaging_follows_the_network_and_survives_a_pause(data, tmp_path):
    batches = list(stream(data, scenario="data"))
    learner = make("replay", data, dropout=0.0)
    learner.training = replace(learner.training, averaging=0.9)
    weights, expected = [], None
    for batch in batches[:6]:
        learner.observe(batch)
        now = learner.model.blocks[0].layer.weight.detach().clone()
        weights.append(now)
        expected = now if expected is None else 0.9 * expected + 0.1 * now
    assert torch.allclose(learner.average["blocks.0.layer.weight"], expected)
    assert not torch.equal(expected, weights[-1])
    plain = learner.model.eval()(batches[0])
    assert not torch.equal(learner.output(batches[0]), plain)
    learner.save(tmp_path / "c")
    other = make("replay", data, dropout=0.0)
    other.training = learner.training
    other.load(tmp_path / "c")
    for batch in batches[6:]:
        learner.observe(batch)
        other.observe(batch)
    assert torch.equal(learner.output(batches[0]), other.output(batches[0]))
    stepwise = make("replay", data, dropout=0.0)
    stepwise.training = replace(learner.training, average_steps=True)
    steps, descend = [], stepwise.optimizer.step
    stepwise.optimizer.step = lambda model: (
        descend(model),
        steps.append(stepwise.model.blocks[0].layer.weight.detach().clone()),
    )
    stepwise.observe(batches[0])
    expected = steps[0]
    for now in steps[1:]:
        expected = 0.9 * expected + 0.1 * now
    assert len(steps) > 1
    assert torch.allclose(stepwise.average["blocks.0.layer.weight"], expected)
    with pytest.raises(ValueError, match=r"averaging must lie in \[0, 1\), got 1.0"):
        Training(averaging=1.0)


def test_replay_beats_finetuning_and_forgets_less(data):
    accuracy = {}
    for name in ("finetune", "replay"):
        learner = make(name, data, capacity=100)
        for batch in stream(data):
            learner.observe(batch)
        accuracy[name] = learner.evaluate(stream(data).test())
    assert accuracy["replay"] > accuracy["finetune"] + 0.1


SOLVERS = [{"solver": "ridge"}, {"solver": "lda"}, {"relevance": True}]


@pytest.mark.parametrize("settings_of_method", SOLVERS, ids=str)
def test_the_closed_form_does_not_depend_on_the_order(data, settings_of_method):
    """Class-incremental equals data-incremental equals regular, by construction."""
    scores = []
    batch = next(iter(stream(data, scenario="data", seed=9)))
    for settings in (
        {"scenario": "class"},
        {"scenario": "class", "class_order": (2, 0, 1)},
        {"scenario": "data", "seed": 4},
        {"scenario": "regular", "batch_size": 3},
    ):
        learner = make("analytic", data)
        learner.method = Analytic(**settings_of_method)
        for part in stream(data, **settings):
            learner.observe(part)
        order = torch.tensor(np.argsort(learner.classes))
        scores.append(learner.output(batch)[:, order])
    for other in scores[1:]:
        assert torch.allclose(other, scores[0], atol=1e-5)


@pytest.mark.parametrize("relevance", [False, True])
def test_the_closed_form_is_ridge_regression(data, relevance):
    """With relevance, the penalty of a feature is λ over its F, whose mean is brought to one."""
    learner = make("analytic", data)
    learner.method = Analytic(relevance=relevance)
    batches = [learner.intake.condensed(batch) for batch in stream(data)]
    for batch in batches:
        learner.observe(batch)
    everything = concatenate(batches)
    e = torch.cat([fixed_embedding(b.x, b.neighbors).to_dense() for b in batches]).double()
    e = (e * ONE).round() / ONE
    seen = e.square().sum(0) > 0
    e = e[:, seen]
    onehot = torch.eye(3, dtype=torch.float64)[learner.task.columns(everything.target)]
    penalty = torch.ones(e.shape[1], dtype=torch.float64)
    if relevance:
        of = torch.from_numpy(f_classif(e.numpy(), everything.target.numpy())[0])
        size = e.square().sum(0)
        penalty = (of * size).sum() / size.sum() / of
    ridge = learner.method.strength * torch.diag(penalty)
    expected = e @ torch.linalg.solve(e.T @ e + ridge, e.T @ onehot)
    found = torch.cat([learner.output(batch) for batch in batches])
    assert torch.allclose(found, expected, atol=1e-8)


def test_relevance_says_nothing_while_there_is_one_class(data):
    plain, weighed = make("analytic", data), make("analytic", data)
    weighed.method = Analytic(relevance=True)
    batch = next(iter(stream(data, scenario="class")))
    for learner in (plain, weighed):
        learner.observe(batch)
    assert torch.allclose(weighed.output(batch), plain.output(batch), atol=1e-9)
    with pytest.raises(ValueError, match="relevance is for solver 'ridge'"):
        Analytic(solver="lda", relevance=True)


@pytest.mark.parametrize("relevance", [False, True])
def test_the_closed_form_forgets_exactly(data, relevance):
    batches = list(stream(data, scenario="data"))
    with_all, without = make("analytic", data), make("analytic", data)
    for learner in (with_all, without):
        learner.method = Analytic(relevance=relevance)
    for batch in batches:
        with_all.observe(batch)
    for batch in batches[:-1]:
        without.observe(batch)
    with_all.method.forget(with_all, batches[-1])
    order = [with_all.classes.index(label) for label in without.classes]
    assert torch.allclose(
        with_all.output(batches[0])[:, order], without.output(batches[0]), atol=1e-9
    )
    with pytest.raises(ValueError, match="only what was learned can be forgotten"):
        make("analytic", data).method.forget(with_all, batches[0])


def test_a_refused_forget_changes_nothing(data):
    learner = make("analytic", data)
    before = learner.digest()
    with pytest.raises(ValueError, match="only what was learned can be forgotten"):
        learner.method.forget(learner, next(iter(stream(data))))
    assert learner.digest() == before


@pytest.mark.parametrize("dense", [False, True])
def test_the_closed_form_predicts_no_items(data, dense):
    if dense:
        features = as_dense(data.graph.features)
        data = replace(data, graph=replace(data.graph, features=features))
    learner = make("analytic", data)
    first, second, *_ = stream(data)
    learner.observe(first)
    assert len(learner.predict(first.select(torch.arange(0)))) == 0
    assert len(learner.predict(second)) == len(second)


def test_the_closed_form_has_constant_memory(data):
    learner = make("analytic", data)
    sizes = []
    for batch in stream(data, scenario="data"):
        learner.observe(batch)
        sizes.append(learner.method.nbytes)
    assert len(set(sizes[5:])) == 1


def test_the_closed_form_reads_means_whatever_the_model(data):
    features = as_dense(data.graph.features)
    data = replace(data, graph=replace(data.graph, features=features))
    made = []
    for layer in ("broadcast", "transform"):
        model = FGN(data.graph.num_features, 0, channels=(4, 4), layer=layer)
        learner = Learner(model, Analytic())
        for batch in stream(data, pack=learner.intake.packing()):
            assert len(batch.neighbors) == len(batch)  # one mean for each item
            learner.observe(batch)
        made.append(learner.method.sums.digest())
    assert made[0] == made[1]


def test_wide_embeddings_are_folded(data):
    learner = make("analytic", data)
    learner.method = Analytic(max_width=64)
    for batch in stream(data, scenario="data"):
        learner.observe(batch)
    assert learner.method.sums.gram.shape == (64, 64)
    assert learner.evaluate(stream(data).test()) > 0.45


def test_the_nearest_step_keeps_all_constraints():
    rng = np.random.default_rng(0)
    for _ in range(20):
        gradient = torch.from_numpy(rng.normal(size=30))
        past = torch.from_numpy(rng.normal(size=(4, 30)))
        step = nearest_step(gradient, past)
        assert (past @ step > -1e-9).all()
        for _ in range(50):  # nothing that keeps them is nearer
            other = gradient + past.T @ torch.from_numpy(rng.exponential(size=4))
            if (past @ other >= 0).all():
                assert (step - gradient).norm() <= (other - gradient).norm() + 1e-9


def test_bad_batches_are_refused_and_nothing_is_lost(data):
    learner = make("replay", data)
    batches = list(stream(data))
    learner.observe(batches[0])
    before = {k: v.clone() for k, v in learner.model.state_dict().items()}
    kept, position, classes = len(learner.memory), learner.position, list(learner.classes)
    good = batches[1]
    wide = SparseRows(good.x.indptr, good.x.indices, good.x.values, 91)
    wide_neighbors = good.neighbors.with_features(
        SparseRows(*list(vars(good.neighbors.features).values())[:3], 91)
    )
    nan = SparseRows(good.x.indptr, good.x.indices, good.x.values * torch.nan, 90)
    for bad, message in (
        (replace(good, target=good.target * 0 - 1), "labels must be 0 or more"),
        (replace(good, x=wide, neighbors=wide_neighbors), r"keep the shape \(1, 90\)"),
        (replace(good, x=nan, target=good.target + 7), "features must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            learner.observe(bad)
    assert learner.position == position
    assert len(learner.memory) == kept
    assert learner.classes == classes
    assert all(torch.equal(v, before[k]) for k, v in learner.model.state_dict().items())
    learner.observe(good)


@pytest.mark.parametrize("model", ["fgn", "gcn"])
def test_a_refused_first_batch_leaves_no_trace(data, model):
    good = next(iter(stream(data)))
    narrow = [
        SparseRows.from_dense(rows.to_dense()[:, :80]) for rows in (good.x, good.neighbors.features)
    ]
    bad = replace(good, x=narrow[0], neighbors=good.neighbors.with_features(narrow[1]))
    small = replace(good, node=good.node * 0 - 1)
    network = FGN(90, 0) if model == "fgn" else baseline(model, 90, 0)
    for method, memory, batch, message in (
        (Finetune(), None, bad, "for this model, got"),
        (Finetune(), None, good.select(torch.arange(0)), "at least one item, got none"),
        (Replay(), Reservoir(capacity_bytes=100), good, "capacity_bytes must hold at least one"),
        (METHODS["der"](), Reservoir(10), small, "set batch.node"),
    ):
        learner = Learner(network, method, memory)
        with pytest.raises(ValueError, match=message):
            learner.observe(batch)
        assert learner.classes == []
        assert learner.position == 0
        with pytest.raises(RuntimeError, match="nothing has been learned yet"):
            learner.predict(good)
    Learner(network, Finetune()).observe(good)


@pytest.mark.parametrize("steps", [False, True])
def test_joint_learning_predicts_with_what_it_has_just_learned(data, steps):
    """A running average must not be of the network before the training."""
    learner = make("joint", data, dropout=0.0)
    learner.training = replace(learner.training, averaging=0.5, average_steps=steps)
    learner.method.epochs = 10
    for batch in stream(data, scenario="data"):
        learner.observe(batch)
    assert learner.evaluate(stream(data).test()) > 0.6


def test_predicting_comes_after_learning(data):
    with pytest.raises(RuntimeError, match="nothing has been learned yet"):
        make("replay", data).predict(next(iter(stream(data))))


def test_methods_that_need_a_memory_say_so(data):
    with pytest.raises(ValueError, match=r"Replay needs a memory, got None; give one, .*Reservoir"):
        Learner(FGN(data.graph.num_features, 0), Replay())


def test_one_item_calls_take_one_item(data):
    learner, batch = make("finetune", data), next(iter(stream(data)))
    with pytest.raises(ValueError, match="learn_one takes one item, got 10; use observe"):
        learner.learn_one(batch)
    learner.observe(batch)
    with pytest.raises(ValueError, match="predict_one takes one item, got 10; use predict"):
        learner.predict_one(batch)


def test_a_diverging_run_says_what_to_do(data):
    learner = make("replay", data)
    with torch.no_grad():
        learner.model.blocks[0].norm.weight.fill_(torch.inf)
    with pytest.raises(FloatingPointError, match=r"the loss is nan .* lower lr than 0.02"):
        learner.observe(next(iter(stream(data))))


@pytest.mark.parametrize(
    "bad", [{"optimizer": "rms"}, {"lr": 0.0}, {"steps": 0}, {"replay_every": 0}]
)
def test_training_that_cannot_work_is_refused(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        Training(**bad)


def test_checkpoints_of_another_configuration_are_refused(data, tmp_path):
    path = tmp_path / "c.safetensors"
    make("replay", data).save(path)
    other = Learner(FGN(data.graph.num_features, 0, channels=(4, 4), dropout=0.2), Finetune())
    with pytest.raises(CheckpointError, match="another configuration: method is Replay"):
        other.load(path)
    other = make("replay", data, capacity=41)
    with pytest.raises(CheckpointError, match=r"capacity=40, .* there, .*capacity=41, .* here"):
        other.load(path)


@pytest.mark.parametrize(
    "setting",
    [
        {"normalization": "none"},
        {"gain": 0.1},
        {"centered": False},
        {"dropout": 0.3},
        {"directed": True},
    ],
)
def test_checkpoints_of_another_network_with_the_same_shapes_are_refused(data, tmp_path, setting):
    path = tmp_path / "c.safetensors"
    Learner(FGN(data.graph.num_features, 0), Finetune()).save(path)
    Learner(FGN(data.graph.num_features, 0), Finetune()).load(path)
    ((name, value),) = setting.items()
    with pytest.raises(CheckpointError, match=f"{name}=.* there, .*{name}={value}.* here"):
        Learner(FGN(data.graph.num_features, 0, **setting), Finetune()).load(path)
    Learner(baseline("mlp", data.graph.num_features, 0), Finetune()).save(path)
    with pytest.raises(CheckpointError, match=r"teleport=1.0.* there, .*teleport=0.1.* here"):
        Learner(baseline("appnp", data.graph.num_features, 0), Finetune()).load(path)


@pytest.mark.parametrize(
    ("common", "setting"),
    [
        ({"attention": "softmax"}, {"attention": "gate"}),
        ({"attention": "softmax"}, {"scaled_attention": True}),
        ({"features": (5, 5), "norm": "layer"}, {"norm": "none"}),
        ({"features": (5, 5)}, {"activation": "relu"}),
        ({"layer": "residual"}, {"message_scale": (1.0, 0.5)}),
        ({"features": (90, 90), "channels": (1, 1), "residual": 0.5}, {"residual": 0.1}),
        ({"nodes": 2, "places": torch.ones(1, 2, 2).bool()}, {"places": torch.eye(2).bool()[None]}),
    ],
    ids=str,
)
def test_what_no_shape_tells_is_compared_too(data, tmp_path, common, setting):
    path = tmp_path / "c.safetensors"
    Learner(FGN(90, **common), Finetune()).save(path)
    Learner(FGN(90, **common), Finetune()).load(path)
    with pytest.raises(CheckpointError, match=f"model is .*{next(iter(setting))}=.* there"):
        Learner(FGN(90, **{**common, **setting}), Finetune()).load(path)


@pytest.mark.parametrize("name", ["replay", "ewc", "analytic"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_learner_goes_back_to_before_it_met_a_class(data, tmp_path, name, optimizer):
    path, batches = tmp_path / "c.safetensors", list(stream(data))
    learner = make(name, data, optimizer)
    learner.observe(batches[0])
    learner.save(path)
    expected = learner.output(batches[0])
    for batch in batches[1:]:
        learner.observe(batch)
    assert len(learner.classes) == 3
    learner.load(path)
    assert learner.classes == [0]
    assert torch.equal(learner.output(batches[0]), expected)
    again = make(name, data, optimizer)
    again.load(path)
    for one in (learner, again):
        for batch in batches[-3:]:
            one.observe(batch)
    assert torch.equal(learner.output(batches[0]), again.output(batches[0]))


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "missing"])
def test_damaged_checkpoints_are_refused(data, tmp_path, damage):
    path = tmp_path / "c.safetensors"
    learner = make("replay", data)
    learner.observe(next(iter(stream(data))))
    learner.save(path)
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[-100] ^= 1
    path.write_bytes({"empty": b"", "text": b"hello" * 100}.get(damage, content))
    if damage == "missing":
        path.unlink()
    expected = "no checkpoint at" if damage == "missing" else "truncated or damaged"
    with pytest.raises(CheckpointError, match=expected):
        make("replay", data).load(path)


def test_a_failed_save_keeps_the_old_checkpoint(tmp_path):
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, {"a": torch.ones(2)}, {"n": 1})
    with pytest.raises(TypeError):
        write_checkpoint(path, {"a": torch.zeros(2)}, {"n": object()})
    tensors, values = read_checkpoint(path)
    assert values == {"n": 1}
    assert tensors["a"].tolist() == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_values_are_json(data, tmp_path):
    path = tmp_path / "c.safetensors"
    learner = make("replay", data)
    learner.save(path)
    json.dumps(read_checkpoint(path)[1])


class Columns(torch.nn.Module):
    """A head with a parameter of its own for every class."""

    def __init__(self, features):
        super().__init__()
        self.features, self.outputs = features, 0

    def grow(self, outputs):
        for number in range(self.outputs, outputs):
            fresh = torch.nn.Parameter(torch.ones(self.features))
            self.register_parameter(f"class {number}", fresh)
        self.outputs = outputs

    def forward(self, x):
        return x @ torch.stack(list(self.parameters()), 1)


class Linear(torch.nn.Module):
    """A linear model whose buffer shares one number among all features."""

    def __init__(self, features):
        super().__init__()
        self.head = Columns(features)
        self.requires = FGN(features).requires
        self.register_buffer("scale", torch.ones(1).expand(features))

    def forward(self, batch):
        return self.head(batch.x.to_dense() * self.scale)


class Failing(Finetune):
    """Learns, and fails then if it is told to."""

    fails = False

    def observe(self, learner, batch):
        super().observe(learner, batch)
        if self.fails:
            raise KeyboardInterrupt


def test_a_parameter_that_came_with_a_class_goes_with_it(data):
    learner = Learner(Linear(data.graph.num_features), Failing())
    first, *_, last = stream(data)
    learner.observe(first)
    before = [name for name, _ in learner.model.named_parameters()]
    learner.method.fails = True
    with pytest.raises(KeyboardInterrupt):
        learner.observe(last)
    assert [name for name, _ in learner.model.named_parameters()] == before == ["head.class 0"]
    assert learner.model.head.outputs == 1
    learner.method.fails = False
    learner.observe(last)
    assert learner.output(last).shape == (len(last), 2)


def test_buffers_that_cannot_be_written_to_are_checked(data):
    learner = Learner(Linear(data.graph.num_features), Finetune(), training=Training(steps=1))
    batch = next(iter(stream(data)))
    learner.observe(batch)
    spoil = learner.model.register_forward_hook(
        lambda model, *_: setattr(model, "scale", torch.tensor(torch.nan).expand(len(model.scale)))
    )
    before = learner.digest()
    with pytest.raises(FloatingPointError, match="scale became non-finite"):
        learner.observe(batch)
    spoil.remove()
    assert learner.digest() == before
