"""Networks for windows of sensors: against a loop over the equations, and their laws."""

import pytest
import torch
from torch.nn.functional import leaky_relu

from evergraph.apps.action.network import (
    NETWORKS,
    Augmentation,
    Standardize,
    neighborhoods,
    network,
    rotations,
    signals,
    triples,
)
from evergraph.apps.action.recording import Layout
from evergraph.apps.action.windows import as_batch
from evergraph.feature_graph import Packed
from evergraph.feature_graph.equations import feature_adjacency, normalize
from evergraph.graph.neighbors import Neighbors
from evergraph.learn import Learner
from evergraph.learn.methods import Finetune
from evergraph.nn.fgn import FGN
from experiments.action_runs import window_statistics

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


def made(name, x, classes=4, **settings):
    """A network of double precision that knows some classes and the scale of windows."""
    model = network(name, LAYOUT, x.shape[-1], **{"dropout": 0.0, **settings})
    model.head.grow(classes)
    torch.nn.init.normal_(model.head.weight)
    model.encoder.update(x)
    return model.to(x.dtype)


# -- against the equations ------------------------------------------------------------------


def by_the_equations(model, x):
    """Logits of one convolution layer of FGN, node by node, channel by channel, moment by moment.

    Eqs. (4)-(6), (8) and (9) as they stand; W is a band that goes around the end.
    """
    attention, block = model.attentions[0], model.blocks[0]
    weight, bias = block.layer.band.weight, block.layer.band.bias
    x = model.encoder(x)
    size, nodes, channels, features = x.shape
    logits = []
    for b in range(size):
        read = []
        for i in range(nodes):
            planes = []
            for plane in neighborhoods(nodes // 2):
                there = [j for j in range(nodes) if plane[i, j]]
                score = torch.stack(
                    [
                        leaky_relu(
                            (
                                x[b, i].flatten() @ attention.center[:, 0]
                                + x[b, j].flatten() @ attention.neighbor[:, 0]
                            )
                            / (channels * features) ** 0.5
                            + attention.bias[0],
                            0.2,
                        )
                        for j in there
                    ]
                )
                share = score.softmax(0)  # Eq. (9)
                mean = sum(s * x[b, j] for s, j in zip(share, there, strict=True)) / len(there)
                for c in range(channels):
                    hat = normalize(feature_adjacency(x[b, i, c : c + 1], mean[None, c : c + 1]))
                    planes.append(hat[0, 0] @ x[b, i, c])
            planes += list(x[b, i])  # [Â x, x]
            reach = weight.shape[-1] // 2
            z = torch.stack(
                [
                    torch.stack(
                        [
                            bias[d]
                            + sum(
                                weight[d, c, r + reach] * planes[c][(f + r) % features]
                                for c in range(len(planes))
                                for r in range(-reach, reach + 1)
                            )
                            for f in range(features)
                        ]
                    )
                    for d in range(len(weight))
                ]
            )
            norm = block.norm
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            z = (z - norm.running_mean[:, None]) * scale[:, None] + norm.bias[:, None]
            pooled = [z[:, 2 * f : 2 * f + 2].amax(1) for f in range(features // 2)]
            read.append(torch.stack(pooled, dim=1).relu())
        y = torch.cat(read)
        logits.append(
            sum(y[c, f] * model.head.weight[f, c] for c in range(len(y)) for f in range(y.shape[1]))
            + model.head.bias
        )
    return torch.stack(logits)


def test_one_layer_of_fgn_is_a_loop_over_the_equations():
    x = torch.randn(2, 6, 2, 7, dtype=torch.float64)
    model = made("fgn", x, channels=(3,), kernels=(3,)).eval()
    norm = model.blocks[0].norm
    torch.nn.init.normal_(norm.running_mean)
    torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
    found, expected = model(as_batch(x)), by_the_equations(model, x)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    parameters = dict(model.named_parameters())
    ours = torch.autograd.grad(found, list(parameters.values()), grad)
    theirs = torch.autograd.grad(expected, list(parameters.values()), grad)
    for name, one, other in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def test_hop_one_is_the_instant_and_hop_two_the_other():
    around = neighborhoods(sensors=5)
    assert around.sum(-1).tolist() == [[4] * 10, [5] * 10]
    assert not around[0].diagonal().any()
    assert around[0, 0, 1]
    assert not around[0, 0, 5]
    assert around[1, 0, 5]
    assert not around[1, 0, 1]


def test_attention_is_that_of_packed_neighbors():
    x = torch.randn(3, 6, 2, 10)
    model = made("fgn", x)
    weight = model.attentions[0](x, x, model.places)
    neighbors = packed(x)
    layout = Packed(neighbors, num_items=18, hops=2)
    expected = model.attentions[0](x.flatten(0, 1), neighbors.features, layout)
    nodes = x.shape[1]
    place = torch.tensor([[j for j in range(nodes) if j != i] for i in range(nodes)])
    for row, (owner, hop) in enumerate(zip(neighbors.owner, neighbors.hop, strict=True)):
        b, i = divmod(int(owner), nodes)
        j = int(place[i][row % (nodes - 1)])
        torch.testing.assert_close(weight[b, int(hop) - 1, i, j], expected[row])
    torch.testing.assert_close(weight.sum(-1), torch.ones(3, 2, nodes))


@pytest.mark.parametrize("attention", ["softmax", None])
@pytest.mark.parametrize("hops", [1, 2])
def test_one_layer_is_the_library_s_network_on_packed_neighbors(attention, hops):
    x = torch.randn(4, 6, 2, 5)
    sizes = {"channels": (3,), "attention": attention, "hops": hops}
    ours = made("fgn-dense", x, widths=(4,), **sizes).eval()
    library = FGN(
        5, 4, in_channels=2, features=(4,), concatenate=True, scaled_attention=True, nodes=6,
        **sizes,
    ).eval()  # fmt: skip
    state = {k: v for k, v in ours.state_dict().items() if not k.startswith("encoder")}
    library.load_state_dict(state)
    scaled = ours.encoder(x)
    batch = as_batch(scaled)
    around = type(batch)(scaled, packed(scaled, hops), batch.target, batch.task, batch.node)
    torch.testing.assert_close(ours(as_batch(x)), library(around))


def test_the_second_layer_finds_neighbors_transformed_by_their_own_graphs():
    x = torch.randn(2, 6, 2, 5, dtype=torch.float64)
    model = made("fgn-dense", x, channels=(3, 2), widths=(4, 3)).eval()
    y = model.encoder(x)
    for attention, block in zip(model.attentions, model.blocks, strict=True):
        neighbors = packed(y)
        rows, layout = y.flatten(0, 1), Packed(neighbors, num_items=12, hops=2)
        weight = attention(rows, neighbors.features, layout)
        mean = layout.mean(neighbors.features, weight)
        hat = normalize(feature_adjacency(rows, mean))
        collected = (hat @ rows[:, None, :, :, None]).squeeze(-1).flatten(1, 2)
        z = torch.cat([collected, rows], dim=1).flatten(1) @ block.layer.weight.flatten(1).T
        y = block.norm.softsign(z.view(12, *block.layer.shape))[0].view(2, 6, *block.layer.shape)
    torch.testing.assert_close(model.embed(as_batch(x)), y)


def test_a_convolution_block_is_a_circulant_matrix():
    x = torch.randn(2, 6, 2, 8).double()
    block = made("fgn-uniform", x, channels=(3,), kernels=(3,), hops=1).eval().blocks[0]
    band = block.layer.band
    model = made("gcn", x, channels=(3,), kernels=(3,), hops=1)
    graph = model.graph(x, x, model.places, 0)
    weight = torch.zeros(3, 8, 4, 8, dtype=torch.float64)  # W of Eq. (8), any pair of features
    for f in range(8):
        for reach in range(3):
            weight[:, f, :, (f + reach - 1) % 8] += band.weight[:, :, reach]
    both = torch.cat([graph.mean[:, :, 0], x], dim=2)
    y = torch.einsum("dfcg,bncg->bndf", weight, both) + band.bias[:, None]
    y = block.norm(y)[0].relu().unflatten(-1, (4, 2)).amax(-1)
    torch.testing.assert_close(block(graph)[0], y)


# -- laws of every network ------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_laws_of_every_network(name):
    model = network(name, LAYOUT, features=10, dropout=0.0)
    assert isinstance(model, FGN)
    model.head.grow(4)
    x = torch.randn(6, 6, 2, 10)
    kept = x.clone()
    model.encoder.update(x)
    model.train()
    model(as_batch(x)).square().sum().backward()
    torch.testing.assert_close(x, kept)
    silent = {n for n, p in model.named_parameters() if p.grad is None}
    assert not silent, silent
    model.eval()
    before = model(as_batch(x))
    assert before.shape == (6, 4)
    torch.testing.assert_close(before[2:3], model(as_batch(x[2:3])), rtol=1e-4, atol=1e-5)
    twin = network(name, LAYOUT, features=10, dropout=0.0)
    twin.head.grow(4)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(twin.eval()(as_batch(x)), before)
    model.head.grow(5)
    torch.testing.assert_close(model(as_batch(x))[:, :4], before)
    same, again, other = (network(name, LAYOUT, 10, seed=s).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(same[key], again[key]) for key in same)
    assert any(not torch.equal(same[key], other[key]) for key in same)


@pytest.mark.parametrize("name", NETWORKS)
def test_windows_of_another_shape_are_refused(name):
    model = network(name, LAYOUT, features=10)
    model.head.grow(2)
    for shape in ((1, 6, 3, 10), (1, 6, 2, 9), (1, 4, 2, 10)):
        with pytest.raises(ValueError, match="must have"):
            model(as_batch(torch.randn(shape)))


@pytest.mark.parametrize("name", ["fgn", "gat", "gcn", "appnp", "gat-plain", "fgn-dense"])
def test_moved_sensors_move_their_nodes_and_nothing_else(name):
    x = torch.randn(4, 6, 2, 10, dtype=torch.float64)
    order = torch.tensor([2, 0, 1])
    both = torch.cat([order, 3 + order])  # the same in both instants
    model, moved = made(name, x).eval(), made(name, x).eval()
    moved.load_state_dict(model.state_dict())
    moved.encoder.mean.copy_(model.encoder.mean[order])
    moved.encoder.square.copy_(model.encoder.square[order])
    batch, other = as_batch(x), as_batch(x[:, both])
    torch.testing.assert_close(moved.embed(other), model.embed(batch)[:, both])
    if name != "gat-plain":  # whose nodes all collect the same
        assert not torch.allclose(moved(other), model(batch)), "a place on the body has a meaning"
    weight = model.head.weight.detach().unflatten(1, (6, -1))
    moved.head.weight.data = weight[:, both].flatten(1, 2)
    torch.testing.assert_close(moved(other), model(batch))


def test_identity_sees_no_neighbor_and_the_feature_graph_does():
    x = torch.randn(1, 6, 2, 10)
    other = x.clone()
    other[0, 1] += 1.0
    for name, differs in (("fgn-identity", False), ("fgn", True), ("gat", True)):
        model = made(name, torch.randn(20, 6, 2, 10)).eval()
        change = (model.embed(as_batch(x)) - model.embed(as_batch(other)))[0, 0].abs().max()
        assert bool(change > 1e-6) == differs, name


def test_the_paper_s_sizes_and_equal_parameters():
    layout = Layout(tuple("abcde"), tuple("uvwxy"), 30.0)
    batch = as_batch(torch.randn(2, 10, 5, 25))
    one = network("fgn", layout, 25, channels=(32,), kernels=(5,))
    assert one.embed(batch).shape == (2, 10, 32, 12)
    assert network("fgn", layout, features=25).embed(batch).shape == (2, 10, 32, 6)
    assert network("fgn-dense", layout, 25).blocks[0].layer.shape == (32, 12)
    wide = Layout(tuple("abcde"), tuple("stuvwxyz1"), 25.0)
    count = {}
    for name in ("fgn", "gat", "cnn"):
        model = network(name, wide, 25)
        model.head.grow(19)
        count[name] = sum(p.numel() for p in model.parameters())
    assert count["fgn"] == count["gat"]
    assert abs(count["cnn"] / count["fgn"] - 1) < 0.05


def test_networks_without_a_graph_are_plain_stacks_of_layers():
    x = torch.randn(5, 6, 2, 8)
    mlp, cnn = made("mlp", x).eval(), made("cnn", x).eval()
    y = mlp.encoder(x).flatten(1)
    assert y.shape == (5, 6 * 2 * 8)
    for block in mlp.blocks:
        y = block.norm((y @ block.layer.weight.flatten(1).T).unsqueeze(-1))[0].relu().squeeze(-1)
    expected = y @ mlp.head.weight[0] + mlp.head.bias
    torch.testing.assert_close(mlp(as_batch(x)), expected)
    z = cnn.encoder(x).squeeze(1)
    for number, block in enumerate(cnn.blocks):
        band = block.layer.band
        z = torch.nn.functional.conv1d(z, band.weight, band.bias, padding=2)  # zeros at the ends
        z = block.norm(z)[0].relu()
        z = z if number == 2 else torch.nn.functional.max_pool1d(z, 2)
    assert z.shape == (5, 104, 4), "16 moments, halved twice: the head pools the rest"
    torch.testing.assert_close(cnn.embed(as_batch(x)).squeeze(1), z)
    pooled = torch.cat([z.mean(-1), z.amax(-1)], dim=-1)
    torch.testing.assert_close(cnn(as_batch(x)), pooled @ cnn.head.weight[0] + cnn.head.bias)


def test_a_pooled_head_needs_dense_features_of_items():
    for settings in ({"layer": "broadcast"}, {"layer": "transform", "head": "pairs"}):
        with pytest.raises(ValueError, match="pooled reads dense features"):
            FGN(5, pooled=True, **settings)


def test_unknown_networks_are_named():
    with pytest.raises(ValueError, match="model must be one of fgn"):
        network("lstm", LAYOUT, 10)
    with pytest.raises(ValueError, match="arrangement must be one of sensors"):
        Standardize(1, 1, 4, "heap")
    with pytest.raises(ValueError, match="2 layers need more than 3 features"):
        network("fgn", LAYOUT, 3)


# -- standardization and augmentation -------------------------------------------------------


def test_signals_are_in_the_order_of_time():
    time = torch.arange(8.0)
    x = torch.stack([time[:4], time[4:]]).view(1, 2, 1, 4)
    assert signals(x).flatten().tolist() == time.tolist()
    found = window_statistics(x).flatten()
    assert found[0] == 3.5
    assert (found[2], found[3], found[4]) == (0, 7, 1)


def test_scaling_is_the_same_in_parts_and_keeps_gravity():
    x = torch.randn(2500, 4, 3, 5) * 3 + 7
    whole, parts = Standardize(2, 3, 5), Standardize(2, 3, 5)
    whole.update(x)
    parts.update(x[:10])
    parts.update(x[10:])
    torch.testing.assert_close(whole.mean, parts.mean)
    torch.testing.assert_close(whole.deviation, parts.deviation)
    torch.testing.assert_close(whole.mean[0, 0], x[:, [0, 2], 0].mean())
    flat = torch.full((1, 4, 3, 5), 9.0)
    assert (whole(flat) > 0.3).all(), "a recording that stays above the mean stays above it"


@pytest.mark.parametrize("arrangement", ["sensors", "flat", "signals"])
def test_every_arrangement_holds_the_same_numbers(arrangement):
    x = torch.randn(3, 4, 3, 5)
    scaling = Standardize(2, 3, 5, arrangement)
    scaling.update(x)
    y = scaling(x)
    assert y.shape == (3, *scaling.out_shape)
    plain = Standardize(2, 3, 5)
    plain.update(x)
    torch.testing.assert_close(y.flatten(1).sort().values, plain(x).flatten(1).sort().values)
    twin = Standardize(2, 3, 5, arrangement)
    twin.load_state_dict(scaling.state_dict())
    assert torch.equal(twin(x), y)


def test_a_constant_signal_does_not_divide_by_zero():
    scaling = Standardize(1, 1, 4)
    scaling.update(torch.full((3, 2, 1, 4), 5.0))
    assert scaling(torch.full((1, 2, 1, 4), 5.0)).abs().max() == 0


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


def test_augmentation_is_the_same_for_both_instants_and_keeps_other_channels():
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
def test_windows_are_augmented_in_training_alone(name):
    model = network(name, LAYOUT, features=10, augment=True, dropout=0.0)
    model.head.grow(3)
    x = torch.randn(8, 2 * len(LAYOUT.sensors), len(LAYOUT.channels), 10)
    model.encoder.update(x)
    model.train()
    assert not torch.equal(model.encoder(x), model.encoder(x))
    model.eval()
    assert torch.equal(model(as_batch(x)), model(as_batch(x)))


def test_a_learner_saves_and_loads_the_scale_of_signals(tmp_path):
    x = torch.randn(8, 6, 2, 10) * 5 + 3
    learner, other = (Learner(network("fgn", LAYOUT, 10), Finetune()) for _ in range(2))
    learner.model.encoder.update(x)
    learner.observe(as_batch(x, torch.arange(8) % 2))
    learner.save(tmp_path / "learner")
    other.load(tmp_path / "learner")
    assert torch.equal(other.model.encoder.mean, learner.model.encoder.mean)
    assert torch.equal(other.output(as_batch(x)), learner.output(as_batch(x)))
