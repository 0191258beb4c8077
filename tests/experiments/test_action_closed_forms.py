"""The closed forms beside other methods: all pieces on small data, and what they rest on."""

from dataclasses import asdict

import pytest

from evergraph.apps.action.recording import generate
from evergraph.apps.action.rich import Settings
from experiments import action_rich as rich
from experiments.action_rich_tables import document, summarized


@pytest.fixture(scope="module")
def data():
    return generate(sensors=2, channels=3, activities=3, subjects=8, trials=1, seconds=60)


def test_every_method_is_a_row_of_every_table(data):
    settings, rows = {}, []
    for number in (0, rich.TIME):
        for kind in rich.SEARCHES:
            rows += rich.run_piece(data, f"search {number} 0 {kind}", settings)
        for kind in ("closed", "trees", "ridge", "shipped"):
            rows += rich.run_piece(data, f"{kind} {number} 0", settings)
    found = summarized(rows)
    others = {"shipped", "rich", "rich-graph", "LDA-rich", rich.TREES, rich.RIDGE, "as shipped"}
    for table in ("subjects", "regular"):
        assert others <= set(found[table])
    assert set(found["shipped_minus"]) >= {"LDA-rich", rich.TREES}
    text = document(rows, settings)
    assert all(name in text for name in others)


def test_what_is_shipped_is_what_the_program_picks(data):
    settings = {}
    for kind in rich.SEARCHES:
        rich.run_piece(data, f"search {rich.TIME} 0 {kind}", settings)
    chosen = settings[str(rich.TIME)]["closed"]["shipped"]
    assert chosen["left_out"] == max(
        one["left_out"] for one in settings[str(rich.TIME)]["trials"] if one["kind"] != "LDA-rich"
    )
    made = rich.shipped_row(data, rich.TIME, every=False)
    assert made["settings"] == chosen["settings"]
    assert made["held_back"] == "the end of each recording"


def test_settings_never_see_a_window_that_is_tested(data):
    for number in (1, rich.TIME):
        split = rich.split_of(data, number)
        tested = {window.numpy().tobytes() for window in split.test.x}
        assert not any(window.numpy().tobytes() in tested for window in split.train.x)
        assert sum(part.held.long() for part in split.parts).tolist() == [1] * len(split.train)
        for part in split.parts:
            assert not (part.held & part.learned).any()
    assert set(split.person[split.parts[0].learned].tolist()) == set(split.tested.tolist())


def test_an_ablation_takes_one_part_out():
    whole = asdict(Settings(persons=True, turn=0.25))
    trials = [
        {"kind": kind, "settings": {**whole, "graph": graph}, "left_out": known}
        for kind, graph, known in (
            ("rich-graph", 1.0, 0.9),
            ("rich", 0.0, 0.8),
            ("LDA-rich", 0.0, 1.0),
        )
    ]
    found = rich.chosen_of(trials)
    assert found["shipped"]["settings"] == whole
    assert found["rich-graph, people not told apart"]["settings"] == {**whole, "persons": False}
    assert found["rich-graph, no turned copies"]["settings"] == {**whole, "turn": 0.0}
    assert "rich-graph, all blocks alike" not in found  # they are alike
    assert found["rich"]["settings"]["graph"] == 0
