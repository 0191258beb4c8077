"""What a lesson may not do to a model folder: ruin it, mix generations, or leave files behind."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from test_action_tool import csv_of, invoke

from evergraph.apps.action.recognizer import FILE, Recognizer
from evergraph.apps.action.recording import generate
from evergraph.apps.action.score import LostError
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.learn.checkpoint import locked, previous

DATA = generate(sensors=2, channels=2, activities=3, subjects=2, trials=1, seconds=20, noise=0.2)
OLD = [r for r in DATA.recordings if r.activity != DATA.activities[2]]
NEW = next(r for r in DATA.recordings if r.activity == DATA.activities[2])
CONFIG = RecognizerConfig(model="mlp", length=20, stride=10, batch_size=20, memory=400)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recognizer = Recognizer(DATA.layout, config=CONFIG)
    recognizer.learn(OLD, epochs=4)
    folder = tmp_path_factory.mktemp("trained")
    recognizer.save(folder)
    return (folder / FILE).read_bytes()


@pytest.fixture
def model(trained, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / FILE).write_bytes(trained)
    return folder


def lesson(folder, recording=NEW, name="lesson.csv"):
    path = folder / name
    path.write_text(csv_of(recording, DATA.layout, extra=recording.activity))
    return path


# What the model knows as its first activity, four times as much under the name of a new one.
MISLABELED = replace(
    OLD[0],
    samples=np.concatenate([r.samples for r in OLD if r.activity == OLD[0].activity] * 4),
    activity="nonsense",
)


def state(recognizer):
    return recognizer.learner.digest(), recognizer.activities


# -- what may be lost -----------------------------------------------------------------------


def test_a_lesson_that_costs_too_much_is_undone(model):
    recognizer = Recognizer.load(model)
    before = state(recognizer)
    with pytest.raises(LostError, match=r"mean recall 1.000 → 0.\d+ on the 196 windows"):
        recognizer.learn([MISLABELED])
    assert state(recognizer) == before
    assert state(Recognizer.load(model)) == before
    lost = recognizer.learn([MISLABELED], allowed_loss=None)
    assert lost.before.accuracy == 1.0
    assert lost.after.recall[OLD[0].activity] < 0.5


def test_one_activity_may_not_be_lost_among_many(model):
    recognizer = Recognizer.load(model)
    with pytest.raises(LostError, match=r"of the mean and 0.5 of one"):
        recognizer.learn([MISLABELED], allowed_loss=0.9)


def test_a_lesson_that_is_interrupted_is_undone(model):
    recognizer = Recognizer.load(model)
    before = state(recognizer)

    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recognizer.learn([NEW], report=interrupt)
    assert state(recognizer) == before


def test_the_command_says_what_was_lost_and_changes_nothing(model, tmp_path):
    before = sorted((path.name, path.read_bytes()) for path in model.iterdir())
    command = ("action", "learn", model, lesson(tmp_path, MISLABELED))
    refused = invoke(*command, "--json")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    text = " ".join(refused.stderr.split())
    assert "the old activities would lose too much: mean recall 1.000 →" in text
    assert f"{OLD[0].activity} 1.00 →" in text
    assert "--force" in text
    assert sorted((path.name, path.read_bytes()) for path in model.iterdir()) == before
    assert invoke(*command, "--allowed-loss", 2).exit_code == 2
    forced = invoke(*command, "--force")
    assert forced.exit_code == 0, forced.output
    assert "Accuracy on the 196 windows in memory: 1.000 → " in forced.stdout


def test_what_changed_is_printed_by_activity(model, tmp_path):
    told = invoke("action", "learn", model, lesson(tmp_path), "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)["on_memory"]
    assert found["windows"] == 196
    assert found["recall"].keys() == set(DATA.activities[:2])
    assert found["accuracy"][0] == found["recall"][DATA.activities[0]][0] == 1.0
    recognizer = Recognizer.load(model)
    score = recognizer.evaluate(OLD)
    assert {name: after for name, (_, after) in found["recall"].items()} == score.recall


# -- outliers -------------------------------------------------------------------------------


def spiked(size=1e5, at=250):
    samples = NEW.samples.copy()
    samples[at, 0, 1] = size
    return replace(NEW, samples=samples)


def test_a_spike_does_not_touch_the_old_activities(model, tmp_path):
    told = invoke("action", "learn", model, lesson(tmp_path, spiked()), "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["clipped"] == 1
    assert found["on_memory"]["accuracy"] == [1.0, 1.0]
    recognizer = Recognizer.load(model)
    assert recognizer.evaluate(OLD).accuracy == 1.0
    assert recognizer.evaluate([NEW]).accuracy > 0.9
    largest = max(float(item.x.abs().max()) for item in recognizer.learner.memory.items)
    assert largest < 100


def test_a_spike_that_passes_ruins_the_model_and_is_refused(model, tmp_path, trained):
    path = lesson(tmp_path, spiked())
    let = invoke("action", "learn", model, path, "--outliers", "pass")
    assert let.exit_code == 2
    assert "the old activities would lose too much" in " ".join(let.stderr.split())
    refused = invoke("action", "learn", model, path, "--outliers", "refuse")
    assert refused.exit_code == 2
    text = " ".join(refused.stderr.split())
    assert "torso.acc_y of lesson.csv must be at most" in text
    assert "got 100000 at 10 s; correct it, or use --outliers" in text
    wrong = invoke("action", "learn", model, path, "--outliers", "ignore")
    assert wrong.exit_code == 2
    assert "outliers must be one of clip, refuse, pass" in " ".join(wrong.stderr.split())
    assert (model / FILE).read_bytes() == trained
    clipped = invoke("action", "learn", model, path)
    assert "1 outliers were clipped" in clipped.stdout


def test_a_spike_in_training_does_not_set_the_scale():
    clean, odd = (Recognizer(DATA.layout, config=CONFIG) for _ in range(2))
    assert clean.learn([*OLD, NEW], epochs=1).clipped == 0
    assert odd.learn([*OLD, spiked()], epochs=1).clipped == 1
    scales = [one.learner.model.encoder.deviation for one in (clean, odd)]
    np.testing.assert_allclose(*scales, rtol=0.5)


def test_a_livelier_activity_is_no_outlier(model):
    recognizer = Recognizer.load(model)
    lively = replace(NEW, samples=50 * NEW.samples, activity="shaking")
    assert recognizer.learn([lively], allowed_loss=None).clipped == 0
    assert recognizer.learn([spiked(size=1e6)], allowed_loss=None).clipped == 1


def test_what_is_usual_is_kept_with_the_model(model):
    one = Recognizer.load(model)
    one.learn([NEW])
    one.save(model)
    assert Recognizer.load(model).gate.state() == one.gate.state()
    before = one.gate.state()
    with pytest.raises(ValueError, match="must be at most"):
        one.learn([spiked()], outliers="refuse")
    assert one.gate.state() == before


# -- generations and writers ----------------------------------------------------------------


def test_the_generation_before_is_kept_and_used_if_the_newest_is_damaged(model, tmp_path, trained):
    path = model / FILE
    assert invoke("action", "learn", model, lesson(tmp_path)).exit_code == 0
    assert previous(path).read_bytes() == trained
    assert sorted(p.name for p in model.iterdir()) == [FILE, f"{FILE}.previous"]
    for damaged in (path.read_bytes()[:-9], b"", None):
        path.unlink(missing_ok=True) if damaged is None else path.write_bytes(damaged)
        recognizer = Recognizer.load(model)
        assert recognizer.activities == list(DATA.activities[:2])
        assert "generation before the newest is used, because" in recognizer.notes[0]
        told = invoke("action", "predict", model, input=csv_of(NEW, DATA.layout))
        assert told.exit_code == 0, told.output
        assert "generation before the newest" in " ".join(told.stderr.split())
    told = invoke("action", "learn", model, lesson(tmp_path), "--json")
    assert any("generation before" in note for note in json.loads(told.stdout)["notes"])
    assert previous(path).read_bytes() == trained, "what was damaged is not kept"
    assert not Recognizer.load(model).notes


def test_two_damaged_generations_are_refused(model, tmp_path):
    assert invoke("action", "learn", model, lesson(tmp_path)).exit_code == 0
    for path in model.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    told = invoke("action", "learn", model, lesson(tmp_path))
    assert told.exit_code == 2
    assert "not whole and was left as it is" in " ".join(told.stderr.split())


def test_a_second_writer_is_refused(model, tmp_path, trained):
    with locked(model / FILE):
        told = invoke("action", "learn", model, lesson(tmp_path))
        assert told.exit_code == 2
        assert "in use by another process" in " ".join(told.stderr.split())
        other = invoke("action", "learn", model, lesson(tmp_path), "--out", tmp_path / "other")
        assert other.exit_code == 0, other.output
    assert (model / FILE).read_bytes() == trained
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [FILE]


def test_nothing_is_made_where_no_model_is(tmp_path):
    told = invoke("action", "learn", tmp_path / "nowhere", lesson(tmp_path))
    assert told.exit_code == 2
    assert "must be a model folder" in " ".join(told.stderr.split())
    assert not (tmp_path / "nowhere").exists()


# -- signals --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_old_model_and_no_files(model, tmp_path, trained, kind):
    command = [
        sys.executable, "-m", "evergraph", "action", "learn", str(model), str(lesson(tmp_path)),
        "--epochs", "100000",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while not any(path.name.endswith(".lock") for path in model.iterdir()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(kind)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 128 + kind
    told = [line for line in told.splitlines() if not line.startswith(("reading", "learning"))]
    assert told == [f"Interrupted. {model}/ is as it was."]
    assert (model / FILE).read_bytes() == trained
    assert [path.name for path in model.iterdir()] == [FILE]


# -- odd names ------------------------------------------------------------------------------


def test_names_are_printed_as_they_are(model, tmp_path):
    odd = tmp_path / "[red] :smile:" / "x["
    odd.mkdir(parents=True)
    model = model.rename(odd / "oops]")  # the path holds the tag [/oops]
    (odd / "b].csv").write_text(csv_of(NEW, DATA.layout, extra="[/oops]"))
    learned = invoke("action", "learn", model, odd / "b].csv")
    assert learned.exit_code == 0, learned.output
    assert "(new: [/oops])" in learned.stdout
    assert f"The model is in {model}/" in learned.stdout.replace("\n", "")
    shown = invoke("action", "evaluate", model, odd)
    assert shown.exit_code == 0, shown.output
    assert "[/oops]" in shown.stdout
    assert f"{odd.name}: accuracy" in shown.stdout
    told = invoke("action", "predict", model, odd / "b].csv")
    assert told.exit_code == 0, told.output
    assert "[/oops]" in {line.split(",")[1] for line in told.stdout.splitlines()}
    refused = invoke("action", "learn", model, lesson(odd, replace(NEW, activity="[/b]")))
    assert refused.exit_code == 2
    assert "([/oops] 1.00 →" in " ".join(refused.stderr.split())
    unknown = invoke("action", "evaluate", model, odd)
    assert unknown.exit_code == 2
    assert "got '[/b]'" in " ".join(unknown.stderr.split())
    short = invoke("action", "predict", model, lesson(odd, NEW.part(0, 10, 25.0)))
    assert f"{odd}/lesson.csv is shorter" in short.stderr.replace("\n", "")
    made = invoke("action", "train", odd, "--out", odd / "i]", "--length", 20, "--split", "none")
    assert made.exit_code == 0, made.output
