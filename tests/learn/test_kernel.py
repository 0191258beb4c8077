"""The closed form on the kernel of feature graphs: exact, and independent of the order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph import FGN, Kernel, Learner, node_continuum
from evergraph.datasets import generate
from evergraph.feature_graph import feature_adjacency
from evergraph.feature_graph.fixed_point import ONE
from evergraph.feature_graph.kernel import Planes, Similarity, planes
from evergraph.learn.dual import (
    SHARPNESS,
    Choice,
    Mixture,
    Stored,
    left_out,
    mixtures,
    sharpen,
    softmax,
    solve,
    tried,
)
from evergraph.stream import Batch
from evergraph.testing import check_learner

DATA = generate()
BATCHES = list(node_continuum(DATA, scenario="data", batch_size=20))[:6]
TEST = next(node_continuum(DATA).test())


def learner(**settings):
    return Learner(FGN(DATA.graph.num_features), Kernel(**settings))


def learned(batches, **settings):
    one = learner(**settings)
    for batch in batches:
        one.observe(batch)
    return one


def items(size, seed):
    """Non-negative features and means of so many items, one plane."""
    rng = torch.Generator().manual_seed(seed)
    return (
        torch.rand(size, 7, generator=rng) * (torch.rand(size, 7, generator=rng) > 0.4)
        for _ in "xm"
    )


def rows_of(x, mean):
    numbers = torch.cat([x, mean], 1).double().numpy() * 2**16
    from scipy import sparse

    return Planes.of(sparse.csr_array(numbers.round().astype(np.int64)), x.shape[1])


def test_the_product_is_that_of_the_feature_graphs():
    """⟨A, A'⟩ of the F × F matrices of Eq. (4), which are never formed."""
    (x, m), (y, n) = items(5, 0), items(4, 1)
    root_x, root_y = x.sqrt(), y.sqrt()
    graphs = [
        feature_adjacency(a[:, None], b[:, None, None], True).flatten(1)
        for a, b in ((x, m), (y, n))
    ]
    unit = [g / g.norm(dim=1, keepdim=True) for g in graphs]
    found = Similarity(rows_of(root_x, m), rows_of(root_y, n)).product()
    assert np.allclose(found, unit[0] @ unit[1].T, atol=1e-4)


def test_inner_products_of_unit_rows_are_at_most_one():
    x, m = items(30, 2)
    found = Similarity(rows_of(x, m), rows_of(x, m))
    for part in (found.x, found.mean(), found.root(), found.product()):
        assert part.shape == (30, 30)
        assert (part <= 1 + 1e-5).all()
        assert np.array_equal(part, part.T)


def test_hops_are_read_apart_or_together():
    (x, near), (far, _) = items(6, 3), items(6, 4)
    ones = [rows_of(x, mean) for mean in (near, far)]
    both = Planes(ones[0].x, *([a[0], b[0]] for a, b in zip(*map(means, ones), strict=True)))
    found, (first, last) = Similarity(both, both), (Similarity(one, one) for one in ones)
    for name in ("mean", "root", "product"):
        near, far = getattr(first, name)(), getattr(last, name)()
        assert np.array_equal(getattr(found, name)("first"), near)
        assert np.array_equal(getattr(found, name)("last"), far)
        assert np.allclose(getattr(found, name)("all"), (near + far) / 2)
    assert np.array_equal(found.first(2).mean("last"), last.mean()[:2, :2])
    rows = both.x.toarray() + both.roots[1].toarray()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.allclose(found.together("last"), rows @ rows.T, atol=1e-5)


def means(planes):
    return planes.means, planes.roots


def test_an_item_has_the_same_row_alone_and_in_any_batch():
    for data in (DATA, dense_data()):
        batch = next(iter(node_continuum(data, scenario="data", batch_size=20)))
        together = planes(batch.x, batch.neighbors, len(batch), 1).toarray()
        for place, item in enumerate(batch):
            assert np.array_equal(
                planes(item.x, item.neighbors, 1, 1).toarray()[0], together[place]
            )
        assert np.abs(together).max() == ONE


def dense_data():
    features = torch.randn(DATA.graph.num_nodes, 9, generator=torch.Generator().manual_seed(0))
    return replace(DATA, graph=replace(DATA.graph, features=features))


def test_leave_one_out_is_leaving_one_out():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 5))
    kernel, truth = rows @ rows.T, np.eye(3)[rng.integers(0, 3, 12)]
    for strength, scores in zip((0.1, 2.0), left_out(kernel, truth, (0.1, 2.0)), strict=True):
        for out in range(12):
            kept = np.delete(np.arange(12), out)
            left = kernel[np.ix_(kept, kept)] + strength * np.eye(11)
            guess = kernel[out, kept] @ np.linalg.solve(left, truth[kept])
            assert guess == pytest.approx(scores[out])


def test_scores_are_sharpened_as_fits_best():
    scores, target = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0, 1, 1])
    best, loss = sharpen(scores, target)
    for s in (best / 1.2, best, best * 1.2):
        given = -np.log(softmax(s * scores)[np.arange(3), target]).mean()
        assert given == pytest.approx(loss) if s == best else given > loss


def test_halving_finds_the_best_sharpness_of_all():
    rng = np.random.default_rng(0)
    for noise in (0.1, 0.5, 3.0):
        target = rng.integers(0, 4, 60)
        scores = np.eye(4)[target] + noise * rng.standard_normal((60, 4))
        losses = [
            -np.log(softmax(s * scores)[np.arange(60), target] + 1e-12).mean() for s in SHARPNESS
        ]
        best, loss = sharpen(scores, target)
        assert best == SHARPNESS[np.argmin(losses)]
        assert loss == pytest.approx(min(losses))


def test_the_best_mixture_is_chosen():
    """Classes that follow from x alone take a kernel of x alone."""
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 200)
    x, noise = (
        np.eye(2)[target] + rng.normal(0, 0.3, (200, 2)) for target in (target, target[::-1])
    )
    both = np.zeros((2, 200, 22))
    both[0, :, :2], both[1] = x, np.hstack([noise, rng.normal(0, 1, (200, 20))])
    rows = rows_of(*torch.from_numpy(both))
    stored = Stored(Similarity(rows, rows), target, 2, np.ones(200, dtype=np.int64))
    every = tried(stored, [Mixture(mean=1), Mixture(x=1), Mixture(root=1)])
    assert min(every, key=lambda choice: choice.loss).mixture == Mixture(x=1)


def test_an_item_that_came_twice_is_solved_as_two():
    x, mean = items(9, 3)
    rows = rows_of(x, mean)
    found, target = Similarity(rows, rows), np.arange(9) % 3
    times, choice = np.array([1, 2, 3, 1, 1, 1, 1, 1, 1]), Choice(0.0, Mixture(x=1, root=1), 0.5)
    again = np.repeat(np.arange(9), times)
    kernel = choice.mixture(found)
    left = kernel[np.ix_(again, again)] + 0.5 * np.eye(len(again))
    expected = kernel[:, again] @ np.linalg.solve(left, np.eye(3)[target[again]])
    assert np.allclose(solve(Stored(found, target, 3, times), choice)(found), expected)
    for out in (1, 4):  # left out, all of its copies are
        kept = again[again != out]
        left = kernel[np.ix_(kept, kept)] + 0.5 * np.eye(len(kept))
        guess = kernel[out, kept] @ np.linalg.solve(left, np.eye(3)[target[kept]])
        inside, truth, root = Stored(found, target, 3, times).problem(choice.mixture)
        assert np.allclose((next(left_out(inside, truth, (0.5,))) / root)[out], guess)


@pytest.mark.parametrize("capacity", [4096, 50])
def test_the_order_of_the_stream_does_not_matter(capacity):
    forth, back = learned(BATCHES, capacity=capacity), learned(BATCHES[::-1], capacity=capacity)
    state, other = forth.method.state(), back.method.state()
    assert state[1] == other[1]
    assert all(torch.equal(part, other[0][name]) for name, part in state[0].items())
    assert len(forth.method.stored) == min(capacity, 120)
    order = [back.classes.index(label) for label in forth.classes]
    assert torch.allclose(forth.output(TEST), back.output(TEST)[:, order], atol=1e-12)
    assert torch.equal(forth.predict(TEST), back.predict(TEST))


def test_forgetting_leaves_no_trace():
    one, never = learned(BATCHES), learned(BATCHES[:-1])
    one.method.forget(one, BATCHES[-1])
    assert one.method.state()[1] == never.method.state()[1]
    for name, part in never.method.state()[0].items():
        assert torch.equal(one.method.state()[0][name], part)
    with pytest.raises(ValueError, match="only what was learned can be forgotten"):
        never.method.forget(never, BATCHES[-1])


def test_nothing_is_left_when_all_is_forgotten():
    one = learned(BATCHES[:1])
    one.method.forget(one, BATCHES[0])
    assert not one.method.stored
    assert one.method.nbytes == 0
    assert one.method.predictor(one)(TEST).abs().max() == 0


def test_an_item_that_came_twice_counts_twice():
    twice = learned([BATCHES[0], BATCHES[0], BATCHES[1]])
    assert len(twice.method.stored) == 40
    twice.method.forget(twice, BATCHES[0])
    assert twice.method.state()[1] == learned(BATCHES[:2]).method.state()[1]


def test_it_learns_and_bytes_are_counted():
    one = learned(node_continuum(DATA, batch_size=100), capacity=500)
    assert one.evaluate(node_continuum(DATA).test()) > 0.8
    tensors, _ = one.method.state()
    assert one.method.nbytes >= sum(tensors[name].nbytes for name in ("indices", "values"))


def test_switches_leave_mixtures_out():
    assert all(not m.product for m in mixtures(products=False))
    assert all(not (m.root or m.product) for m in mixtures(roots=False))
    assert all(not m.sharpness for m in mixtures(raised=False))
    assert len(mixtures(products=False)) < len(mixtures())
    assert {m.hops for m in mixtures()} == {"all", "first", "last"}
    assert all(m.hops == "all" for m in mixtures(reads=("all",)))
    assert all(not m.together for m in mixtures(together=False))
    with pytest.raises(ValueError, match=r"reads must be .*, got 'none'"):
        Kernel(reads="none")
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        Kernel(capacity=0)


def test_a_predictor_is_a_snapshot():
    one = learned(BATCHES[:3])
    snapshot = one.predictor()
    before = snapshot(TEST)
    one.observe(BATCHES[4])
    assert torch.equal(snapshot(TEST), before)
    assert not torch.equal(one.output(TEST)[:, : before.shape[1]], before)


def test_it_keeps_the_contract_of_learners():
    small = [batch.select(torch.arange(4)) for batch in BATCHES[:3]]
    passed = check_learner(lambda: learner(capacity=9), small, points=5)
    assert passed[-1] == "saves, loads and continues bit by bit"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("indices", lambda part: part + 10**6),
        ("values", lambda part: part + 2**21),
        ("times", lambda part: part * 0),
        ("target", lambda part: part[:-1]),
        ("indptr", lambda part: part.flip(0)),
    ],
)
def test_a_spoiled_state_is_refused(name, spoil):
    tensors, values = learned(BATCHES[:1]).method.state()
    with pytest.raises(ValueError, match="must"):
        Kernel().load_state({**tensors, name: spoil(tensors[name])}, values)


def test_items_of_no_neighbors_are_learned():
    batch = BATCHES[0]
    none = torch.zeros(0, dtype=torch.long)
    alone = replace(
        batch.neighbors, features=batch.neighbors.features[none], owner=none, hop=none, weight=None
    )
    bare = Batch(batch.x, alone, batch.target, batch.task, batch.node)
    one = learned([bare])
    assert one.output(bare).isfinite().all()


def test_planes_without_neighborhoods_are_alike_in_nothing_but_x():
    x = planes(TEST.x, TEST.neighbors, len(TEST), 1)[:, : DATA.graph.num_features]
    alone = Planes.of(x, DATA.graph.num_features)
    found = Similarity(alone, alone)
    assert found.x.any()
    assert not found.mean().any()
    assert not found.product().any()
