"""The optimizer against torch's own, step by step, and the moving average against a loop."""

import pytest
import torch
from torch import nn

from evergraph.learn import Training
from evergraph.learn.training import Optimizer, padded, update_average
from evergraph.learn.transaction import Undo


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()


def groups(model, decay):
    """Only weights decay: biases and scales are left alone."""
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": weights, "weight_decay": decay}, {"params": biases, "weight_decay": 0.0}]


def reference(model, training):
    settings = {"params": groups(model, training.weight_decay), "lr": training.lr}
    if training.optimizer == "adam":
        return torch.optim.Adam(**settings)
    return torch.optim.SGD(**settings, momentum=training.momentum)


def backward(model, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    target = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    model.zero_grad(set_to_none=True)
    (model(x) - target).square().mean().backward()


def assert_same(one, other):
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)


def two_of_a_kind():
    ours, theirs = network(), network()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "weight_decay": 0.1},
        {"optimizer": "adam"},
        {"optimizer": "adam", "weight_decay": 0.1},
    ],
    ids=str,
)
def test_every_step_is_torchs(settings):
    training = Training(lr=0.05, **settings)
    ours, theirs = two_of_a_kind()
    optimizer, known = Optimizer(training), reference(theirs, training)
    for step in range(12):
        backward(ours, step)
        backward(theirs, step)
        before = ours[0].weight.detach().clone()
        optimizer.step(ours)
        known.step()
        assert not torch.equal(before, ours[0].weight)
        assert_same(ours, theirs)
    assert optimizer.count == 12


@pytest.mark.parametrize("undo", [None, Undo()], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_strides_change_nothing(optimizer, undo):
    """A transposed parameter, or gradient, is moved as any other."""
    training = Training(lr=0.05, optimizer=optimizer, weight_decay=0.1)
    ours, theirs = two_of_a_kind()
    ours[0].weight.data = ours[0].weight.data.t().contiguous().t()
    step, known = Optimizer(training), reference(theirs, training)
    for number in range(4):
        for model in (ours, theirs):
            backward(model, number)
        ours[2].weight.grad = ours[2].weight.grad.t().contiguous().t()
        step.undo = undo
        if undo is not None:
            undo.begin()
        step.step(ours)
        known.step()
        assert_same(ours, theirs)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("cycle", [10, 25])
def test_the_cycle_is_torchs(optimizer, cycle):
    """Rate and β₁ of every step of OneCycleLR, and the weights that they lead to."""
    training = Training(optimizer=optimizer, lr=0.05, cycle=cycle)
    ours, theirs = two_of_a_kind()
    mine, known = Optimizer(training), reference(theirs, training)
    adam = optimizer == "adam"
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        known, training.lr, total_steps=cycle + 1, cycle_momentum=adam
    )
    rates = []
    for step in range(cycle + 1):
        backward(ours, step)
        backward(theirs, step)
        mine.step(ours)
        group = known.param_groups[0]
        rates.append(mine.lr)
        assert mine.lr == pytest.approx(group["lr"], rel=1e-12)
        if adam:
            assert mine.beta1 == pytest.approx(group["betas"][0], rel=1e-12)
        known.step()
        if step < cycle:
            schedule.step()
        assert_same(ours, theirs)
    assert max(rates) > 0.9 * training.lr
    assert rates[0] == pytest.approx(training.lr / 25)
    backward(ours, 99)
    mine.step(ours)  # after its end the rate stays where it is
    assert mine.lr == pytest.approx(rates[-1])


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"optimizer": "adam"}], ids=str)
def test_a_parameter_that_grows_keeps_its_past(settings):
    """The grown optimizer steps like torch's whose state is padded with zeros by hand."""
    training = Training(lr=0.05, **settings)
    ours, theirs = two_of_a_kind()
    optimizer, known = Optimizer(training), reference(theirs, training)
    for step in range(3):
        backward(ours, step)
        backward(theirs, step)
        optimizer.step(ours)
        known.step()
    held = {id(p): dict(known.state[p]) for p in theirs.parameters()}
    for model in (ours, theirs):
        last = model[2]
        for name in ("weight", "bias"):
            old = getattr(last, name)
            more = torch.zeros(4, *old.shape[1:], dtype=old.dtype)
            fresh = nn.Parameter(torch.cat([old.detach(), more[2:]]))
            held[id(fresh)] = {
                key: padded(value, fresh) if value.dim() else value
                for key, value in held.get(id(old), {}).items()
            }
            setattr(last, name, fresh)
    known = reference(theirs, training)
    for p in theirs.parameters():
        known.state[p] = {k: v.clone() for k, v in held[id(p)].items()}
    for step in range(3, 8):
        for model in (ours, theirs):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
            model.zero_grad(set_to_none=True)
            model(x).square().sum(1).exp().mean().backward()
        optimizer.step(ours)
        known.step()
        assert_same(ours, theirs)


@pytest.mark.parametrize(
    "settings", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"optimizer": "adam"}], ids=str
)
def test_sparse_gradients_step_as_dense_ones(settings):
    training = Training(lr=0.05, **settings)
    ours, theirs = two_of_a_kind()
    optimizer, known = Optimizer(training), reference(theirs, training)
    for step in range(4):
        backward(ours, step)
        backward(theirs, step)
        ours[0].weight.grad = ours[0].weight.grad.to_sparse(1)
        optimizer.step(ours)
        known.step()
        assert_same(ours, theirs)


def test_parameters_without_a_gradient_stay():
    model, optimizer = network(), Optimizer(Training(momentum=0.9))
    backward(model, 0)
    model[0].weight.grad = None
    before = model[0].weight.detach().clone()
    optimizer.step(model)
    assert torch.equal(model[0].weight, before)
    assert "0.weight:velocity" not in optimizer.state


def test_padding_adds_zeros_at_the_ends():
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    expected = torch.tensor([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.equal(padded(value, torch.empty(3, 3)), expected)


def test_the_moving_average_keeps_nine_tenths_of_the_past():
    average, expected = {}, None
    for step in range(6):
        now = torch.tensor([float(step), -2.0 * step])
        update_average(average, {"w": now, "count": torch.tensor(step)}, 0.9)
        values = now.tolist()
        expected = (
            values
            if expected is None
            else [0.9 * old + 0.1 * new for old, new in zip(expected, values, strict=True)]
        )
        assert average["w"].tolist() == pytest.approx(expected)
        assert int(average["count"]) == step  # whole numbers are not averaged
    assert average["w"][0] < 2.5  # far behind the last state, which is 5


def test_new_entries_of_an_average_start_as_they_are():
    average = {"w": torch.tensor([1.0, 2.0])}
    now = torch.tensor([3.0, 4.0, 7.0])
    update_average(average, {"w": now}, 0.9)
    assert average["w"].tolist() == pytest.approx([1.2, 2.2, 7.0])
    average["w"].zero_()
    assert now.tolist() == [3.0, 4.0, 7.0]
