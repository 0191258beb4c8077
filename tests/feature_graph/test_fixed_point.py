"""Integer rows: equal to the equations, and the same bits alone and in any batch."""

import numpy as np
import pytest
import torch
from scipy import sparse

from evergraph.feature_graph import equations
from evergraph.feature_graph.fixed_point import (
    LINEAR,
    ONE,
    Blocks,
    Embedding,
    dense_product,
    divide,
    exponential,
    propagate_rows,
    root,
    unit,
)

FRACTION = 2**16


def _rows(size: int, width: int, seed: int, share: float = 0.4) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3 * FRACTION, 3 * FRACTION, (size, width))
    values[rng.random((size, width)) > share] = 0
    return sparse.csr_array(values)


@pytest.fixture
def items() -> tuple[sparse.csr_array, list[sparse.csr_array]]:
    return _rows(40, 12, 0), [_rows(40, 12, 1, 0.7), _rows(40, 12, 2, 0.9)]


@pytest.mark.parametrize("shares", [(0.02, 0.02), (0.3, 0.02), (1.0, 1.0), (0.0, 0.5)])
def test_products_are_the_same_bits_on_both_ways(shares):
    rows, points = (unit(_rows(30, 50, at, share)) for at, share in enumerate(shares))
    points = points.T.tocsr()
    expected = rows.toarray().astype(np.int64) @ points.toarray().astype(np.int64)
    assert np.array_equal(dense_product(rows, points), expected.astype(np.float64))


def test_quotients_are_rounded_to_the_nearest():
    rows = sparse.csr_array(np.array([[7, -7, 0, 8], [5, 4, 3, -2]]))
    found = divide(rows, np.array([2, 3])).toarray()
    assert found.tolist() == [[4, -3, 0, 4], [2, 1, 1, -1]]


def test_roots_are_those_of_the_equations():
    rows = _rows(10, 9, 3)
    wanted = equations.sgnroot(torch.from_numpy(rows.toarray() / 1.0)).numpy() * 256
    assert np.abs(root(rows).toarray() - wanted).max() <= 0.5


def test_unit_rows_have_unit_length_and_zeros_stay():
    rows = sparse.vstack([_rows(10, 9, 3, 0.9), sparse.csr_array((1, 9), dtype=np.int64)]).tocsr()
    length = np.linalg.norm(unit(rows).toarray() / ONE, axis=1)
    assert np.allclose(length[:-1], 1, atol=1e-5)
    assert length[-1] == 0


def test_propagated_rows_are_equation_7(items):
    x, (mean, _) = items
    dense = torch.from_numpy(x.toarray() / FRACTION), torch.from_numpy(mean.toarray() / FRACTION)
    adjacency = equations.feature_adjacency(dense[0].unsqueeze(1), dense[1].view(40, 1, 1, 12))
    hat = equations.normalize(adjacency, "column")
    wanted = equations.propagate(hat, dense[0].unsqueeze(1)).squeeze(1).numpy()
    found = propagate_rows(x, mean).toarray() / FRACTION
    assert np.abs(found - wanted).max() <= 1 / FRACTION


def test_the_exponential_is_nearly_that():
    x = np.linspace(-4, 0, 50)
    assert np.abs(exponential(x) - np.exp(x)).max() < 2e-3


def test_kernel_values_are_those_of_the_feature_graphs(items):
    """⟨√(x mᵀ), √(x' m'ᵀ)⟩ = ⟨√x, √x'⟩ ⟨√m, √m'⟩, formed once as matrices."""
    x, mean = abs(items[0]).tocsr(), abs(items[1][0]).tocsr()
    graphs = [
        equations.feature_adjacency(
            torch.from_numpy(a.toarray() / 1.0).unsqueeze(1),
            torch.from_numpy(b.toarray() / 1.0).view(40, 1, 1, 12),
            directed=True,
        ).flatten(1)
        for a, b in ((x, mean),)
    ]
    whole = graphs[0] @ graphs[0].T
    parts = [torch.from_numpy(root(part).toarray() / 256.0) for part in (x, mean)]
    product = (parts[0] @ parts[0].T) * (parts[1] @ parts[1].T)
    assert torch.allclose(whole, product, rtol=1e-3)


@pytest.mark.parametrize("landmarks", [0, 7])
@pytest.mark.parametrize("linear", [(name,) for name in LINEAR] + [LINEAR])
def test_a_row_is_the_same_bits_in_every_batch(items, landmarks, linear):
    x, means = items
    make = Embedding(Blocks(linear, landmarks=landmarks), 12, 2, x[:landmarks])
    whole = make(x, means)
    assert whole.shape == (40, make.size)
    assert np.array_equal(whole, np.rint(whole))
    assert np.abs(whole).max() <= ONE
    order = np.random.default_rng(0).permutation(40)
    for part in np.array_split(order, 7):
        assert np.array_equal(make(x[part], [m[part] for m in means]), whole[part])


def test_linear_blocks_are_left_out_if_features_are_many(items):
    x, means = items
    make = Embedding(Blocks(("x",), max_width=11, landmarks=5), 12, 2, x[:5])
    assert make(x, means).shape == (40, 6)


def test_unknown_blocks_are_refused():
    with pytest.raises(ValueError, match="blocks must be among"):
        Blocks(linear=("y",))
    with pytest.raises(ValueError, match="blocks must be among"):
        Blocks(linear=(), landmarks=0)
