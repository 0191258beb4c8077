"""The nine attacks that version 7247736 did not withstand: 1 to 5, on learners.

Only names that exist there and here are used: the same files fail on that version in every number
and pass on this one. The detailed tests stand beside the parts that they test.
"""

import json
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from nine_points import (
    batch,
    call,
    checkpoint,
    invoke,
    learner,
    output,
    recognizer,
    recording,
    sparse,
    state,
)

from evergraph import Replay

# -- 1. spikes ------------------------------------------------------------------------------


@pytest.mark.parametrize("spike", [1e20, 3e38])
def test_1_an_absurd_feature_leaves_a_learner_that_works(spike):
    made, spoiled, good = learner(), batch(3), batch(4)
    assert made.evaluate([good]) == 1
    spoiled.x[7, 0, 3] = spike
    with suppress(ValueError):  # it may be refused
        made.observe(spoiled)
    made.observe(good)
    assert all(bool(p.isfinite().all()) for p in made.model.parameters())
    assert made.evaluate([good]) > 0.9


def test_1_a_spike_in_a_lesson_does_not_ruin_a_recognizer(tmp_path):
    model, old = recognizer(tmp_path)
    lesson = recording(tmp_path / "run.csv", "run", 2, spike=1000.0)
    learned = invoke("action", "learn", model, lesson, "--out", tmp_path / "new", "--json")
    assert learned.exit_code == 0, learned.output
    shown = invoke("action", "evaluate", tmp_path / "new", old, "--json")
    assert json.loads(shown.stdout)["accuracy"] > 0.9


# -- 2. threads -----------------------------------------------------------------------------


class Interrupted(Replay):
    """Replay during which another thread does something, always at the same moment."""

    action = None

    def observe(self, learner, batch):
        if Interrupted.action is not None:
            thread = threading.Thread(target=Interrupted.action)
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        super().observe(learner, batch)


@pytest.mark.parametrize("action", ["predict", "draw"])
def test_2_another_thread_does_not_change_what_is_learned(tmp_path, action, monkeypatch):
    alone, watched = learner(Interrupted()), learner(Interrupted())
    watched.predict(batch())
    alone.observe(batch(3))
    actions = {"predict": lambda: watched.predict(batch()), "draw": lambda: torch.rand(3)}
    monkeypatch.setattr(Interrupted, "action", actions[action])
    watched.observe(batch(3))
    assert state(watched, tmp_path / "w") == state(alone, tmp_path / "a")


# -- 3. files under loaded models -----------------------------------------------------------


def use_after_truncation(path):
    learner().save(path)
    loaded = learner(lessons=())
    loaded.load(path)
    with open(path, "r+b") as file:
        file.truncate(10)
    loaded.observe(batch(3))
    print(json.dumps(loaded.evaluate([batch(3)])))


def test_3_a_file_truncated_under_a_loaded_learner_does_not_kill_the_process(tmp_path):
    assert output(use_after_truncation, tmp_path / "c") > 0.9


# -- 4. refused batches ---------------------------------------------------------------------


def labels(change):
    return lambda items: replace(items, target=change(items.target))


REFUSED = {
    "gradient": lambda items: replace(items, x=items.x.clone().requires_grad_()),
    "label NaN": labels(lambda target: target.double().index_fill(0, torch.tensor(5), torch.nan)),
    "label 1.5": labels(lambda target: target + 0.5),
    "label inf": labels(lambda target: target.double().index_fill(0, torch.tensor(5), torch.inf)),
    "label True": labels(lambda target: target > 0),
}


def refuse(made, spoiled, path):
    before = state(made, path)
    with pytest.raises((TypeError, ValueError)):
        made.observe(spoiled)
    assert state(made, path) == before


@pytest.mark.parametrize("kind", REFUSED)
def test_4_a_refused_batch_leaves_no_trace(tmp_path, kind):
    made = learner()
    refuse(made, REFUSED[kind](batch(3)), tmp_path / "c")
    made.observe(batch(3))


def test_4_dense_items_after_sparse_ones_leave_no_trace(tmp_path):
    made = learner(prepare=sparse)
    refuse(made, batch(3), tmp_path / "c")
    made.observe(sparse(batch(3)))


def test_4_an_exception_inside_observe_leaves_no_trace(tmp_path):
    made = learner()
    before, calls = state(made, tmp_path / "c"), iter(range(100))

    def interrupt(*arguments):
        if next(calls) == 2:  # after steps on the new items
            raise KeyboardInterrupt

    hook = made.model.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.observe(batch(3, classes=3))
    hook.remove()
    assert state(made, tmp_path / "c") == before
    made.observe(batch(3))


# -- 5. crafted checkpoints -----------------------------------------------------------------


def put(name, tensor):
    def change(tensors, values):
        assert name in tensors
        tensors[name] = tensor(tensors[name])

    return change


def same_class_twice(tensors, values):
    owner = values if "classes" in values else values["task"]
    assert owner["classes"] == [0, 1]
    owner["classes"] = [0, 0]


CRAFTED = {
    "weights of NaN": lambda tensors, values: tensors.update(
        {k: t * torch.nan for k, t in tensors.items() if k.startswith("model.")}
    ),
    "a class twice": same_class_twice,
    "items of unknown classes": put("memory.target", lambda old: old + 7),
    "items of NaN": put("memory.x", lambda old: old * torch.nan),
    "no labels": lambda tensors, values: tensors.pop("memory.target"),
    "a position below 0": lambda tensors, values: values.update(position=-1),
}


@pytest.mark.parametrize("kind", CRAFTED)
def test_5_a_crafted_checkpoint_is_refused_and_changes_nothing(tmp_path, kind):
    learner().save(tmp_path / "c")
    tensors, values = checkpoint.read_checkpoint(tmp_path / "c")
    CRAFTED[kind](tensors, values)
    checkpoint.write_checkpoint(tmp_path / "crafted", tensors, values)  # with a valid checksum
    made = learner(lessons=(5,))
    before = state(made, tmp_path / "made")
    with pytest.raises(ValueError, match="crafted"):
        made.load(tmp_path / "crafted")
    assert state(made, tmp_path / "made") == before


if __name__ == "__main__":
    call()
