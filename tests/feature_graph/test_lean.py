"""The form that stores no matrix against the equations."""

import pytest
import torch

from evergraph.feature_graph import LeanGraph, feature_adjacency, normalize, propagate
from evergraph.feature_graph.compiled.lanes import LANES
from evergraph.feature_graph.equations import NORMALIZATIONS

SHAPES = [  # leading dimensions, P, C, F
    ((1,), 1, 1, 1),
    ((), 2, 3, 5),
    ((LANES - 1,), 1, 1, 8),
    ((LANES,), 2, 1, 4),
    ((LANES + 1,), 2, 1, 6),
    ((3, 47), 2, 3, 7),
    ((43, 2), 3, 3, 5),
    ((43, 2), 3, 3, 3),  # fewer features than the loops take
]


def numbers(shape, planes, channels, features, dtype=torch.float64):
    """Signed numbers with zeros among them, and rows of zeros: x, mean and z."""
    x = torch.randn(*shape, channels, features, dtype=dtype)
    mean = torch.randn(*shape, planes, channels, features, dtype=dtype)
    z = torch.randn_like(x)
    for t in (x, mean, z):
        t[torch.rand_like(t) < 0.2] = 0
    if shape:
        x[-1], mean[-1] = 0, 0
    return x, mean, z


def reference(x, mean, z, how):
    return propagate(normalize(feature_adjacency(x, mean), how), z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("size", SHAPES)
def test_the_product_is_that_of_the_equations(size, how, dtype):
    x, mean, z = numbers(*size, dtype)
    graph = LeanGraph(x, mean, how)
    torch.testing.assert_close(graph.propagate(z), reference(x, mean, z, how))
    torch.testing.assert_close(graph.propagate(x), reference(x, mean, x, how))
    torch.testing.assert_close(graph.adjacency, normalize(feature_adjacency(x, mean), how))


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("size", SHAPES)
def test_gradients_are_those_of_the_equations(size, how):
    inputs = [t.requires_grad_() for t in numbers(*size)]
    x, mean, z = inputs
    for given, wanted in ((z, (x, mean, z)), (x, (x, mean)), (z.detach(), (x, mean))):
        expected = reference(x, mean, given, how)
        found = LeanGraph(x, mean, how).propagate(given)
        torch.testing.assert_close(found, expected)
        grad = torch.randn_like(found)
        torch.testing.assert_close(
            torch.autograd.grad(found, wanted, grad), torch.autograd.grad(expected, wanted, grad)
        )


@pytest.mark.parametrize("how", NORMALIZATIONS)
@pytest.mark.parametrize("features", [1, 3, 4, 6])
def test_gradients_are_those_of_small_differences(features, how):
    x, mean, z = (
        (torch.rand(2, *planes, 2, features).double() + 0.3).requires_grad_()
        for planes in ((), (2,), ())
    )
    with torch.no_grad():
        x[0, 0], mean[0, 1] = -x[0, 0], -mean[0, 1]  # both signs, no sum that cancels
        mean[0, 0, 0] = -mean[0, 0, 0]
        mean[0, 1, 1] = -mean[0, 1, 1]

    def own(x, mean):
        return LeanGraph(x, mean, how).propagate(x)

    def other(x, mean, z):
        return LeanGraph(x, mean, how).propagate(z)

    assert torch.autograd.gradcheck(own, (x, mean))
    assert torch.autograd.gradcheck(other, (x, mean, z))


def test_zeros_are_missing_edges_with_zero_gradient():
    x = torch.zeros(2, 1, 4, dtype=torch.float64, requires_grad=True)
    mean = torch.zeros(2, 1, 1, 4, dtype=torch.float64, requires_grad=True)
    LeanGraph(x, mean).propagate(x).sum().backward()
    assert not x.grad.any()
    assert not mean.grad.any()


def test_the_product_mixes_features():
    x, mean = torch.rand(1, 1, 5) + 0.1, torch.rand(1, 1, 1, 5) + 0.1
    other = x.clone()
    other[..., 0] += 1
    changed = LeanGraph(other, mean).propagate(other) - LeanGraph(x, mean).propagate(x)
    assert (changed.flatten()[1:].abs() > 1e-4).all(), "one feature must be felt by all others"


def test_without_gradients_nothing_is_saved():
    x, mean, z = numbers((9,), 2, 2, 5)
    fixed = LeanGraph(x, mean).propagate(z)
    assert fixed.grad_fn is None
    x.requires_grad_()

    def refuse(tensor):
        raise AssertionError("saved for a gradient that nobody wants")

    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(refuse, refuse):
        torch.testing.assert_close(LeanGraph(x, mean).propagate(z), fixed)
        assert LeanGraph(x, mean).propagate(x).grad_fn is None


def test_planes_may_lie_anywhere_in_memory():
    x, mean, z = numbers((6, 4), 3, 2, 5)
    layouts = [
        mean.movedim(-3, 0).contiguous().movedim(0, -3),
        mean.mT.contiguous().mT,
        torch.cat([mean, mean], -2)[..., :2, :],
        mean[:1].expand_as(mean),
    ]
    sources = [(x, z), (x.mT.contiguous().mT, z.transpose(0, 1).contiguous().transpose(0, 1))]
    for strided in layouts:
        assert not strided.is_contiguous()
        for x_, z_ in sources:
            inputs = [t.detach().requires_grad_() for t in (x_, strided, z_)]
            found = LeanGraph(*inputs[:2]).propagate(inputs[2])
            expected = reference(*inputs, "symmetric")
            torch.testing.assert_close(found, expected)
            grad = torch.randn(*found.shape[:-2], 9, 5, dtype=found.dtype)[..., 1:7, :]
            torch.testing.assert_close(
                torch.autograd.grad(found, inputs, grad),
                torch.autograd.grad(expected, inputs, grad),
            )


def test_what_the_loops_do_not_take_is_computed_by_the_equations():
    x, mean, z = numbers((4,), 2, 2, 5)
    half = LeanGraph(x.bfloat16(), mean.bfloat16()).propagate(z.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), reference(x, mean, z, "symmetric"), atol=0.2, rtol=0)
    assert LeanGraph(x, mean[:, :0]).propagate(z).shape == (4, 0, 5)
    assert LeanGraph(x[:0], mean[:0]).propagate(z[:0]).shape == (0, 4, 5)


def test_shapes_and_names_are_checked():
    x, mean, z = numbers((4,), 2, 2, 5)
    with pytest.raises(ValueError, match=r"mean \(\*, P, C, F\), got \(4, 2, 5\) and \(4, 2, 5\)"):
        LeanGraph(x, mean[:, 0])
    with pytest.raises(ValueError, match=r"normalization must be one of none, row, .* got 'rows'"):
        LeanGraph(x, mean, "rows")
    with pytest.raises(ValueError, match=r"shape \(4, 2, 5\) of nodes, got \(4, 1, 5\)"):
        LeanGraph(x, mean).propagate(z[:, :1])


def test_a_gradient_of_gradients_is_refused():
    x, mean, _ = (t.requires_grad_() for t in numbers((4,), 1, 1, 5))
    (gx,) = torch.autograd.grad(
        LeanGraph(x, mean).propagate(x).square().sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gx.sum().backward()
