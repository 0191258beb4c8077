"""Small tensors side by side: what moves, what stays where it is, and what is put back."""

import copy
import math

import pytest
import torch
from torch import nn

from evergraph import FGN, Finetune, Learner, node_continuum
from evergraph.datasets import generate
from evergraph.learn.pool import LINE, SMALL, Pool
from evergraph.learn.transaction import Undo

BATCHES = list(node_continuum(generate()))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, SMALL))


def bits(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(some, others):
    return some.keys() == others.keys() and all(torch.equal(some[k], others[k]) for k in some)


def test_tensors_keep_their_numbers_and_begin_where_torchs_memory_does():
    model = network()
    before = bits(model)
    pool = Pool(model)
    assert same(before, bits(model))
    inside = [t for t in model.state_dict(keep_vars=True).values() if id(t) in pool.numbers]
    assert len(inside) == 6  # all but two that are large and an integer
    assert all(t.data_ptr() % LINE == 0 for t in inside)
    assert pool.fits(model)


def test_what_was_changed_replaced_or_registered_is_put_back():
    model = network()
    pool = Pool(model)
    before, contents = bits(model), pool.contents()
    with torch.no_grad():
        model[0].weight += 1
        model[1].num_batches_tracked += 1
        model[1].running_mean = torch.ones(7)
        model[0].bias.data = torch.ones(7)
        model[2].register_buffer("more", torch.ones(1))
    assert [name for name, _ in pool.others()] == ["running_mean", "more", "bias"]
    pool.put_back(contents)
    assert same(before, bits(model))
    assert pool.fits(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.append(nn.Identity()),
        lambda m: setattr(m[0], "bias", nn.Parameter(torch.ones(7))),
        lambda m: setattr(m[0].bias, "data", torch.ones(7)),
        lambda m: m.double(),
        lambda m: setattr(m[1], "more", nn.Buffer(torch.ones(1))),
    ],
)
def test_a_changed_model_needs_another_pool(change):
    model = network()
    pool = Pool(model)
    change(model)
    assert not pool.fits(model)


def renamed(model):
    model[2].scale = model[2]._parameters.pop("weight")


@pytest.mark.parametrize(
    ("change", "knows"),
    [
        (lambda m: setattr(m[0].bias, "data", torch.ones(7)), True),
        (lambda m: setattr(m[0], "bias", nn.Parameter(torch.ones(7))), False),
        (lambda m: m.append(nn.Linear(1, 1)), False),
        (renamed, False),
    ],
)
def test_a_step_takes_the_parameters_of_a_transaction_as_long_as_they_are_those_of_the_model(
    change, knows
):
    model, undo = network(), Undo()
    undo.keep_model(model)
    change(model)
    found = undo.parameters(model)
    assert isinstance(found, list) == knows
    wanted = [*model.named_parameters()]
    assert [(n, id(p)) for n, p in found] == [(n, id(p)) for n, p in wanted]


def test_shared_memory_stays_shared():
    model = network()
    model[2].bias.data = model[2].weight.data[:, 0]  # strided
    model[1].running_mean = model[0].bias.data  # all of it
    model[1].running_var = model[1].weight.data[:]
    Pool(model)
    with torch.no_grad():
        model[0].bias.fill_(3)
        model[1].weight.fill_(4)
    assert bool((model[1].running_mean == 3).all())
    assert bool((model[1].running_var == 4).all())


def test_copies_of_a_pooled_model_are_their_own():
    model = network()
    Pool(model)
    other, before = copy.deepcopy(model), bits(model)
    Pool(other)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.fill_(1)
    assert same(before, bits(model))


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_a_buffer_that_becomes_infinite_is_named_and_put_back(name):
    learner = Learner(FGN(500), Finetune())
    learner.observe(BATCHES[0])
    before, forward = learner.digest(), learner.model.forward

    def spoiled(batch):
        out = forward(batch)
        getattr(learner.model.blocks[0].norm, name).data[0] = math.inf  # as compiled loops do
        return out

    learner.model.forward = spoiled
    with pytest.raises(FloatingPointError, match=name):
        learner.observe(BATCHES[1])
    del learner.model.forward
    assert learner.digest() == before
    learner.observe(BATCHES[1])
