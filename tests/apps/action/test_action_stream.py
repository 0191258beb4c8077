"""A recognizer at work: taught a new activity, and fed through a pipe."""

import pytest

from benchmarks.action_stream import _lines, pipe, teach
from evergraph.apps.action.recording import generate
from evergraph.apps.action.teaching import RecognizerConfig

QUICK = RecognizerConfig(model="mlp", length=20, stride=10, epochs=6)


@pytest.fixture(scope="module")
def data():
    return generate(sensors=2, channels=3, activities=3, subjects=2, trials=1, seconds=30)


def test_a_lesson_from_one_recording(data):
    found, recognizer = teach(data, data.activities[2], "p1", QUICK)
    assert found["recall_before"] == 0.0
    assert found["recall_after_own"] > 0.8
    assert found["others_before"] - found["others_after"] < 0.1
    assert found["seconds_of_recording"] == pytest.approx(24.0)
    assert recognizer.activities[-1] == data.activities[2]
    with pytest.raises(ValueError, match="no recording of 'flying'"):
        teach(data, "flying", "p1", QUICK)


def test_a_long_recording_is_made_of_short_ones(data):
    lines = _lines(data, 5000)
    assert len(lines) == 5001
    assert lines[0].startswith("time,torso.acc_x")
    assert lines[-1].startswith("199.960,")


@pytest.mark.slow
def test_an_hour_through_a_pipe_keeps_up_with_flat_memory(data, tmp_path):
    _, recognizer = teach(data, data.activities[2], "p1", QUICK)
    recognizer.save(tmp_path)
    found = pipe(tmp_path, data, seconds=3600.0, speed=100.0)
    assert found["windows"] == found["windows_expected"]
    assert found["lag_seconds_last"] < 2.0
    assert found["resident_mb_growth"] < 20.0
