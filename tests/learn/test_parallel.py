"""Ranks learn what one learner learns, whatever their number; torchrun starts them once for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evergraph import EWC, Learner, Replay, Reservoir, node_continuum
from evergraph.learn.parallel import ParallelLearner, PartSource, owners
from evergraph.learn.ranks import Ranks
from evergraph.learn.shared import EMPTY, Part, SharedReservoir
from tests.learn import ranks as script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What three processes saw, and the folder of their checkpoint."""
    folder = tmp_path_factory.mktemp("ranks")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [*start, script.__file__, str(folder)],
        env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads((folder / "found.json").read_text()), folder


def plain():
    return Learner(
        script.network(), Replay(), Reservoir(script.CAPACITY, seed=0), script.TRAINING,
        outliers="pass",
    )  # fmt: skip


def learned(learner, start, end):
    for batch in list(node_continuum(script.DATA).batches(start))[: end - start]:
        learner.observe(batch)
    return learner


def assert_close(state, weights):
    for name, value in state.items():
        assert torch.allclose(value, torch.tensor(weights[name]), atol=1e-5), name


def test_two_ranks_and_then_three_learn_what_one_learns(seen):
    found, _ = seen
    one = learned(plain(), 0, 12)
    for end in found["end"]:
        assert end["nodes"] == one.memory.node.tolist()
        assert end["classes"] == one.classes
        assert_close(one.model.state_dict(), end["weights"])
    alone = script.parallel(Ranks())
    assert np.allclose(script.learn(alone, Ranks(), 0, 12), found["losses"], atol=1e-5)
    assert alone.digest() == one.digest()


def test_all_ranks_have_the_same_state_to_the_last_bit(seen):
    found, _ = seen
    for name in ("half", "end"):
        assert len({one["digest"] for one in found[name]}) == 1, name
    assert len(set(found["noise"])) == 1


def test_reservoirs_are_shares_and_are_dealt_anew(seen):
    found, _ = seen
    assert sum(one["own"] for one in found["half"]) == script.CAPACITY
    assert min(one["own"] for one in found["half"]) > 0
    assert found["dealt"] == [10, 10, 10]


def test_one_learner_resumes_what_two_ranks_have_saved(seen):
    found, folder = seen
    one = plain()
    one.load(folder / "half")
    assert one.memory.node.tolist() == found["half"][0]["nodes"]
    learned(one, 6, 12)
    assert one.memory.node.tolist() == found["end"][0]["nodes"]
    assert_close(one.model.state_dict(), found["end"][0]["weights"])


def test_what_one_rank_refuses_is_learned_by_none(seen):
    found, _ = seen
    assert "labels must be 0 or more" in found["refused"][1]
    for rank in (0, 2):
        assert "must succeed on all ranks, but rank 1 has" in found["refused"][rank]
    assert all("no checkpoint at" in text for text in found["missing"])
    assert found["unchanged"] is True
    assert all("made with the same arguments" in text for text in found["mixed"])


def test_streams_of_different_lengths_end_together(seen):
    found, _ = seen
    assert {position for position, *_ in found["uneven"]} == {5}
    assert len({digest for *_, digest in found["uneven"]}) == 1


@pytest.mark.parametrize("size", [1, 2, 5])
def test_together_reservoirs_are_that_of_the_whole_stream(size):
    whole = Reservoir(17, seed=3)
    parts = [SharedReservoir(17, 3, Ranks(rank, size)) for rank in range(size)]
    stream = node_continuum(script.DATA, batch_size=8, scenario="data")
    for index, task, batch in zip(stream.schedule.batches, stream.schedule.tasks, stream):  # noqa: B905
        whole.add(batch)
        for part in parts:
            part.add(PartSource(stream.source, part.ranks).batch(index, task))
        kept = [node for part in parts for node in part.node.tolist()]
        assert sorted(kept) == sorted(whole.node.tolist())
        assert {len(part) for part in parts} == {len(whole)}
        assert {part.state()[1]["rule"]["threshold"] for part in parts if size == 1} <= {
            whole.state()[1]["rule"]["threshold"]
        }
        order = np.random.default_rng(0).permutation(len(whole))[:6]
        found = [part.batch(order) for part in parts]
        assert sum(map(len, found)) == len(order)
        for rank, own in enumerate(found):
            mine = whole.batch(order[own.owner == rank]) if len(own) else EMPTY
            assert own.node.tolist() == mine.node.tolist()


def test_a_shared_reservoir_goes_back_as_a_whole():
    memory = SharedReservoir(6, 0, Ranks(1, 2))
    batches = list(node_continuum(script.DATA, batch_size=8))[:3]
    owner = owners(torch.arange(8), 2)
    parts = [Part.of(b.select(torch.from_numpy(np.flatnonzero(owner))), owner) for b in batches]
    memory.add(parts[0])
    before = memory.node.tolist(), len(memory)
    back = memory.savepoint()
    memory.add(parts[1])
    assert (memory.node.tolist(), len(memory)) != before
    back()
    assert (memory.node.tolist(), len(memory)) == before


def test_what_ranks_cannot_learn_is_refused():
    two = Ranks(0, 2)
    with pytest.raises(ValueError, match="a method that spreads, got EWC"):
        ParallelLearner(script.network(), EWC(), ranks=two)
    with pytest.raises(ValueError, match="ranks share a SharedReservoir"):
        ParallelLearner(script.network(), Replay(), Reservoir(5), ranks=two)
    with pytest.raises(ValueError, match="outliers must be 'pass' on several ranks"):
        ParallelLearner(
            script.network(), Replay(), SharedReservoir(5, 0, two), outliers="clip", ranks=two
        )
