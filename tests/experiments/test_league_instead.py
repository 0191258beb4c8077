"""What stands in place of Â, against F × F matrices, on sparse and on dense items."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from evergraph import FGN, Finetune, Learner, Training, node_continuum
from evergraph.datasets import generate
from evergraph.feature_graph import Normalization, normalize, propagate
from evergraph.graph.neighbors import as_dense
from experiments.league.instead import Instead, Replaced, WithInstead


def items(planes=2, features=7, count=3):
    rng = torch.Generator().manual_seed(0)
    x, mean = (torch.rand(count, p, features, generator=rng).double() for p in (1, planes))
    return x * (x > 0.5), mean * (mean > 0.3)


@pytest.mark.parametrize("how", get_args(Normalization))
def test_the_product_is_that_of_a_matrix(how):
    x, mean = items()
    z = torch.rand(3, 4, 7).double()
    pairs = x[:, :, :, None] * mean[:, :, None, :]
    matrix = normalize((pairs + pairs.mT).unsqueeze(2), how)
    found = Replaced("product", x, mean, how, None).propagate(z)
    assert torch.allclose(found, propagate(matrix, z), atol=1e-12)


def test_the_identity_and_the_mean_collect_what_they_say():
    x, mean = items()
    z = torch.rand(3, 4, 7).double()
    assert torch.equal(
        Replaced("identity", x, mean, "row", None).propagate(z), torch.cat([z, z], 1)
    )
    graph = Replaced("mean", x, mean, "row", None)
    assert torch.equal(graph.propagate(x), mean)
    assert torch.equal(graph.propagate(z), torch.cat([z, z], 1))


@pytest.mark.parametrize("instead", get_args(Instead))
def test_sparse_and_dense_items_give_the_same(instead):
    """One layer, since all that is not there stays 0 before the activation."""
    batch = next(iter(node_continuum(generate())))
    dense = replace(
        batch,
        x=as_dense(batch.x),
        neighbors=batch.neighbors.with_features(as_dense(batch.neighbors.features)),
    )
    network = FGN(500, 3, channels=(4,), concatenate=True).eval()
    model = WithInstead(network, instead)
    graph = network.graph(*_first(network, dense), 0)
    assert graph.support is not None  # sparse enough for the support
    network.double()
    assert torch.allclose(model(batch), model(dense), atol=1e-10)
    assert not torch.allclose(model(batch), network(batch), atol=1e-4)


def _first(network, batch):
    x, layout, _ = network._laid_out(batch)
    return x, layout.neighbors.features, layout


@pytest.mark.parametrize("instead", get_args(Instead))
def test_it_learns_a_batch_and_every_parameter_gets_a_gradient(instead):
    batch = next(iter(node_continuum(generate(), scenario="data")))
    model = WithInstead(FGN(500, concatenate=True), instead)
    learner = Learner(model, Finetune(), training=Training(lr=0.1, steps=30))
    learner.observe(batch)
    assert learner.evaluate([batch]) == 1
    learner.model(batch).square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in learner.model.parameters())
