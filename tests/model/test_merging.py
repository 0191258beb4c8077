"""Merging: two copies of one model that learned different things, together and apart again."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import SMALL, people

import evergraph
from evergraph.model import Model, Settings

TINY = Settings(landmarks=4, held_out=4)
BASE = [f"p{k}" for k in range(8)]
PAIRS = [("p0", "p1"), ("p1", "p2"), ("p2", "p3"), ("p4", "p6"), ("p0", "a1"), ("p1", "b1")]


def owner(*names):
    """Which of the two copies may touch a node, its label or an edge; base nodes are divided."""
    return "ab"[sum(ord(letter) for name in names for letter in name) % 2]


def copies(place, count):
    """Copies of one small model, opened; edges to nodes of each copy already wait."""
    nodes = {
        "id": BASE,
        "age": [20, 60] * 4,
        "country": ["de", "fr", None, "it"] * 2,
        "label": ["young", "old", None, "old"] * 2,
    }
    edges = {
        "source": [a for a, _ in PAIRS],
        "target": [b for _, b in PAIRS],
        "weight": [3.0] * len(PAIRS),
    }
    Model.train(place / "base", nodes, edges, settings=TINY).close()
    for number in range(count):
        shutil.copytree(place / "base", place / str(number))
    return [evergraph.open(place / str(number)) for number in range(count)]


def changes(who, removing=True):
    """Events that only touch what a copy owns; only it has edges to a node that it may delete."""
    guest = f"{who}3"
    mine = [name for name in BASE if owner(name) == who] + [f"{who}{k}" for k in range(3)] + [guest]
    free = [*BASE, "a0", "a1", "a2", "b0", "b1", "b2", guest]
    pairs = [(a, b) for a in free for b in free if a < b and owner(a, b) == who]
    pairs += 6 * [pair for pair in PAIRS if pair in pairs]  # more often those that are there
    fresh = pairs if removing else [pair for pair in pairs if pair not in PAIRS]
    known = [n for n in mine if n in BASE]
    kinds = [
        st.builds(
            lambda name, age, label: {"type": "node", "id": name, "age": age, "label": label},
            st.sampled_from(mine),
            st.integers(1, 99),
            st.sampled_from([None, "old", "young", "third"]),
        ),
        st.builds(
            lambda pair, weight: {
                "type": "edge", "source": pair[0], "target": pair[1], "weight": weight,
            },
            st.sampled_from(fresh),
            st.sampled_from([None, 0.5, 2.0]),
        ),
        st.builds(
            lambda name, label: {"type": "label", "id": name, "label": label},
            st.sampled_from(known),
            st.sampled_from(["old", "young", "third"]),
        ),
        st.builds(lambda name: {"type": "delete_node", "id": name}, st.just(guest)),
    ]  # fmt: skip
    if removing:
        kinds += [
            st.builds(lambda name: {"type": "delete_label", "id": name}, st.sampled_from(known)),
            st.builds(
                lambda pair: {"type": "delete_edge", "source": pair[0], "target": pair[1]},
                st.sampled_from(pairs),
            ),
        ]
    return st.lists(st.one_of(kinds), max_size=10)


def taken(model, events):
    """Learn events one by one; returns those that were not refused."""
    good = []
    for event in events:
        try:
            model.learn_one(event)
            good.append(event)
        except ValueError:
            pass  # deleting what is not there
    return good


@settings(max_examples=50)
@given(first=changes("a"), second=changes("b"))
def test_a_merged_model_is_one_that_learned_both(first, second):
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        one, two, both = map(stack.enter_context, copies(Path(place), 3))
        first, second = taken(one, first), taken(two, second)
        both.learn(first)
        both.learn(second)
        before = two.digest()
        one.merge(two)
        assert one.digest() == both.digest()
        assert list(one.store.edges()) == list(both.store.edges())
        assert list(one.store.waiting()) == list(both.store.waiting())
        assert two.digest() == before
        one.close()
        with evergraph.open(Path(place) / "0") as again:
            assert again.digest() == both.digest()


@settings(max_examples=50)
@given(first=changes("a"), second=changes("b", removing=False))
def test_what_was_merged_can_be_taken_back(first, second):
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        one, two = map(stack.enter_context, copies(Path(place), 2))
        taken(one, first)
        taken(two, second)
        before, edges, waiting = one.digest(), [*one.store.edges()], [*one.store.waiting()]
        one.merge(two)
        one.unmerge(two)
        assert one.digest() == before
        assert ([*one.store.edges()], [*one.store.waiting()]) == (edges, waiting)


def test_models_that_cannot_be_merged_are_refused(tmp_path):
    nodes, edges = people(60)
    trained = {"nodes": nodes, "edges": edges, "settings": SMALL}
    with ExitStack() as stack:

        def model(name, **other):
            return stack.enter_context(Model.train(tmp_path / name, **{**trained, **other}))

        one = model("one")
        digest = one.digest()
        elsewhere = {**nodes, "country": ["xx"] * 60}
        for other, words in (
            (model("a", settings=TINY), "other settings in"),
            (model("b", nodes={**nodes, "age": [1] * 60}), "other kinds or statistics"),
            (model("c", nodes=elsewhere), "other nodes at train or refit"),
        ):
            for verb in (one.merge, one.unmerge):
                with pytest.raises(ValueError, match=f"copies of one that was trained.*{words}"):
                    verb(other)
        network = Settings(landmarks=4, held_out=4, learner="both", memory=20)
        for verb in (one.merge, one.unmerge):
            with pytest.raises(ValueError, match="must have learner='exact', got a network"):
                verb(model(f"network {verb.__name__}", settings=network))
        two = model("two")
        two.learn([{"type": "node", "id": "n", "age": 3, "label": "x"}])
        with pytest.raises(ValueError, match=r"only what was merged .* got node 'n'"):
            one.unmerge(two)
        a, b = edges["source"][0], edges["target"][0]
        for event, what in (
            ({"type": "node", "id": "n", "age": 4}, "node 'n'"),
            ({"type": "node", "id": "p1", "age": 4}, "node 'p1'"),
            ({"type": "label", "id": "p1", "label": "x"}, "label of node 'p1'"),
            ({"type": "edge", "source": a, "target": b, "weight": 2.0}, "edge"),
        ):
            both = [model(f"{what} {side}") for side in (1, 2)]
            for side in both:
                side.learn_one(event)
            with pytest.raises(ValueError, match=f"must have learned different things, got {what}"):
                both[0].merge(both[1])
        two.learn([{"type": "edge", "source": a, "target": b, "weight": 2.0}])
        one.merge(two)
        with pytest.raises(ValueError, match="what they were is not known"):
            one.unmerge(two)
        assert one.digest() == two.digest() != digest
