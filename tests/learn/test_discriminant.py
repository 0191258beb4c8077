"""Linear discriminant analysis from sums of groups, against covariances that are written out."""

import numpy as np
import pytest
import torch

from evergraph.graph.neighbors import Neighbors
from evergraph.learn.learner import Learner
from evergraph.learn.methods import Analytic
from evergraph.learn.methods.analytic import discriminant
from evergraph.nn.fgn import FGN
from evergraph.stream.batch import Batch

CLASSES, TASKS, WIDTH = 3, 4, 5


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    target, task = rng.integers(CLASSES, size=200), rng.integers(TASKS, size=200)
    shift = rng.normal(size=(CLASSES, TASKS, WIDTH))
    return rng.normal(size=(200, WIDTH)) + shift[target, task], target, task


def written_out(x, target, task, strength, between):
    """The same as sums over single items."""
    means = np.stack([x[target == c].mean(0) for c in range(CLASSES)])
    left = np.zeros((WIDTH, WIDTH))
    for one, c, t in zip(x, target, task, strict=True):
        own = x[(target == c) & (task == t)].mean(0)
        left += np.outer(one - own, one - own) + between * np.outer(own - means[c], own - means[c])
    left /= len(x) - CLASSES
    left += strength * np.trace(left) / WIDTH * np.eye(WIDTH)
    weight = np.linalg.solve(left, means.T)
    share = np.bincount(target) / len(target)
    return weight, np.log(share) - 0.5 * np.einsum("cd,dc->c", means, weight)


@pytest.mark.parametrize("between", [0.0, 1.0, 4.0])
def test_the_covariance_is_that_of_the_items(drawn, between):
    x, target, task = drawn
    groups = [(c, t) for c in range(CLASSES) for t in range(TASKS)]
    mine = [(target == c) & (task == t) for c, t in groups]
    sums, counts = np.stack([x[m].sum(0) for m in mine], 1), np.array([m.sum() for m in mine])
    member = np.array([[c == k for k in range(CLASSES)] for c, _ in groups])
    found = discriminant(x.T @ x, sums, counts, member, 0.3, between)
    for one, other in zip(found, written_out(x, target, task, 0.3, between), strict=True):
        assert np.allclose(one, other)


def learner_of(drawn, order, between=1.0, by_task=False):
    x, target, task = (torch.from_numpy(part) for part in drawn)
    x = torch.nn.functional.normalize(x.float(), dim=-1).unsqueeze(1)
    model = FGN(WIDTH, layer="transform", channels=(), message="none")
    method = Analytic("lda", 0.3, blocks=("x",), between=between, by_task=by_task)
    learner = Learner(model, method, outliers="pass")

    def batch(rows):
        none = Neighbors(x[:0], torch.zeros(0, dtype=torch.long))
        return Batch(x[rows], none, target[rows], task[rows], rows)

    for part in order.split(40):
        learner.observe(batch(part))
    return learner, batch


@pytest.mark.parametrize("told_apart", [{"between": 4.0}, {"by_task": True}])
def test_tasks_count_in_any_order_and_are_forgotten_exactly(drawn, told_apart):
    every = torch.arange(200)
    learner, batch = learner_of(drawn, every, **told_apart)
    mixed, _ = learner_of(drawn, every.flip(0), **told_apart)
    columns = [mixed.classes.index(label) for label in learner.classes]
    assert torch.equal(learner.output(batch(every)), mixed.output(batch(every))[:, columns])
    plain, _ = learner_of(drawn, every)
    assert not torch.allclose(plain.output(batch(every)), learner.output(batch(every)))
    half, _ = learner_of(drawn, every[:120], **told_apart)
    learner.method.forget(learner, batch(every[120:]))
    assert learner.method.sums.digest() == half.method.sums.digest()


def test_a_class_has_the_shares_of_its_tasks(drawn):
    """Each task of a class is a normal distribution of its own, all with one covariance."""
    _, target, task = drawn
    every = torch.arange(200)
    learner, batch = learner_of(drawn, every, by_task=True)
    x = torch.nn.functional.normalize(torch.from_numpy(drawn[0]).float(), dim=-1).double().numpy()
    groups = [(c, t) for c in range(CLASSES) for t in range(TASKS)]
    mine = [(target == c) & (task == t) for c, t in groups]
    means = np.stack([x[m].mean(0) for m in mine])
    left = sum((x[m] - x[m].mean(0)).T @ (x[m] - x[m].mean(0)) for m in mine) / (200 - len(groups))
    left += 0.3 * np.trace(left) / WIDTH * np.eye(WIDTH)
    apart = x[:, None] - means
    density = np.exp(-0.5 * np.einsum("ngd,de,nge->ng", apart, np.linalg.inv(left), apart))
    share = density * np.array([m.sum() for m in mine])
    share = share.reshape(200, CLASSES, TASKS).sum(-1)
    found = learner.output(batch(every)).softmax(-1)
    expected = torch.from_numpy(share / share.sum(1, keepdims=True))[:, learner.classes]
    assert torch.allclose(found.double(), expected, atol=1e-3)


def test_a_class_whose_items_were_forgotten_is_not_predicted(drawn):
    every, target = torch.arange(200), drawn[1]
    learner, batch = learner_of(drawn, every, by_task=True)
    learner.method.forget(learner, batch(every[target == 1]))
    found = learner.output(batch(every))
    assert torch.isfinite(found).all()
    assert 1 not in learner.predict(batch(every)).tolist()


def test_a_learner_with_tasks_is_saved(drawn, tmp_path):
    every = torch.arange(200)
    learner, batch = learner_of(drawn, every, 4.0)
    learner.save(tmp_path / "model.safetensors")
    again, _ = learner_of(drawn, every[:40], 4.0)
    again.load(tmp_path / "model.safetensors")
    assert torch.equal(again.output(batch(every)), learner.output(batch(every)))


def test_ridge_has_no_covariance():
    with pytest.raises(ValueError, match="between is for solver 'lda'"):
        Analytic("ridge", between=2.0)
    with pytest.raises(ValueError, match="by_task is for solver 'lda' with between 1"):
        Analytic("lda", between=2.0, by_task=True)
