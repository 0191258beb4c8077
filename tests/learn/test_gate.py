"""The outlier gate: what is absurdly far is clipped and counted, refused, or let through."""

from dataclasses import replace

import pytest
import torch

from evergraph import FGN, Finetune, Learner, Neighbors, SparseRows
from evergraph.learn.gate import BINS, HIGH, LOW, Gate, _counted
from evergraph.learn.intake import Intake
from evergraph.nn.model import Requires
from evergraph.stream.batch import Batch


def _signals(rows: int = 200, columns: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, columns, generator=generator) * 2 - 1


def _batch(x: torch.Tensor | SparseRows, y: torch.Tensor | SparseRows | None = None) -> Batch:
    size, none = len(x), torch.full((len(x),), -1)
    if y is None:
        y = x.narrow(0, 0, 0) if isinstance(x, torch.Tensor) else x[torch.zeros(0).long()]
    return Batch(x, Neighbors(y, torch.arange(len(y))), torch.arange(size) % 2, none, none)


def test_usual_values_pass_as_they_are():
    gate, values = Gate(), _signals()
    assert gate(values)[0] is values
    assert gate.clipped == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("every", [1, 3])
def test_sizes_are_counted_by_power_of_two(dtype, every):
    powers = torch.randint(-30, 50, (50, 2), generator=torch.Generator().manual_seed(0))
    values = (_signals(50, 2) * torch.exp2(powers.double().clamp(max=14))).to(dtype)
    values[::7] = 0
    before = torch.ones(2, BINS, dtype=torch.int64)
    expected = before.clone()
    for row in values[::every]:
        for column, value in enumerate(row):
            if value != 0:
                power = int(torch.frexp(value.double()).exponent)
                expected[column, min(max(power, LOW), HIGH) - LOW] += 1
    assert torch.equal(_counted(before, values, every), expected)
    assert torch.equal(_counted(before[:0], values, every), expected - 1)
    assert (before == 1).all()


@pytest.mark.parametrize("spike", [1000.0, -1000.0])
def test_a_spike_is_clipped_even_in_the_first_batch(spike):
    gate, values = Gate(), _signals()
    values[7, 1] = spike
    (passed,) = gate(values)
    assert passed[7, 1] == (8.0 if spike > 0 else -8.0)  # values up to 1, eight times
    assert gate.clipped == 1
    passed[7, 1] = values[7, 1]
    assert torch.equal(passed, values)


def test_a_spike_in_its_own_batch_is_clipped_and_does_not_widen_the_range():
    gate = Gate()
    gate(_signals())
    for _ in range(2):
        assert gate(torch.full((1, 3), 1e6))[0].max() == 8.0
    assert gate.clipped == 6
    passed = [float(gate(torch.full((1, 3), 1e6))[0].max()) for _ in range(20)]
    assert passed == sorted(passed)  # what comes again and again is usual in the end
    assert passed[0] < 1e3
    assert passed[-1] == 1e6


def test_columns_have_their_own_range():
    gate, values = Gate(), _signals(columns=2)
    values[:, 1] *= 50_000
    assert gate(values)[0] is values
    assert gate(torch.tensor([[900.0, 900.0]]))[0].tolist() == [[8.0, 900.0]]


def test_many_large_values_at_once_are_a_change_of_the_data():
    gate = Gate()
    gate(_signals())
    grown = _signals(seed=1) * 1000
    assert gate(grown)[0] is grown
    assert gate.clipped == 0


def test_few_values_have_no_range_yet():
    gate = Gate()
    gate(_signals(rows=5))
    assert gate(torch.full((1, 3), 1000.0))[0].max() == 1000


def test_a_refused_batch_names_feature_limit_and_value():
    gate, values = Gate("refuse"), _signals()
    gate(values)
    with pytest.raises(ValueError, match=r"feature 2 must be at most 8 .* got 1000; .* clipped"):
        gate(torch.tensor([[0.5, 0.5, 1000.0]]))


def test_pass_counts_nothing():
    gate, values = Gate("pass"), _signals()
    values[0, 0] = 1e9
    assert gate(values)[0] is values
    assert not len(gate.counts)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="outliers must be"):
        Gate("drop")  # type: ignore[arg-type]


def test_state_goes_round():
    gate, other = Gate(), Gate()
    gate(_signals())
    other.load_state(*gate.state())
    spike = torch.full((1, 3), 1000.0)
    assert torch.equal(gate(spike)[0], other(spike)[0])
    assert torch.equal(gate.counts, other.counts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": torch.zeros(3, BINS)},
        {"counts": -torch.ones(3, BINS, dtype=torch.int64)},
        {"counts": torch.zeros(2, BINS, dtype=torch.int64)},
        {"limit": torch.zeros(3, dtype=torch.float64)},
        {"limit": torch.full((3,), torch.nan, dtype=torch.float64)},
    ],
)
def test_a_state_that_is_none_is_refused(wrong):
    gate = Gate()
    gate(_signals())
    tensors, values = gate.state()
    with pytest.raises(ValueError, match="an outlier gate keeps"):
        Gate().load_state({**tensors, **wrong}, values)


def test_neighbors_are_clipped_by_the_range_of_items():
    x, y = _signals().unsqueeze(1), _signals(seed=1).unsqueeze(1)
    y[3, 0, 0] = 1000
    passed = Intake(Requires(), "clip").admit(_batch(x, y))
    assert passed.x is not y
    assert passed.neighbors.features[3, 0, 0] == 8


def test_sparse_rows_have_one_range():
    values = torch.ones(60)
    values[10] = 1e6
    x = SparseRows(torch.arange(0, 61, 3), torch.arange(60) % 50, values, 50)
    passed = Intake(Requires(), "clip").admit(_batch(x))
    assert passed.x.values[10] == 16


def test_one_spike_does_not_ruin_a_learner():
    """A sample of 1,000 among values within ±1 is learned as 8, and everything stays usable."""
    torch.manual_seed(0)
    learner = Learner(FGN(3), Finetune())
    good = _batch(_signals(rows=40).unsqueeze(1))
    learner.observe(good)
    x = good.x.clone()
    x[0, 0, 0] = 1e9
    learner.observe(replace(good, x=x))
    assert learner.intake.gate.clipped == 1
    assert learner.output(good).isfinite().all()


def test_refused_outliers_leave_the_state_alone():
    learner = Learner(FGN(3), Finetune(), outliers="refuse")
    good = _batch(_signals(rows=40).unsqueeze(1))
    learner.observe(good)
    before = learner.digest()
    with pytest.raises(ValueError, match="feature 0"):
        learner.observe(replace(good, x=good.x * torch.tensor([1.0] * 39 + [1e6])[:, None, None]))
    assert learner.digest() == before
