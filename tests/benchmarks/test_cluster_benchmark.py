"""The edits that shards and one machine are compared after."""

from benchmarks.cluster import edits, equal, tables_of
from evergraph.model import Settings


def test_edits_are_the_same_each_time_and_of_all_kinds():
    tables = tables_of("generated", 300, 2.0, None)
    batches = list(edits(tables, 200))
    assert batches == list(edits(tables, 200))
    kinds = {event["type"] for batch in batches for event in batch}
    assert kinds == {"node", "edge", "label", "delete_edge", "delete_node"}


def test_one_machine_is_equal_to_itself():
    tables = tables_of("generated", 200, 2.0, None)
    (row,) = list(equal(tables, Settings(landmarks=8), [], 100))
    assert row["equal"]
    assert row["edits"] > 30
    assert row["before"] != row["after"]
