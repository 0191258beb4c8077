"""What every model has in common: its check of items, and its frozen copy."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from evergraph import FGN, node_continuum
from evergraph.datasets import load
from evergraph.nn.model import frozen


class Tied(nn.Module):
    """One weight under two names, one module in two places, and a list that holds it too."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.other = self.one
        self.weight, self.mean = self.one.weight, torch.ones(3)
        self.register_buffer("level", torch.ones(3))
        self.path = [self.one, {"level": 2}]


class Described(nn.Linear):
    def __getstate__(self):
        return {**vars(self), "described": True}


def test_a_frozen_copy_is_a_deep_copy_that_learns_nothing():
    model = FGN(50, 3, attention="softmax", dropout=0.3)
    made, expected = frozen(model), copy.deepcopy(model)
    assert list(made.state_dict()) == list(expected.state_dict())
    for name, tensor in expected.state_dict().items():
        assert torch.equal(made.state_dict()[name], tensor)
        assert made.state_dict()[name].data_ptr() != model.state_dict()[name].data_ptr()
    assert not any(part.training for part in made.modules())
    assert not any(p.requires_grad for p in made.parameters())
    assert all(p.requires_grad for p in model.parameters())
    assert model.training
    assert vars(made).keys() == vars(expected).keys()
    assert made.options == expected.options
    assert made.options is not model.options


def test_what_is_shared_stays_shared():
    model = Tied()
    made = frozen(model)
    assert made.one is made.other is made.path[0] is not model.one
    assert made.weight is made.one.weight
    assert made.path[1] == {"level": 2}
    assert made.path[1] is not model.path[1]
    with torch.no_grad():
        model.weight.zero_()
        model.mean.zero_()
        model.level.zero_()
    assert made.weight.any()
    assert made.mean.all()
    assert made.level.all()


def test_modules_that_copy_themselves_do_so():
    made = frozen(nn.Sequential(Described(2, 2), nn.ReLU()))
    assert made[0].described
    assert not made[0].weight.requires_grad
    assert not made[0].training


def test_items_are_checked_again_when_they_have_changed():
    data = load("generated")
    batch = next(iter(node_continuum(data)))
    requires = FGN(data.graph.num_features).requires
    requires.check(batch)
    assert vars(batch)["checked"]
    spoiled = copy.deepcopy(batch)
    for changed in (batch, spoiled):
        changed.x.values[0] = torch.nan
        with pytest.raises(ValueError, match="item 0"):
            requires.check(changed)
    with pytest.raises(ValueError, match="must have shape"):
        replace(requires, shape=(1, 7)).check(next(iter(node_continuum(data))))
