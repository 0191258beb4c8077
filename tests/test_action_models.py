"""Networks for windows of sensors: the compiled product and the dense forms against the dumbest."""

import pytest
import torch

from evergraph.apps.action.models import (
    ConvolutionBlock,
    GraphNetwork,
    WindowGraph,
    attend,
    neighborhoods,
)
from evergraph.apps.action.networks import NETWORKS, network
from evergraph.apps.action.plain import Convolutions, Perceptron, signals
from evergraph.apps.action.preprocessing import Augmentation, Standardize, rotations, triples
from evergraph.apps.action.propagation import propagated
from evergraph.apps.action.recording import Layout
from evergraph.feature_graph import Neighbors, feature_adjacency, feature_graph, normalize
from evergraph.nn.fgn import FGN
from evergraph.nn.layers import FeatureAttention
from experiments.action_statistics import window_statistics

LAYOUT = Layout(("a", "b", "c"), ("x", "y"), 25.0)


def packed(x, hops=2):
    """All neighbors of all nodes of windows `(B, 2 S, C, F)`, one by one, as the library has it."""
    size, nodes = x.shape[:2]
    sensors = nodes // 2
    features, owner, hop = [], [], []
    for b in range(size):
        for i in range(nodes):
            for j in range(nodes):
                distance = 1 if i // sensors == j // sensors else 2
                if i != j and distance <= hops:
                    features.append(x[b, j])
                    owner.append(b * nodes + i)
                    hop.append(distance)
    return Neighbors(torch.stack(features), torch.tensor(owner), torch.tensor(hop))


def reference(x, mean):
    """Eqs. (4)-(6) with stored matrices."""
    hat = normalize(feature_adjacency(x, mean.movedim(0, -3)))
    return (hat @ x.unsqueeze(-3).unsqueeze(-1)).squeeze(-1).movedim(-3, 0)


@pytest.mark.parametrize("rows", [1, 130])  # one lane, and more than a block of them
def test_the_compiled_product_is_the_matrix_product(rows):
    x = torch.randn(rows, 2, 7, dtype=torch.float64, requires_grad=True)
    mean = torch.randn(2, rows, 2, 7, dtype=torch.float64, requires_grad=True)
    grad = torch.randn_like(mean)
    expected = torch.autograd.grad(reference(x, mean), (x, mean), grad)
    found = torch.autograd.grad(propagated(x, mean), (x, mean), grad)
    torch.testing.assert_close(propagated(x, mean), reference(x, mean))
    torch.testing.assert_close(found, expected)


def test_the_product_mixes_features():
    x = torch.rand(1, 1, 5) + 0.1
    other = x.clone()
    other[..., 0] += 1
    mean = torch.rand(1, 1, 1, 5) + 0.1
    changed = (propagated(other, mean) - propagated(x, mean)).flatten()
    assert (changed[1:].abs() > 1e-4).all(), "one feature must be felt by all others"


def test_zeros_are_missing_edges_with_zero_gradient():
    x = torch.zeros(2, 1, 4, dtype=torch.float64, requires_grad=True)
    mean = torch.zeros(1, 2, 1, 4, dtype=torch.float64, requires_grad=True)
    propagated(x, mean).sum().backward()
    assert not x.grad.any()
    assert not mean.grad.any()


def test_hop_one_is_the_instant_and_hop_two_the_other():
    around = neighborhoods(sensors=5)
    assert around.sum(-1).tolist() == [[4] * 10, [5] * 10]
    assert not around[0].diagonal().any()
    assert around[0, 0, 1]
    assert not around[0, 0, 5]
    assert around[1, 0, 5]
    assert not around[1, 0, 1]


@pytest.mark.parametrize("scaled", [True, False])
def test_attention_is_that_of_packed_neighbors(scaled):
    x = torch.randn(3, 6, 2, 5)
    attention = FeatureAttention(2, 5, scaled=scaled)
    weight = attend(attention, x, neighborhoods(3))
    neighbors = packed(x)
    expected = attention(x, neighbors, hops=2)
    nodes = x.shape[1]
    place = torch.tensor([[j for j in range(nodes) if j != i] for i in range(nodes)])
    for row, (owner, hop) in enumerate(zip(neighbors.owner, neighbors.hop, strict=True)):
        b, i = divmod(int(owner), nodes)
        j = int(place[i][row % (nodes - 1)])
        torch.testing.assert_close(weight[b, int(hop) - 1, i, j], expected[row])
    torch.testing.assert_close(weight.sum(-1), torch.ones(3, 2, nodes))


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("hops", [1, 2])
def test_one_layer_is_the_library_s_network_on_packed_neighbors(attention, hops):
    x = torch.randn(4, 6, 2, 5)
    ours = GraphNetwork(
        3,
        2,
        5,
        4,
        attention=attention,
        hops=hops,
        channels=(3,),
        kernels=None,
        widths=(4,),
        rate=0.0,
    ).eval()
    ours.scaling.update(x)
    library = FGN(
        5, 4, in_channels=2, channels=(3,), features=(4,), concatenate=True, attention=attention,
        hops=hops, problem="subgraph", nodes=6,
    ).eval()  # fmt: skip
    state = {k: v for k, v in ours.state_dict().items() if not k.startswith("scaling")}
    library.load_state_dict(state)
    for there, here in zip(library.attentions, ours.attentions, strict=True):
        there.scale = here.scale
    scaled = ours.scaling(x)
    torch.testing.assert_close(ours(x), library(scaled, packed(scaled, hops)))


def test_the_second_layer_finds_neighbors_transformed_by_their_own_graphs():
    x = torch.randn(2, 4, 2, 5, dtype=torch.float64)
    model = GraphNetwork(2, 2, 5, 3, channels=(3, 2), kernels=None, widths=(4, 3)).double().eval()
    model.scaling.update(x)
    y = model.scaling(x)
    for attention, block in zip(model.attentions, model.blocks, strict=True):
        neighbors = packed(y)
        graph = feature_graph(y, neighbors.with_weight(attention(y, neighbors, 2)), hops=2)
        y = block.norm.softsign(block.layer(graph)[0])[0]
    torch.testing.assert_close(model.encode(x)[0], y)


@pytest.mark.parametrize("name", NETWORKS)
def test_laws_of_every_network(name):
    model = network(name, LAYOUT, features=10, rate=0.0)
    model.grow(4)
    x = torch.randn(6, 6, 2, 10)
    kept = x.clone()
    model.scaling.update(x)
    model.train()
    model(x).square().sum().backward()
    torch.testing.assert_close(x, kept)
    silent = {n for n, p in model.named_parameters() if p.grad is None}
    assert not silent, silent
    model.eval()
    assert model(x).shape == (6, 4)
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]), rtol=1e-4, atol=1e-5)
    twin = network(name, LAYOUT, features=10, rate=0.0)
    twin.grow(4)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(twin.eval()(x), model(x))
    before = model(x)
    model.grow(5)
    torch.testing.assert_close(model(x)[:, :4], before)
    again, other = (network(name, LAYOUT, 10, seed=s) for s in (0, 1))
    first = next(p for p in again.parameters() if p.numel() > 1)
    second = next(p for p in other.parameters() if p.numel() > 1)
    assert not torch.equal(first, second)


def test_identity_sees_no_neighbor_and_the_feature_graph_does():
    x = torch.randn(1, 6, 2, 10)
    other = x.clone()
    other[0, 1] += 1.0
    for name, differs in (("fgn-identity", False), ("fgn", True), ("gat", True)):
        model = network(name, LAYOUT, 10, rate=0.0).eval()
        model.scaling.update(torch.randn(20, 6, 2, 10))
        change = (model.encode(x)[0] - model.encode(other)[0])[0, 0].abs().max()
        assert bool(change > 1e-6) == differs, name


def sizes_of(model, x):
    """The nodes after each layer."""
    for layer, block in enumerate(model.blocks):
        x = block(WindowGraph(x, model.collect(x, layer)))[0]
        yield x


def test_a_convolution_block_is_a_circulant_matrix():
    block = ConvolutionBlock(4, 3, kernel=3, rate=0.0).double().eval()
    x, around = torch.randn(2, 5, 2, 8).double(), torch.randn(1, 2, 5, 2, 8).double()
    weight = torch.zeros(3, 8, 4, 8, dtype=torch.float64)  # W of Eq. (8), any pair of features
    for f in range(8):
        for reach in range(3):
            weight[:, f, :, (f + reach - 1) % 8] += block.layer.weight[:, :, reach]
    both = torch.cat([around[0], x], dim=2)
    y = torch.einsum("dfcg,bncg->bndf", weight, both) + block.layer.bias[:, None]
    y = block.norm(y)[0].relu().unflatten(-1, (4, 2)).amax(-1)
    torch.testing.assert_close(block(WindowGraph(x, around))[0], y)


def test_the_paper_s_sizes_and_equal_parameters():
    layout = Layout(tuple("abcde"), tuple("uvwxy"), 30.0)
    fgn = network("fgn", layout, features=25)
    assert [tuple(y.shape[1:]) for y in sizes_of(fgn, torch.randn(2, 10, 5, 25))] == [
        (10, 32, 12), (10, 32, 6),
    ]  # fmt: skip
    assert network("fgn-dense", layout, 25).blocks[0].layer.shape == (32, 12)
    wide = Layout(tuple("abcde"), tuple("stuvwxyz1"), 25.0)
    count = {}
    for name in ("fgn", "gat", "cnn"):
        model = network(name, wide, 25)
        model.grow(19)
        count[name] = sum(p.numel() for p in model.parameters())
    assert count["fgn"] == count["gat"]
    assert abs(count["cnn"] / count["fgn"] - 1) < 0.05


def test_signals_are_in_the_order_of_time():
    time = torch.arange(8.0)
    x = torch.stack([time[:4], time[4:]]).view(1, 2, 1, 4)
    assert signals(x).flatten().tolist() == time.tolist()
    found = window_statistics(x).flatten()
    assert found[0] == 3.5
    assert (found[2], found[3], found[4]) == (0, 7, 1)


def test_scaling_is_the_same_in_parts_and_keeps_gravity():
    x = torch.randn(2500, 4, 3, 5) * 3 + 7
    whole, parts = Standardize(2, 3), Standardize(2, 3)
    whole.update(x)
    parts.update(x[:10])
    parts.update(x[10:])
    torch.testing.assert_close(whole.mean, parts.mean)
    torch.testing.assert_close(whole.deviation, parts.deviation)
    torch.testing.assert_close(whole.mean[0, 0], x[:, [0, 2], 0].mean())
    flat = torch.full((1, 4, 3, 5), 9.0)
    assert (whole(flat) > 0.3).all(), "a recording that stays above the mean stays above it"


def test_a_constant_signal_does_not_divide_by_zero():
    scaling = Standardize(1, 1)
    scaling.update(torch.full((3, 2, 1, 4), 5.0))
    assert scaling(torch.full((1, 2, 1, 4), 5.0)).abs().max() == 0


def test_unknown_networks_are_named():
    with pytest.raises(ValueError, match="model must be one of fgn"):
        network("lstm", LAYOUT, 10)


def test_other_networks_are_plain_modules():
    assert Perceptron(2, 2, 4).hops == Convolutions(2, 2).hops == 1


# -- disturbed training windows -------------------------------------------------------------


def test_only_whole_triples_of_axes_are_turned():
    assert triples(("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y")) == ((0, 1, 2),)
    assert triples(("mag_z", "temp", "mag_x", "mag_y")) == ((2, 3, 0),)
    assert triples(("a", "b")) == ()


def test_rotations_keep_lengths_and_turn_by_the_angle():
    turned = rotations(torch.tensor([0.0, 0.0, torch.pi / 2]))
    expected = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    assert torch.allclose(turned, expected, atol=1e-6)
    many = rotations(torch.randn(4, 5, 3))
    assert torch.allclose(many @ many.mT, torch.eye(3).expand(4, 5, 3, 3), atol=1e-5)


def test_a_disturbance_is_the_same_for_both_instants_and_keeps_other_channels():
    half = torch.randn(6, 2, 5, 7)
    x = torch.cat([half, half], dim=1)
    torch.manual_seed(0)
    turned = Augmentation(axes=((0, 1, 2),), turn=0.5, gain=0.0, loss=0.0)(x)
    assert torch.allclose(turned[:, :2], turned[:, 2:])
    assert torch.allclose(turned[:, :, 3:], x[:, :, 3:])
    assert not torch.allclose(turned[:, :, :3], x[:, :, :3])
    assert torch.allclose(turned.square().sum(2), x.square().sum(2), atol=1e-4)
    assert torch.equal(Augmentation(turn=0.0, gain=0.0, loss=0.0)(x), x)
    assert not Augmentation(loss=1.0)(x).any()


@pytest.mark.parametrize("name", ["fgn", "mlp", "cnn"])
def test_windows_are_disturbed_in_training_alone(name):
    model = network(name, LAYOUT, features=10, disturb=True, rate=0.0)
    model.grow(3)
    x = torch.randn(8, 2 * len(LAYOUT.sensors), len(LAYOUT.channels), 10)
    model.scaling.update(x)
    model.train()
    assert not torch.equal(model.scaling(x), model.scaling(x))
    model.eval()
    assert torch.equal(model(x), model(x))
