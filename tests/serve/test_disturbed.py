"""Short forms of the runs that disturb a service: see `make serving` for the long ones."""

import hostile
import kill_serve
import soak


def test_kills_lose_and_repeat_nothing(tmp_path):
    assert kill_serve.kills(tmp_path / "trial", 3)["failures"] == []


def test_a_clock_that_goes_back_changes_nothing(tmp_path):
    assert kill_serve.kills(tmp_path / "trial", 2, 1, set_back=True)["failures"] == []


def test_a_full_disk_refuses_events_and_loses_none(tmp_path):
    found = kill_serve.full_disk(tmp_path / "trial", 2, 2)
    assert found["failures"] == []
    assert found["answers"]["507"] >= 2


def test_a_hostile_client_is_refused_with_reasons_and_changes_nothing(tmp_path):
    found = hostile.attack(tmp_path / "attack", 400)
    assert found["failures"] == []
    assert all(found["cells"][kind.__name__] for kind in hostile.KINDS)


def test_a_soak_reports_every_tenth(tmp_path):
    rows, wrong = soak.soak(tmp_path / "soak", 20_000, window=300)
    assert wrong == []
    assert (len(rows), rows[-1]["events"]) == (soak.TENTHS, 20_000)
    assert rows[-1]["accuracy"] > 0.5
    assert rows[-1]["nodes"] <= 200 + 301
    assert rows[-1]["descriptors"] <= rows[0]["descriptors"] + soak.SLACK
