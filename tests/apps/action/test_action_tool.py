"""The recognizer, predictions while samples come, experiments, and the commands."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks.action import cost
from evergraph.apps.action.choice import choose
from evergraph.apps.action.novelty import UNKNOWN, Calibration
from evergraph.apps.action.online import Follower, follow
from evergraph.apps.action.recognizer import FILE, Recognizer
from evergraph.apps.action.recording import generate
from evergraph.apps.action.rich import CLOSED
from evergraph.apps.action.splits import propose_length
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.apps.action.windows import cut, nodes
from evergraph.cli import app
from evergraph.cli.action_output import summarized
from evergraph.evaluate.figures import band_looks, confusion_matrix
from evergraph.learn.learner import Learner
from experiments import action as experiment
from experiments import action_cells, action_figures, action_runs, action_search
from experiments.action_cells import cells, collect, fill
from experiments.action_runs import Config, compute, divide
from experiments.action_search import best_for_subjects, best_rates, search, search_subjects

QUICK = RecognizerConfig(length=20, stride=10, batch_size=20, epochs=4, memory=400)


def quick(data, activities=None, **changes):
    recognizer = Recognizer(data.layout, config=QUICK)
    wanted = [r for r in data.recordings if activities is None or r.activity in activities]
    recognizer.learn(wanted, epochs=4, **changes)
    return recognizer


@pytest.fixture(scope="module")
def data():
    return generate(
        sensors=2, channels=2, activities=3, subjects=2, trials=1, seconds=20.0, noise=0.2
    )


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    quick(data).save(folder)
    return folder


def csv_of(recording, layout, rate=25.0, time=None, values=None, extra=None):
    values = recording.samples.reshape(len(recording), -1) if values is None else values
    time = np.arange(len(values)) / rate if time is None else time
    lines = [",".join(["time", *layout.columns, *(["activity"] if extra else [])])]
    for t, row in zip(time, values, strict=True):
        cells = [f"{t:.4f}", *("nan" if np.isnan(v) else f"{v:.5f}" for v in row)]
        lines.append(",".join(cells + ([extra] if extra else [])))
    return "\n".join(lines) + "\n"


# -- the recognizer -------------------------------------------------------------------------


def test_it_learns_saves_and_loads(data, model):
    recognizer = Recognizer.load(model)
    score = recognizer.evaluate(data.recordings)
    assert score.accuracy > 0.9
    assert set(score.recall) == set(data.activities)
    x = torch.from_numpy(nodes(data.recordings[0].samples, np.array([0, 30]), 20))
    shares = recognizer.probabilities(x)
    torch.testing.assert_close(shares.sum(-1), torch.ones(2))
    again = Recognizer.load(model)
    torch.testing.assert_close(again.probabilities(x), shares)


def test_it_learns_a_new_activity_without_the_old_data(data):
    recognizer = quick(data, activities=data.activities[:2])
    old = [r for r in data.recordings if r.activity in data.activities[:2]]
    new = next(r for r in data.recordings if r.activity == data.activities[2])
    before = recognizer.evaluate(old).accuracy
    recognizer.learn([new.part(0, 300, 25.0)])
    assert recognizer.activities == [*data.activities]
    assert recognizer.evaluate([new.part(300, 500, 25.0)]).accuracy > 0.8
    assert recognizer.evaluate(old).accuracy > before - 0.1
    kept = [item.node for item in recognizer.learner.memory.items]
    assert len(kept) == len(old) * 49 + 29, "every window once, however often it was learned"


def test_scale_follows_only_if_asked(data):
    recognizer = quick(data, activities=data.activities[:2])
    scaling = recognizer.learner.model.encoder
    before = scaling.mean.clone()
    new = [r for r in data.recordings if r.activity == data.activities[2]]
    recognizer.learn(new, epochs=1)
    torch.testing.assert_close(scaling.mean, before)
    recognizer.learn(new, epochs=1, rescale=True)
    assert not torch.equal(scaling.mean, before)


def test_unknown_activities_are_named(data):
    recognizer = quick(data, activities=data.activities[:2])
    with pytest.raises(ValueError, match="'lying'; teach them first"):
        recognizer.evaluate(data.recordings)
    with pytest.raises(ValueError, match="must have 2 sensors"):
        recognizer.evaluate(generate(sensors=3, channels=2, seconds=4).recordings[:1])


@pytest.mark.parametrize("keep", [0, 100, -10])
def test_a_truncated_model_folder_is_refused_and_left_alone(model, tmp_path, keep):
    whole = (model / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:keep])
    with pytest.raises(ValueError, match="not whole and was left as it is"):
        Recognizer.load(tmp_path)
    assert (tmp_path / FILE).read_bytes() == whole[:keep]


def test_windows_that_cannot_be_cut_are_refused_before_training(data):
    for bad in ({"length": 2}, {"length": 51}, {"stride": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
            Recognizer(data.layout, config=RecognizerConfig(**bad))


def test_no_model_folder(tmp_path):
    with pytest.raises(ValueError, match="must be a model folder"):
        Recognizer.load(tmp_path)


# -- while samples come ---------------------------------------------------------------------


def predictions(model, text, stride=10):
    return [made for made, _ in follow(Recognizer.load(model), io.StringIO(text), "x", stride)]


def test_a_stream_is_told_as_its_windows_are(data, model):
    recording = data.recordings[1]
    found = predictions(model, csv_of(recording, data.layout))
    first = np.arange(0, len(recording) - 19, 10)
    x = torch.from_numpy(nodes(recording.samples, first, 20))
    shares, best = Recognizer.load(model).probabilities(x).max(-1)
    assert [made.activity for made in found] == [data.activities[i] for i in best]
    np.testing.assert_allclose([m.probability for m in found], shares, atol=1e-3)
    np.testing.assert_allclose([m.time for m in found], first / 25)


def test_predictions_come_while_the_stream_goes_on(data, model):
    lines = csv_of(data.recordings[0], data.layout).splitlines(keepends=True)
    taken = 0

    def slowly():
        nonlocal taken
        for line in lines:
            taken += 1
            yield line

    made, _ = next(follow(Recognizer.load(model), slowly(), "x", 10))
    assert made.time == 0.0
    assert taken <= 1 + 20 + 7 + 10 + 25, "a window, a quarter of a second, and a block of samples"


def test_memory_stays_flat(data, model):
    follower = Follower(Recognizer.load(model), stride=10)
    values = data.recordings[0].samples.reshape(-1, 4)
    for turn in range(6):
        time = np.arange(len(values)) / 25 + turn * len(values) / 25
        follower.feed(time, values)
        assert len(follower._samples) < 20 + 10
        assert len(follower.resampler._time) < 20
    assert follower.windows > 200


def test_another_rate_is_resampled(data, model):
    recording = data.recordings[1]
    slow = np.arange(len(recording)) / 25
    time = np.arange(0, slow[-1], 0.01)
    flat = recording.samples.reshape(len(recording), -1)
    values = np.stack([np.interp(time, slow, column) for column in flat.T], axis=1)
    found = predictions(model, csv_of(recording, data.layout, time=time, values=values))
    assert np.mean([made.activity == recording.activity for made in found]) > 0.9


def test_a_sensor_that_drops_out_is_named_and_the_rest_goes_on(data, model):
    recording = data.recordings[1]
    values = recording.samples.reshape(len(recording), -1).copy()
    values[200:300, :2] = np.nan
    found = predictions(model, csv_of(recording, data.layout, values=values))
    assert len(found) == 49, "nothing is lost"
    gone = [made.time for made in found if made.missing == ("torso",)]
    assert gone
    assert min(gone) > 7.2
    assert max(gone) < 12.1
    values[200:300] = np.nan  # everything is gone: no window reaches into it
    found = predictions(model, csv_of(recording, data.layout, values=values))
    assert all(made.time + 0.8 <= 8.1 or made.time >= 11.9 for made in found)


def test_nan_bursts_are_bridged(data, model):
    recording = data.recordings[1]
    values = recording.samples.reshape(len(recording), -1).copy()
    for start in range(50, 450, 40):
        values[start : start + 3] = np.nan
    found = predictions(model, csv_of(recording, data.layout, values=values))
    assert len(found) == 49
    assert not any(made.missing for made in found)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda text: text.replace("torso.acc_x", "torso.roll"), "missing"),
        (lambda text: text.split("\n")[0] + "\n", "at least one row"),
        (lambda text: "", "but is empty"),
        (lambda text: text + "0.1,1,1,1,1\n", "time must grow"),
    ],
)
def test_bad_streams_are_refused(data, model, change, match):
    with pytest.raises(ValueError, match=match):
        predictions(model, change(csv_of(data.recordings[0], data.layout)))


def test_a_rate_that_is_too_low_is_refused(data, model):
    recording = data.recordings[0]
    time = np.arange(len(recording)) * 1.0
    with pytest.raises(ValueError, match=r"at least 12.5 samples per second.*got 1"):
        predictions(model, csv_of(recording, data.layout, time=time))


def test_stride_must_be_positive(model):
    with pytest.raises(ValueError, match="stride"):
        Follower(Recognizer.load(model), 0)


# -- experiments ----------------------------------------------------------------------------

TINY = {"length": 20, "stride": 20, "test_stride": 20, "batch_size": 20, "memory": 60}


@pytest.mark.parametrize("scenario", ["regular", "paper", "class", "subject"])
def test_an_experiment_counts_what_it_says(data, scenario):
    method = "finetune" if scenario == "regular" else "replay"
    config = Config(scenario=scenario, method=method, epochs=2, **TINY)
    seen = []
    found = compute(config, data, 1, lambda done, total: seen.append((done, total)))
    record, confusion = found["runs"][0], np.array(found["confusion"])
    assert confusion.sum() == 6 * 5
    assert found["accuracy_mean"] == pytest.approx(np.trace(confusion) / confusion.sum())
    assert seen[-1] == (6 * 20 * (2 if scenario == "regular" else 1),) * 2
    tasks = {"regular": 2, "paper": 2, "class": 3, "subject": 2}[scenario]
    assert len(record["class_history"]) == len(record["matrix"]) == tasks
    recall = np.diagonal(confusion) / confusion.sum(1)
    assert list(record["class_history"][-1].values()) == pytest.approx(
        [recall[int(label)] for label in record["class_history"][-1]]
    )
    assert len(record["matrix"][0]) == (3 if scenario == "class" else 1)
    assert (record["memory_bytes"] > 60 * 4 * 2 * 10 * 4) == (method == "replay")
    assert {"accuracy_sd", "accuracy_per_seed", "curve", "ms_per_window"} <= set(found)
    assert found["accuracy_sd"] == 0
    assert found["config"]["scenario"] == scenario


def test_the_same_seed_gives_the_same_numbers(data):
    config = Config(scenario="class", method="replay", **TINY)
    one, two = compute(config, data, 3), compute(config, data, 3)
    assert one["confusion"] == two["confusion"]
    assert one["runs"][0]["class_history"] == two["runs"][0]["class_history"]


@pytest.mark.parametrize("model", ["trees", "ridge"])
def test_classical_anchors_work_on_statistics(data, model):
    pytest.importorskip("sklearn")
    found = compute(Config(model=model, scenario="paper", epochs=1, **TINY), data)
    assert found["accuracy_mean"] > 0.8


@pytest.mark.parametrize("model", ["trees", "ridge"])
def test_classical_anchors_do_not_depend_on_the_order(data, model):
    pytest.importorskip("sklearn")
    found = [
        compute(Config(model=model, scenario=scenario, epochs=1, **TINY), data, 0)["confusion"]
        for scenario in ("paper", "class", "subject")
    ]
    assert found[0] == found[1] == found[2]


def test_validation_never_sees_the_test_part(data):
    _, test = divide(Config(), data)
    train, check = divide(Config(validation=True), data)
    for one, two, three in zip(train.recordings, check.recordings, test.recordings, strict=True):
        assert one.start + len(one) / 25 == pytest.approx(two.start)
        assert two.start + len(two) / 25 == pytest.approx(three.start)
    train, test = divide(Config(split="subjects", left_out=("p1",)), SUBJECTS)
    assert (train.subjects, test.subjects) == (("p2", "p3"), ("p1",))
    with pytest.raises(ValueError, match="needs left_out"):
        divide(Config(split="subjects"), data)


SUBJECTS = generate(sensors=1, channels=1, activities=1, subjects=3, trials=1, seconds=4)


def test_a_recognizer_that_augments_its_windows_is_saved_as_such(tmp_path):
    made = invoke(
        "action", "train", "generated", "--out", tmp_path / "m", "--model", "mlp", "--augment",
        "--stride", 100, "--epochs", 1, "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    loaded = Recognizer.load(tmp_path / "m")
    assert loaded.config.augment
    assert loaded.learner.model.encoder.augmentation is not None


def test_method_must_fit(data):
    with pytest.raises(ValueError, match="method must be one of finetune, replay"):
        compute(Config(method="magic", **TINY), data)


def test_settings_for_people_left_out_come_from_others(monkeypatch):
    eight = generate(sensors=1, channels=1, activities=2, subjects=8, trials=1, seconds=8)
    learned_from = []

    def spy(config, data, seed, follow, ready):
        learned_from.append((config.left_out, set(ready.data.subjects)))
        found = compute(config, data, seed, follow, ready)
        tested = [set(np.array(ready.subjects)[_rows(ready, g)]) for g in groups_of(config, ready)]
        assert tested == [set(config.left_out[:2]), set(config.left_out[2:])]
        return found

    def groups_of(config, ready):
        return action_runs.build(config, eight, ready, 0)[0].test_groups

    def _rows(ready, group):
        return (group - len(ready.train)).numpy()

    monkeypatch.setattr(action_search, "compute", spy)
    monkeypatch.setattr(action_search, "UNSEEN", ("mlp",))
    trials = list(search_subjects(eight, lambda *_: None))
    assert all(set(out).isdisjoint(people) for out, people in learned_from)
    assert len(learned_from) == 36
    assert all(set(t["left_out"]).isdisjoint(t["tested_on"]) for t in trials)
    for pair in (["p1", "p2"], ["p3", "p4"], ["p5", "p6"], ["p7", "p8"]):
        mine = [(t["lr"], t["augment"], *t["tested_on"]) for t in trials if t["left_out"] == pair]
        assert len(mine) == len(set(mine)) == 18
    assert not list(search_subjects(eight, lambda *_: None, trials))
    cut_off = list(search_subjects(eight, lambda *_: None, trials[:5]))
    assert len(cut_off) == len(trials) - 4  # the half trial is made again


def test_people_left_out_get_what_was_best_for_them_on_average(data):
    def trial(left_out, tested_on, augment, accuracy):
        return {
            "model": "fgn", "left_out": left_out, "tested_on": tested_on, "lr": 0.5,
            "augment": augment, "validation_accuracy": accuracy,
        }  # fmt: skip

    first, second = ["p1", "p2"], ["p3", "p4"]
    trials = [
        trial(first, second, False, 0.9), trial(first, ["p5", "p6"], False, 0.5),
        trial(first, second, True, 0.8), trial(first, ["p5", "p6"], True, 0.8),
        trial(second, first, False, 0.7), trial(second, first, True, 0.6),
    ]  # fmt: skip
    eight = generate(sensors=1, channels=1, activities=1, subjects=8, trials=1, seconds=4)
    made = cells(("subjects",), of_pairs=best_for_subjects(trials))
    cell = next(c for c in made if c.config.model == "fgn")
    configs = [cell.config_of(number, eight)[0] for number in range(3)]
    assert [config.augment for config in configs] == [True, False, False]
    assert [config.lr for config in configs] == [0.5, 0.5, Config().lr]


def test_rates_are_searched_on_the_stream_with_the_same_trials_for_all(data, monkeypatch):
    looked = []

    def fake(config, data, seed, follow, ready):
        looked.append((config.scenario, config.validation, config.replay_batches))
        best = 1e-3 if config.model == "fgn" else 4e-3
        return {"accuracy_mean": (config.lr == best) - 0.1 * seed}

    monkeypatch.setattr(action_search, "compute", fake)
    trials = list(search(data, "lifelong", lambda *_: None))
    assert set(looked) == {("paper", True, 48)}
    assert {sum(t["model"] == name for t in trials) for name in ("fgn", "gat", "mlp")} == {6}
    assert not list(search(data, "lifelong", lambda *_: None, trials))
    made = cells(("regular", "lifelong"), rates={"fgn": 2e-3}, stream_rates=best_rates(trials))
    found = {(cell.table, cell.config.model): cell.config.lr for cell in made}
    assert found["lifelong", "fgn"] == 1e-3
    assert found["lifelong", "gat"] == 4e-3
    assert found["regular", "fgn"] == 2e-3


def test_tables_go_on_where_they_were_stopped(data, tmp_path):
    four = generate(sensors=2, channels=2, activities=2, subjects=8, trials=1, seconds=8)
    plan = [
        cell
        for cell in cells(("lifelong", "subjects", "class"), seeds=2, **TINY)
        if cell.config.model in ("ridge", "mlp")
    ]
    assert {cell.key for cell in plan} == {
        "lifelong mlp replay", "lifelong ridge analytic", "class ridge analytic 60",
        "subjects ridge analytic",
    }  # fmt: skip
    path, evidence = tmp_path / "runs.jsonl", {"commit": "c0ffee", "versions": {}}
    first = next(iter(fill(plan, four, path, evidence, lambda *_: None)))
    with path.open("a") as file:
        file.write('{"key": "lifelong mlp replay", "number": 1, "record": {}}\n')  # another format
        file.write('{"key": "half')  # killed while writing
        file.write("\n")
    rest = list(fill(plan, four, path, evidence, lambda *_: None))
    assert (first["key"], first["number"]) not in {(e["key"], e["number"]) for e in rest}
    assert not list(fill(plan, four, path, evidence, lambda *_: None))
    found = collect(plan, path)
    assert [len(cell["runs"]) for cell in found] == [2, 1, 1, 4]
    assert [cell["table"] for cell in found] == ["lifelong", "lifelong", "class", "subjects"]
    assert found[3]["left_out"][1] == ["p3", "p4"]
    assert all(cell["commit"] == "c0ffee" for cell in found)
    one = found[0]
    assert one["accuracy_mean"] == pytest.approx(np.mean(one["accuracy_per_seed"]))
    history = [list(h.values()) for h in one["runs"][0]["class_history"]]
    assert np.shape(history) == (8, 2), "eight subjects, two activities"
    drops = [
        np.max([list(h.values()) for h in r["class_history"]], 0)
        - list(r["class_accuracy"].values())
        for r in one["runs"]
    ]
    assert one["class_forgetting_mean"] == pytest.approx(np.mean(drops))
    text = action_figures.document(found, four.activities, "Four.")
    assert "| mlp | replay | 60 |" in text
    assert "| mlp | 0.645 |" in text
    with pytest.raises(ValueError, match="tables are"):
        cells(("speed",))


def test_pictures(data, tmp_path):
    found = compute(Config(scenario="paper", method="replay", **TINY), data)
    cell = {**found, "recall": [0.5] * 3, "precision": [1.0] * 3}
    action_figures.stream_accuracy([cell], tmp_path / "a.png")
    action_figures.per_class([cell], data.activities, tmp_path / "b.png")
    confusion_matrix(cell["confusion"], data.activities, tmp_path / "c.png")
    for name in "abc":
        assert (tmp_path / f"{name}.png").stat().st_size > 2000


def test_the_cost_of_all_networks_is_measured_in_one_run():
    rows = cost(rounds=1, models=("fgn", "gat", "rich"))
    assert [row["model"] for row in rows] == ["fgn", "gat", "rich"]
    assert rows[2]["learn_ms_per_window"] > 0
    assert rows[1]["predict_ratio_to_gat"] == 1.0
    assert rows[0]["parameters"] == rows[1]["parameters"]
    assert rows[1]["learn_ratio_to_gat_processor"] == 1.0
    assert rows[0]["predict_ms_per_window_processor"] > 0


# -- the commands ---------------------------------------------------------------------------


def invoke(*arguments, command=app, **options):
    return CliRunner().invoke(command, [str(part) for part in arguments], **options)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for recording in data.recordings:
        if recording.activity != data.activities[2]:
            (folder / f"{recording.name}.csv").write_text(csv_of(recording, data.layout))
    return folder


def test_train_evaluate_predict_and_learn(data, files, tmp_path):
    model = tmp_path / "model"
    quickly = ("--length", 20, "--stride", 10, "--epochs", 6)
    made = invoke("action", "train", files, "--out", model, *quickly, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["accuracy"] > 0.8
    assert (model / "confusion.png").exists()

    shown = invoke("action", "evaluate", model, files, "--split", "time")
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.stdout

    one = data.recordings[0]
    text = csv_of(one, data.layout, extra=one.activity)
    (tmp_path / "one.csv").write_text(text)
    picture = tmp_path / "bands.png"
    told = invoke("action", "predict", model, tmp_path / "one.csv", "--picture", picture)
    assert told.exit_code == 0, told.output
    head, *lines = told.stdout.strip().split("\n")
    assert head == "time,activity,probability,missing,novelty"
    assert len(lines) == 49  # every 10 samples, as in training
    assert picture.exists()
    piped = invoke("action", "predict", model, "--json", input=text)
    rows = [json.loads(line) for line in piped.stdout.strip().split("\n")]
    assert [row["activity"] for row in rows] == [line.split(",")[1] for line in lines]

    new = next(r for r in data.recordings if r.activity == data.activities[2])
    (tmp_path / f"{new.name}.csv").write_text(csv_of(new, data.layout))
    refused = invoke("action", "evaluate", model, _folder(tmp_path / "new", new, data))
    assert refused.exit_code == 2
    assert "teach them first" in refused.stderr
    learned = invoke("action", "learn", model, tmp_path / f"{new.name}.csv", "--json")
    assert learned.exit_code == 0, learned.output
    assert json.loads(learned.stdout)["new_activities"] == [data.activities[2]]
    after = invoke("action", "evaluate", model, tmp_path / "new", "--json")
    assert json.loads(after.stdout)["recall"][data.activities[2]] > 0.8


def _folder(folder, recording, data):
    folder.mkdir()
    (folder / f"{recording.name}.csv").write_text(csv_of(recording, data.layout))
    return folder


def test_a_failed_lesson_leaves_the_model_as_it_was(model, tmp_path):
    before = (model / FILE).read_bytes()
    (tmp_path / "walk.csv").write_text("time,torso.acc_x\n0,1\n")
    failed = invoke("action", "learn", model, tmp_path / "walk.csv")
    assert failed.exit_code == 2
    assert "missing" in failed.stderr
    assert (model / FILE).read_bytes() == before
    absent = invoke("action", "learn", model, tmp_path / "nowhere.csv")
    assert absent.exit_code == 2


def test_complaints_are_one_line(model, tmp_path):
    for arguments in (
        ("action", "train", tmp_path),
        ("action", "train", "generated", "--out", tmp_path / "m", "--model", "lstm"),
        ("action", "predict", tmp_path, "x.csv"),
        ("action", "predict", model, tmp_path / "x.csv"),
        ("--data-root", tmp_path),
        ("--data", "generated", "--only-show", "--runs", tmp_path / "r.jsonl"),
    ):
        found = invoke(*arguments, command=app if arguments[0] == "action" else experiment.app)
        assert found.exit_code == 2, (arguments, found.output)
        assert "Error:" in found.stderr


def test_too_short_to_tell(model, data):
    text = "\n".join(csv_of(data.recordings[0], data.layout).split("\n")[:15]) + "\n"
    found = invoke("action", "predict", model, input=text)
    assert found.exit_code == 0
    assert "shorter than one window" in found.stderr


def test_the_tables_on_other_data(tmp_path, monkeypatch):
    monkeypatch.setattr(action_cells, "MODELS", ("mlp",))
    out = tmp_path / "action.json"
    arguments = ("--data", "generated", "--seeds", 1, "--out", out, "--tables", "regular,lifelong")
    more = ("--runs", tmp_path / "runs.jsonl", "--pictures", tmp_path / "p")
    found = invoke(*arguments, *more, command=experiment.app)
    assert found.exit_code == 0, found.output
    assert "| mlp | 0.645 |" in found.stdout
    cells = json.loads(out.read_text())["cells"]
    assert {cell["config"]["model"] for cell in cells} == {"mlp", "trees", "ridge"}
    assert "| mlp | 0.645 |" in out.with_suffix(".md").read_text()
    assert (tmp_path / "p" / "action_stream.png").exists()
    again = invoke(*arguments, *more, "--only-show", "--json", command=experiment.app)
    assert json.loads(again.stdout) == cells


def own_recordings(folder, names, seconds=20.0, sensors=("arm",)):
    """CSV files of one signal per sensor at 25 Hz, named as given."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    time = np.arange(0, seconds, 0.04)
    for place, name in enumerate(names):
        signal = np.sin(time * (place + 1)) + rng.normal(size=len(time)) / 9
        text = ",".join(["time", *(f"{sensor}.x" for sensor in sensors)])
        columns = [time, *([signal] * len(sensors))]
        rows = (",".join(f"{value:.3f}" for value in row) for row in zip(*columns, strict=True))
        (folder / name).write_text("\n".join([text, *rows]))
    return folder


def segments(folder, activities=5, each=8, samples=60):
    """Many short recordings of each activity, as of exercises cut out of a longer one."""
    data = generate(
        sensors=2, channels=3, activities=activities, subjects=1, trials=each,
        seconds=samples / 25, noise=0.2,
    )  # fmt: skip
    folder.mkdir()
    for one in data.recordings:
        (folder / f"{one.name}.csv").write_text(csv_of(one, data.layout))
    return data


def test_no_accuracy_is_printed_as_if_nothing_were_missing(tmp_path):
    data = segments(tmp_path / "own")
    long = generate(sensors=2, channels=3, activities=1, subjects=1, trials=1, seconds=30)
    (tmp_path / "own" / "standing-p1-99.csv").write_text(csv_of(long.recordings[0], data.layout))
    command = ("action", "train", tmp_path / "own", "--model", "rich", "--out", tmp_path / "m")
    told = json.loads(invoke(*command, "--length", 50, "--json").stdout)
    assert set(told["recall"]) == set(data.activities)  # whole recordings are held back
    assert told["untested"] == []
    assert any("held back whole" in note for note in told["notes"])
    for name in list((tmp_path / "own").glob("walking-*"))[1:]:
        name.unlink()  # one recording alone cannot be learned and tested
    shown = invoke(*command, "--length", 50)
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "of 4 of 5 activities" in text
    assert "Not tested: walking." in text
    assert json.loads((tmp_path / "m" / "score.json").read_text())["untested"] == ["walking"]
    short = invoke(*command, "--length", 80)
    assert "Not learned: " in " ".join(short.output.split())
    assert "use --length 30 or less" in " ".join(short.output.split())


def test_a_length_is_proposed_from_the_segments(tmp_path):
    segments(tmp_path / "own", samples=44)
    command = ("action", "train", tmp_path / "own", "--model", "rich", "--out", tmp_path / "m")
    told = json.loads(invoke(*command, "--json").stdout)
    assert told["length"] == 22
    assert Recognizer.load(tmp_path / "m").config.length == 22
    assert len(told["recall"]) == 5
    assert propose_length(generate().recordings) == 50


def test_small_folders_are_trained_until_convergence():
    data = generate(
        sensors=2, channels=3, activities=8, subjects=1, trials=5, seconds=3.0, noise=3.0
    )
    few, enough = (choose(data, RecognizerConfig(), ("fgn",), epochs) for epochs in (2, None))
    assert few.passes == 2
    assert enough.passes > 2
    assert enough.accuracy["fgn"] > few.accuracy["fgn"]


def test_one_command_picks_and_says_why(tmp_path):
    data = generate(sensors=2, channels=3, activities=3, subjects=4, trials=1, seconds=12)
    choice = choose(data, RecognizerConfig(stride=25), epochs=3)
    assert set(choice.left_out) == {"rich", "rich-graph"}  # people left out in turn
    best = max(choice.left_out, key=choice.left_out.get)
    assert list(choice.accuracy) == [best, "fgn", f"{best}+fgn"]
    assert choice.model == max(choice.accuracy, key=choice.accuracy.get)
    assert bool(choice.settings.graph) == (best == "rich-graph")
    assert choice.held_back == "the people p4"
    assert "Picked" in choice.text
    assert "p4" in choice.text
    assert choice.calibration.usual
    assert "with people left out in turn" in choice.text
    known = choose(data, RecognizerConfig(stride=25), CLOSED, people="known")
    assert known.held_back == "the end of each recording"
    assert "with thirds of what each person did left out in turn" in known.text
    assert known.parts == choose(data.of(["p1"]), RecognizerConfig(), CLOSED).parts
    with pytest.raises(ValueError, match="people must be one of new, known, got 'some'"):
        choose(data, RecognizerConfig(), CLOSED, people="some")
    nothing = choose(data.of(["p1"]), RecognizerConfig(length=290), ("mlp",), epochs=1)
    assert "too little" in nothing.text


def test_the_mean_of_two_models_is_saved_and_outlives_damage(tmp_path):
    data = generate(sensors=2, channels=3, activities=3, subjects=3, trials=1, seconds=12)
    config = RecognizerConfig("rich+mlp", length=20, stride=10)
    recognizer = Recognizer(data.layout, data.activities, config)
    known = [one for one in data.recordings if one.activity != data.activities[2]]
    recognizer.learn(known, epochs=3)
    recognizer.calibration = recognizer.calibrated(known)
    x = cut(data.recordings, data.activities, 20, 10).x
    parts = []
    for name, member, by in zip(
        ("rich", "mlp"), recognizer.members, recognizer.calibration.temperatures, strict=True
    ):
        alone = Recognizer(data.layout, recognizer.activities, replace(config, model=name))
        alone.members, alone.calibration = [member], Calibration((by,))
        parts.append(alone.probabilities(x))
    assert torch.allclose(recognizer.probabilities(x), (parts[0] + parts[1]) / 2, atol=1e-6)
    assert not torch.allclose(parts[0], parts[1], atol=1e-3)
    recognizer.save(tmp_path)
    first = recognizer.probabilities(x)
    loaded = Recognizer.load(tmp_path)
    assert torch.equal(loaded.probabilities(x), first)
    loaded.learn(data.recordings, epochs=3, allowed_loss=None)
    assert loaded.evaluate(data.recordings).accuracy > 0.9
    save = Learner.save

    def save_but(self, path, extra):
        if path.name == FILE:
            raise KeyboardInterrupt
        save(self, path, extra)

    for _ in range(2):  # killed twice between the two files
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Learner, "save", save_but)
            with pytest.raises(KeyboardInterrupt):
                loaded.save(tmp_path)
        assert torch.equal(Recognizer.load(tmp_path).probabilities(x), first)
    loaded.save(tmp_path)
    loaded.save(tmp_path)
    second = tmp_path / "recognizer-2.safetensors"
    assert torch.equal(Recognizer.load(tmp_path).probabilities(x), loaded.probabilities(x))
    for path in tmp_path.glob("recognizer-2*"):
        path.write_bytes(path.read_bytes()[: second.stat().st_size // 2])
    with pytest.raises(ValueError, match="is not whole and was left as it is"):
        Recognizer.load(tmp_path)


def test_notes_of_many_files_are_summarized():
    notes = [f"run-{i}.csv: nothing between {i} s and {i + 1.5} s" for i in range(40)]
    notes += ["a.csv: columns left out: x"]
    shown = summarized(notes)
    assert len(shown) == 3
    assert shown[0] == notes[0]
    assert "39 more like it, in 40 files" in shown[1]
    assert shown[2] == notes[-1]


def test_a_folder_with_gaps_does_not_flood_the_terminal(tmp_path):
    names = [f"walking-p{i}-1.csv" for i in range(9)] + [f"sitting-p{i}-1.csv" for i in range(9)]
    for path in own_recordings(tmp_path / "own", names, seconds=12.0).glob("*.csv"):
        lines = path.read_text().split("\n")
        path.write_text("\n".join(lines[:100] + lines[130:]))  # more than a second is missing
    command = ("action", "train", tmp_path / "own", "--model", "mlp", "--epochs", 1)
    shown = invoke(*command, "--split", "none", "--out", tmp_path / "m").output
    assert shown.count(".csv") == 1
    assert "17 more like it, in 18 files" in " ".join(shown.split())
    told = json.loads(invoke(*command, "--json", "--out", tmp_path / "m").stdout)
    assert sum(".csv" in note for note in told["notes"]) == 18


def test_predictions_keep_the_stride_of_training(data, tmp_path):
    recognizer = Recognizer(data.layout, config=replace(QUICK, stride=5, model="rich"))
    recognizer.learn(data.recordings)
    recognizer.save(tmp_path)
    text = csv_of(data.recordings[0], data.layout)
    told = invoke("action", "predict", tmp_path, input=text).stdout.strip().split("\n")[1:]
    times = [float(line.split(",")[0]) for line in told]
    assert np.allclose(np.diff(times), 5 / 25)
    told = invoke("action", "predict", tmp_path, "--stride", 1, input=text)
    times = [float(line.split(",")[0]) for line in told.stdout.strip().split("\n")[1:]]
    assert np.allclose(np.diff(times), 1)


@pytest.mark.parametrize("kind", ["rich", "mlp"])
def test_an_unknown_activity_is_told(kind):
    data = generate(sensors=2, channels=3, activities=4, subjects=4, trials=1, seconds=20, seed=3)
    known = [r for r in data.recordings if r.activity != data.activities[3]]
    learned = [r for r in known if r.subject != "p4"]
    held = [r for r in known if r.subject == "p4"]
    recognizer = Recognizer(data.layout, config=RecognizerConfig(model=kind, epochs=4))
    recognizer.learn(learned, epochs=4)
    recognizer.calibration = recognizer.calibrated(held)

    def told(recording):
        follower = Follower(recognizer, 25, unknown=0.99)
        time = np.arange(len(recording)) / 25
        made = follower.feed(time, recording.samples.reshape(len(recording), -1))
        return [one.activity for one in (*made, *follower.finish())]

    new = next(r for r in data.recordings if r.activity == data.activities[3])
    assert np.mean([name == UNKNOWN for name in told(new)]) > 0.8
    assert np.mean([name == UNKNOWN for one in held for name in told(one)]) < 0.1


def test_bands_can_be_told_apart():
    looks = band_looks([str(i) for i in range(40)])
    assert len({(one["facecolor"], one["hatch"]) for one in looks.values()}) == 40
    first = [looks[str(i)]["facecolor"] for i in range(8)]
    assert len(set(first)) == 8


SMALL_TRAINING = ("--model", "mlp", "--epochs", 1, "--json")


def test_held_back_parts_that_are_too_short_are_told_before_training(tmp_path):
    folder = own_recordings(tmp_path / "short", ["walk-ann-1.csv", "run-ann-1.csv"], seconds=8)
    told = invoke("action", "train", folder, "--out", tmp_path / "m", *SMALL_TRAINING)
    assert told.exit_code == 2
    assert "must have a window of 50 samples to test on" in " ".join(told.output.split())
    more = invoke(
        "action", "train", folder, "--out", tmp_path / "m", "--split", "none", *SMALL_TRAINING
    )
    assert more.exit_code == 0, more.output


def test_an_activity_of_somebody_left_out_is_not_known(tmp_path):
    names = ["walk-ann-1.CSV", "run-ann-1.csv", "walk-bob-1.csv", "jump-bob-1.csv"]
    folder = own_recordings(tmp_path / "own", names)
    command = ["action", "train", folder, "--out", tmp_path / "m", *SMALL_TRAINING]
    told = invoke(*command, "--leave-out", "bob")
    assert told.exit_code == 0, told.output
    assert any("Not tested" in note and "jump" in note for note in json.loads(told.stdout)["notes"])
    assert list(Recognizer.load(tmp_path / "m").activities) == ["run", "walk"]
    told = invoke("action", "learn", tmp_path / "m", folder / "jump-bob-1.csv", "--json")
    assert json.loads(told.stdout)["new_activities"] == ["jump"]
    nobody = invoke(*command, "--leave-out", "ann,bob,")
    assert nobody.exit_code == 2
    assert "must leave somebody to learn from" in " ".join(nobody.output.split())


def test_sensors_that_only_some_files_have_are_noted(tmp_path):
    folder = own_recordings(tmp_path / "own", ["a-ann.csv"])
    more = own_recordings(tmp_path / "more", ["b-bob.csv"], sensors=("arm", "leg"))
    (more / "b-bob.csv").rename(folder / "b-bob.csv")
    told = invoke("action", "train", folder, "--out", tmp_path / "m", *SMALL_TRAINING)
    assert told.exit_code == 0, told.output
    assert "b-bob.csv: left out, as not in a-ann.csv: leg" in json.loads(told.stdout)["notes"]


def test_a_lesson_may_be_named_and_may_be_a_folder(tmp_path):
    folder = own_recordings(tmp_path / "own", ["walk-ann.csv", "run-ann.csv"])
    model = tmp_path / "m"
    assert invoke("action", "train", folder, "--out", model, *SMALL_TRAINING).exit_code == 0
    more = own_recordings(tmp_path / "more", ["x-ann.csv", "y-bob.csv"], sensors=("leg", "arm"))
    text = (more / "x-ann.csv").read_text().split("\n")
    unlabeled = "\n".join([f"{text[0]},activity", *(f"{row}," for row in text[1:])])
    (more / "x-ann.csv").write_text(unlabeled)
    refused = invoke("action", "learn", model, more)
    assert refused.exit_code == 2
    assert "x-ann.csv has rows without an activity" in " ".join(refused.output.split())
    for lesson, count in ((more / "x-ann.csv", 1), (more, 2)):  # the signals of walk and run
        told = invoke("action", "learn", model, lesson, "--activity", "jump", "--force", "--json")
        assert told.exit_code == 0, told.output
        found = json.loads(told.stdout)
        assert (found["recordings"], found["activities"]) == (count, ["run", "walk", "jump"])
        assert "x-ann.csv: left out, as not in the model: leg" in found["notes"]


def test_odd_names_and_places(tmp_path):
    folder = own_recordings(tmp_path / "own", ["walk, fast [old]-ann.csv", "run-ann.csv"])
    taken = tmp_path / "file"
    taken.write_text("mine")
    told = invoke("action", "train", folder, "--out", taken, *SMALL_TRAINING)
    assert told.exit_code == 2
    assert taken.read_text() == "mine"
    command = ["action", "train", folder, "--out", tmp_path / "m", "--model", "mlp", "--epochs", 2]
    told = invoke(*command)
    assert "walk, fast [old]" in told.stdout
    told = invoke("action", "predict", tmp_path / "m", folder / "walk, fast [old]-ann.csv")
    rows = list(csv.reader(io.StringIO(told.stdout)))
    assert {len(row) for row in rows} == {5}
    assert {row[1] for row in rows[1:]} <= {"run", "walk, fast [old]"}
    refused = invoke("action", "learn", tmp_path / "m", folder / "run-ann.csv", "--epochs", -1)
    assert refused.exit_code == 2
