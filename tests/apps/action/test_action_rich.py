"""Rich features of windows, their feature graph, and the closed form that reads them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evergraph.apps.action.features import (
    LAGS,
    along_gravity,
    correlations,
    graph,
    gravity,
    mean,
    moments,
    spectrum,
    unit_power,
)
from evergraph.apps.action.network import rotations
from evergraph.apps.action.recognizer import Recognizer
from evergraph.apps.action.recording import Layout, generate
from evergraph.apps.action.rich import RichFeatures, Settings, as_items, turned
from evergraph.apps.action.search import (
    Discriminants,
    Table,
    encoder_of,
    parts_of_people,
    parts_of_time,
    search,
)
from evergraph.apps.action.teaching import RecognizerConfig
from evergraph.apps.action.windows import as_batch, cut
from evergraph.feature_graph.equations import normalize, sgnroot

RICH = RecognizerConfig(model="rich-graph", length=20, stride=10)


@pytest.fixture(scope="module")
def data():
    return generate(sensors=3, channels=4, activities=3, subjects=3, trials=1, seconds=12)


@pytest.fixture
def y():
    return torch.randn(2, 3, 4, 30, generator=torch.Generator().manual_seed(0))


def test_the_graph_is_the_plain_loop(y):
    unit, found = unit_power(y), []
    for lag in LAGS:
        for s in range(3):
            mean = sum(unit[0, u] for u in range(3) if u != s) / 2
            table = torch.zeros(4, 4)
            for t in range(30 - lag):
                table += torch.outer(unit[0, s, :, t], mean[:, t + lag]) / (30 - lag)
            adjacency = normalize(sgnroot(table + table.T))
            found += [adjacency[i, j] for i in range(4) for j in range(i, 4)]
    assert torch.allclose(graph(y)[0], torch.stack(found), atol=1e-5)


def test_correlations_are_the_plain_loop(y):
    unit = unit_power(y)[0]
    expected = [
        np.mean([float(unit[a, c, t] * unit[b, c, t + lag]) for t in range(30 - lag)])
        for lag in LAGS
        for pairs in ([((0, 1), (0, 2), (1, 2))] + ([((1, 0), (2, 0), (2, 1))] if lag else []))
        for c in range(4)
        for a, b in pairs
    ]
    assert np.allclose(correlations(y)[0].numpy(), expected, atol=1e-5)


def test_moments_and_bands_of_a_wave():
    time = torch.arange(50) / 25
    wave = 3 + torch.sin(2 * torch.pi * 2 * time)  # 2 Hz of at most 12.5
    mean, deviation, low, middle, high = moments(wave[None])[0].tolist()
    assert (mean, middle) == (pytest.approx(3, abs=0.01), pytest.approx(3, abs=0.1))
    assert deviation == pytest.approx(0.5**0.5, abs=0.01)
    assert low < middle < high
    assert int(spectrum(wave[None])[0, :6].argmax()) == 2  # 0.12 to 0.2 of half the rate


@pytest.mark.parametrize("sensors", [1, 2])
@pytest.mark.parametrize("features", [2, 5, 25])
def test_windows_and_layouts_of_any_size(sensors, features):
    layout = Layout(("a", "b")[:sensors], ("acc_x", "acc_y", "acc_z", "light"), 25.0)
    encoder = RichFeatures(layout, features)
    x = torch.randn(6, 2 * sensors, 4, features)
    encoder.update(x)
    found = encoder(x)
    assert found.shape == (6, 1, len(encoder.weight) + 1)
    assert torch.isfinite(found).all()
    flat = encoder(torch.zeros(1, 2 * sensors, 4, features))
    assert torch.isfinite(flat).all()


def test_order_does_not_matter_and_forgetting_is_exact(data):
    windows = cut(data.recordings, data.activities, 20, 10)

    people = torch.tensor([data.subjects.index(one.subject) for one in data.recordings])

    def batch(part):
        return replace(windows.batch(part), task=people[windows.source[part]])

    def learned(order):
        recognizer = Recognizer(data.layout, data.activities, RICH)
        recognizer.learner.model.encoder.update(windows.x)
        for part in order.split(40):
            recognizer.learner.observe(batch(part))
        return recognizer

    every = torch.arange(len(windows))
    first = learned(every).learner.method
    mixed = learned(torch.randperm(len(windows), generator=torch.Generator().manual_seed(0)))
    assert mixed.learner.method.sums.digest() == first.sums.digest()
    known = learned(every[:60]).learner.method.sums.digest()
    more = learned(every[:90])
    more.learner.method.forget(more.learner, batch(every[60:90]))
    assert more.learner.method.sums.digest() == known


def test_a_recognizer_learns_saves_loads_and_learns_more(data, tmp_path):
    first = [r for r in data.recordings if r.activity != data.activities[2]]
    recognizer = Recognizer(data.layout, config=RICH)
    recognizer.learn(first)
    recognizer.save(tmp_path)
    loaded = Recognizer.load(tmp_path)
    windows = cut(first, data.activities, 20, 10)
    assert torch.equal(loaded.probabilities(windows.x), recognizer.probabilities(windows.x))
    new = [r for r in data.recordings if r.activity == data.activities[2]]
    lesson = loaded.learn(new)
    assert lesson.before.windows == len(windows)
    assert loaded.evaluate(data.recordings).accuracy > 0.95
    with pytest.raises(ValueError, match="set once, by the first recordings"):
        loaded.learn(new, rescale=True)
    assert loaded.evaluate(data.recordings).accuracy > 0.95  # left as it was


def test_two_encoders_never_share_an_embedding(data):
    windows = cut(data.recordings, data.activities, 20, 10)
    batch = as_batch(windows.x, windows.target)
    outputs = []
    for scale in (windows.x, 3 * windows.x):
        recognizer = Recognizer(data.layout, data.activities, RICH)
        recognizer.learner.model.encoder.update(scale)
        recognizer.learner.observe(batch)
        outputs.append(recognizer.learner.method.sums.digest())
    assert outputs[0] != outputs[1]


AXES = ((0, 1, 2), (3, 4, 5))


def test_signals_along_gravity_do_not_change_when_a_sensor_is_turned():
    y = torch.randn(4, 2, 6, 30, generator=torch.Generator().manual_seed(0))
    y[:, :, 1] += 3  # gravity
    turn = rotations(torch.tensor([[0.3, -1.0, 0.5], [1.2, 0.1, -0.4]]))
    moved = torch.cat(
        [torch.einsum("sij,bsjt->bsit", turn, y[:, :, list(three)]) for three in AXES], 2
    )
    assert torch.allclose(along_gravity(moved, AXES), along_gravity(y, AXES), atol=1e-4)
    for block in (gravity, mean):
        assert torch.allclose(block(moved, AXES), block(y, AXES), atol=1e-2)
    assert not torch.allclose(moments(moved), moments(y), atol=0.1)
    lengths = along_gravity(y, AXES).unflatten(2, (2, 2)).square().sum(3)
    assert torch.allclose(lengths, torch.stack([y[:, :, list(t)].square().sum(2) for t in AXES], 2))


def test_without_vectors_the_mean_is_of_all_channels(y):
    assert gravity(y, ()).shape == (2, 0)
    assert torch.allclose(mean(y, ())[:, 0], y[:, :, 0].mean((1, 2)), atol=1e-6)


def test_turned_copies_keep_lengths_and_belong_to_their_window(data):
    layout = Layout(("a", "b"), ("acc_x", "acc_y", "acc_z", "light"), 25.0)
    x = torch.randn(5, 4, 4, 10, generator=torch.Generator().manual_seed(0))
    copies = turned(x, layout, 0.3)
    assert torch.allclose(copies[:, :, :3].norm(dim=2), x[:, :, :3].norm(dim=2), atol=1e-5)
    assert torch.equal(copies[:, :, 3], x[:, :, 3])
    assert not torch.allclose(copies[:, :, :3], x[:, :, :3], atol=0.1)
    assert torch.equal(turned(x.flip(0), layout, 0.3).flip(0), copies)
    assert torch.equal(turned(x, layout, 0.0), x)


@pytest.mark.parametrize("told_apart", [{"between": 3.0}, {"persons": True}, {}])
def test_the_search_solves_what_the_closed_form_solves(data, told_apart):
    windows = cut(data.recordings, data.activities, 20, 10)
    person = torch.tensor([data.subjects.index(one.subject) for one in data.recordings])
    person = person[windows.source]
    settings = replace(Settings(turn=0.2, strength=0.4), **told_apart)
    table = Table.of(encoder_of(data.layout, windows, [settings]), windows, data.layout, {0.2})
    learned = (person < 2).nonzero()[:, 0]
    found = Discriminants(table, person, learned).predict(settings, table.rows)
    config = replace(RICH, settings=settings)
    recognizer = Recognizer(data.layout, data.activities, config)
    recognizer.learner.model.encoder.update(windows.x)
    for part in learned.split(50):
        batch = replace(windows.batch(part), task=person[part])
        recognizer.learner.observe(batch)
        recognizer.learner.observe(replace(batch, x=turned(batch.x, data.layout, 0.2)))
    told = recognizer.learner.predict(as_batch(windows.x))
    assert float((told == found).double().mean()) > 0.99


def labeled(data):
    """Windows and whose they are."""
    windows = cut(data.recordings, data.activities, 20, 10)
    number = torch.tensor([data.subjects.index(one.subject) for one in data.recordings])
    return windows, number[windows.source]


def test_the_search_leaves_people_out(data):
    """People whose activities are the other way round are no help to each other."""
    windows, person = labeled(data)
    mixed = replace(windows, target=(windows.target + person) % 3)
    seen, parts = [], parts_of_people(person)
    given = person, data.layout, parts
    trials = search(windows, *given, report=lambda done, total: seen.append(done / total))
    assert seen == [one / len(trials) for one in range(1, len(trials) + 1)]
    assert trials[0].accuracy == max(trial.accuracy for trial in trials)
    assert search(mixed, *given)[0].accuracy < 0.5 < trials[0].accuracy


def test_a_step_is_kept_only_if_it_is_better(data):
    windows, person = labeled(data)
    parts = parts_of_people(person)
    steps = (({"strength": 0.6},), ({"strength": 1e9},), ({"turn": 0.1},))
    trials = search(windows, person, data.layout, parts, steps=steps)
    assert trials[0].settings == Settings()  # the same is not better, and no step builds on a worse
    assert [one.settings.strength for one in trials if one.settings.turn] == [0.6]
    without = search(windows, person, data.layout, parts, (Settings(graph=0.0),))
    assert {one.settings.graph for one in without} == {0.0}  # what is left out stays out


def test_parts_in_time_keep_everybody_and_share_no_samples(data):
    windows, person = labeled(data)
    parts = parts_of_time(windows, person, overlap=1)
    assert sum(part.held.long() for part in parts).unique().tolist() == [1]
    for part in parts:
        assert not (part.held & part.learned).any()
        assert person[part.learned].unique().tolist() == [0, 1, 2]
        assert windows.target[part.learned].unique().tolist() == [0, 1, 2]
        for n in part.held.nonzero()[:, 0].tolist():
            for near in (n - 1, n + 1):
                if 0 <= near < len(person) and windows.source[near] == windows.source[n]:
                    assert not part.learned[near]
    lone = windows.batch(torch.tensor([0]))
    one = replace(windows, x=lone.x, target=lone.target, source=windows.source[:1])
    assert parts_of_time(one, person[:1]) == []


def test_known_people_have_means_of_their_own(data):
    """Where one person's standing is another's sitting, only these tell them apart."""
    windows, person = labeled(data)
    mixed = replace(windows, target=(windows.target + person) % 3)
    parts, steps = parts_of_time(mixed, person), (({"persons": True},),)
    own, shared = search(mixed, person, data.layout, parts, steps=steps)
    assert (own.settings.persons, shared.settings.persons) == (True, False)
    assert own.accuracy > shared.accuracy + 0.05
    recognizer = Recognizer(data.layout, config=replace(RICH, settings=Settings(persons=True)))
    recognizer.learn(data.recordings)
    assert len(recognizer.learner.method.sums.counts) == 9
    assert recognizer.evaluate(data.recordings).accuracy > 0.95


def test_items_keep_the_size_of_features():
    rows = torch.randn(3, 50)
    items = as_items(rows)[:, 0]
    unit = items / items.norm(dim=1, keepdim=True)
    assert torch.allclose(unit[:, :-1] / unit[:, -1:] * items[:, -1:], rows, atol=1e-4)
    assert float((unit[:, -1] - 1).abs().max()) < 0.02
