"""Short forms of the runs that disturb a service: see `make serving` for the long ones."""

import kill_serve


def test_kills_lose_and_repeat_nothing(tmp_path):
    assert kill_serve.kills(tmp_path / "trial", 3)["failures"] == []


def test_a_clock_that_goes_back_changes_nothing(tmp_path):
    assert kill_serve.kills(tmp_path / "trial", 2, 1, set_back=True)["failures"] == []


def test_a_full_disk_refuses_events_and_loses_none(tmp_path):
    found = kill_serve.full_disk(tmp_path / "trial", 2, 2)
    assert found["failures"] == []
    assert found["answers"]["507"] >= 2
