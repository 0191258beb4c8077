"""Random batches, most of them wrong in some way, offered to learners."""

from functools import cache

import torch
from hypothesis import strategies as st

from evergraph.graph import Neighbors, SparseRows
from evergraph.graph.neighbors import Linked
from evergraph.learn import Learner, Reservoir, Training
from evergraph.learn.methods import METHODS
from evergraph.nn import FGN, baseline
from evergraph.stream import Batch
from tests.fuzz.invariants import assert_finite, assert_finite_output, refusal

FEATURES = 5
GOOD = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TYPES = (*GOOD, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)
NUMBERS = (0.0, 1.0, -1.0, 0.5, -3.25, 1e-30, 1e6)
SPECIAL = (float("nan"), float("inf"), -float("inf"), 1e12, 1e20, 1e38, -1e13)
LABELS = (0, 1, 2, 7, -1, -5, 2**31, 2**40, 255)
COUNT = st.sampled_from((0, 1, 2, 3, 3, 3, 4))


def usual(good, other):
    """Mostly good values, so that what is wrong is met one at a time."""
    return st.integers(0, 24).flatmap(lambda chance: other if chance == 24 else good)


@st.composite
def tensors(draw, shape, values=NUMBERS, special=SPECIAL, kinds=TYPES, usually=torch.float32):
    kind = draw(usual(st.just(usually), st.sampled_from(kinds)))
    size = 1
    for part in shape:
        size *= part
    numbers = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    if size and draw(usual(st.just(False), st.just(True))):
        numbers[draw(st.integers(0, size - 1))] = draw(st.sampled_from(special))
    wide = torch.tensor(numbers, dtype=torch.float64).reshape(shape)
    made = wide if kind.is_floating_point or kind.is_complex else wide.nan_to_num(0, 2e9, -2e9)
    made = made.to(kind)
    form = draw(usual(st.just("plain"), st.sampled_from(("strided", "expanded", "gradient"))))
    if form == "strided" and made.dim() > 1:
        made = made.mT.contiguous().mT
    elif form == "expanded" and size:
        made = made[:1].expand(shape) if made.dim() else made
    elif form == "gradient" and (kind.is_floating_point or kind.is_complex):
        made = made.requires_grad_()
    return made


@st.composite
def integers(draw, size, values, usually=torch.int64):
    numbers = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    kind = draw(usual(st.just(usually), st.sampled_from((torch.int32, torch.uint8, torch.float32))))
    return torch.tensor(numbers, dtype=torch.int64).to(kind)


@st.composite
def sparse(draw, rows, width):
    entries = draw(st.integers(0, 2 * rows))
    ends = sorted(draw(st.lists(st.integers(0, entries), min_size=rows, max_size=rows)))
    indptr = torch.tensor([0, *ends[:-1], entries][: rows + 1])
    if draw(usual(st.just(False), st.just(True))):
        indptr = draw(integers(rows + 1, (0, 1, 2, -1, 9)))
    indices = draw(
        usual(
            st.just((torch.arange(entries) * 2) % width),
            integers(entries, (*range(width), width, -1, 2**40)),
        )
    )
    values = draw(tensors((entries,)))
    return lambda: SparseRows(indptr, indices, values, width)


@st.composite
def batches(draw):
    """A function that makes a batch, which may be refused already then."""
    size = draw(COUNT)
    width = draw(usual(st.just(FEATURES), st.integers(0, 7)))
    channels = draw(usual(st.just(1), st.integers(0, 3)))
    nodes = draw(usual(st.just(()), st.sampled_from(((1,), (2,), (0,)))))
    around = draw(st.sampled_from((0, 1, 3, 5)))
    if draw(st.booleans()) or width == 0:
        x_tensor = draw(tensors((size, *nodes, channels, width)))
        y_tensor = draw(tensors((around, channels, width)))
        x, y = (lambda: x_tensor), (lambda: y_tensor)
    else:
        x, y = draw(sparse(size, width)), draw(sparse(around, width))
    owners = tuple(range(max(size, 1)))
    owner = draw(usual(integers(around, owners), integers(around, (*owners, size, -1, 2**40))))
    hop = draw(usual(st.none(), integers(around, (1, 1, 1, 2, 0, -1))))
    weight = draw(usual(st.none(), st.sampled_from(((around,), (around, 2))).flatmap(tensors)))
    known = LABELS[:3]
    target = draw(usual(integers(size, known), integers(size, LABELS)))
    if draw(usual(st.just(False), st.just(True))):
        target = draw(tensors((size, 1)))
    more = draw(usual(st.just(0), st.just(1)))
    task, node = torch.zeros(size), torch.arange(size + more)
    linked = draw(usual(st.none(), integers(size * 2, (*owners, size, -1))))

    def make():
        neighbors = Neighbors(y(), owner, hop, weight)
        if linked is not None:
            neighbors = Linked(linked.reshape(-1, 2), torch.ones(size, 2))
        return Batch(x(), neighbors, target, task.long(), node)

    return draw(st.sampled_from(sorted(WAYS))), draw(st.booleans()), make


WAYS = {
    "fgn, finetune": lambda: (FGN(FEATURES, channels=(2,)), "finetune"),
    "fgn, replay": lambda: (FGN(FEATURES, channels=(2,), dropout=0.2), "replay"),
    "gat, der": lambda: (baseline("gat", FEATURES, hidden=(3,)), "der"),
    "gcn, ewc": lambda: (baseline("gcn", FEATURES, hidden=(3,)), "ewc"),
    "fgn, lwf": lambda: (FGN(FEATURES, channels=(2,)), "lwf"),
    "fgn, analytic": lambda: (FGN(FEATURES, channels=(2,)), "analytic"),
    "fgn, kernel": lambda: (FGN(FEATURES, channels=(2,)), "kernel"),
}


def good(is_sparse, size=3):
    x = torch.linspace(-1, 1, size * FEATURES).reshape(size, 1, FEATURES)
    y, owner = x + 0.25, torch.arange(size)
    if is_sparse:
        x, y = (SparseRows.from_dense(part.squeeze(1)) for part in (x, y))
    return Batch(x, Neighbors(y, owner), owner % 3, owner * 0, owner)


@cache
def _made(way, is_sparse):
    torch.manual_seed(0)
    model, method = WAYS[way]()
    often = {"every": 1} if method in ("ewc", "lwf") else {}  # consolidates at once
    memory = Reservoir(5) if METHODS[method].needs_memory else None
    learner = Learner(model, METHODS[method](**often), memory, Training(lr=0.01, steps=1))
    learner.observe(good(is_sparse))
    return learner


def learner_of(way, is_sparse):
    """A learner that has learned something; after a success it is made anew."""
    return _made(way, is_sparse)


def trial(case):
    """Offer a batch: it is learned and all stays finite, or it is refused and nothing changes."""
    way, is_sparse, make = case
    learner = learner_of(way, is_sparse)
    before = learner.digest()
    made = []
    error = refusal(lambda: made.append(make()))
    if error is None:
        error = refusal(lambda: learner.observe(made[0]))
    if error is not None:
        assert learner.digest() == before, "it was refused, but the state has changed"
        if made and refusal(lambda: learner.output(made[0])) is None:
            assert_finite_output(learner, good(is_sparse))
        return "refused"
    _made.cache_clear()
    assert_finite(learner)
    assert_finite_output(learner, good(is_sparse))
    return "learned"
