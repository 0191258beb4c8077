"""Kinds, encoding and statistics of tables."""

import json
import random
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evergraph.datasets.cells import no_empty
from evergraph.datasets.columns import column_of, from_rows, text_of_float
from evergraph.datasets.encoding import KINDS, Column
from evergraph.datasets.report import Report, TableError
from evergraph.datasets.schema import Schema

WORD = st.text(alphabet="abcdé ", max_size=8)
NUMBER = st.none() | st.floats(-1e12, 1e12) | st.integers(-(2**40), 2**40)
ROW = st.fixed_dictionaries(
    {
        "age": NUMBER,
        "x0": st.sampled_from([0, 0, 0, 1.5, None]),
        "x1": st.floats(-3, 3),
        "country": st.sampled_from(["de", "fr", "", None, "us"]),
        "joined": st.none() | st.dates(date(1900, 1, 1)).map(str),
        "paid": st.sampled_from([True, False, None]),
        "bio": st.none() | st.lists(WORD, min_size=3, max_size=9).map(" ".join),
        "tags": st.none() | st.lists(st.sampled_from(["a", "b", "c"]), max_size=4),
        "embedding": st.none() | st.lists(st.floats(-9, 9), min_size=3, max_size=3),
    }
)
COLUMNS = [
    Column("age", "number"),
    Column("x", "vector", 2, parts=True),
    Column("country", "category", 16),
    Column("joined", "date"),
    Column("paid", "boolean"),
    Column("bio", "text", 32),
    Column("tags", "words", 32),
    Column("embedding", "vector", 3),
]


def dense(encoded, width):
    indptr, index, value = encoded
    rows = np.zeros((len(indptr) - 1, width), dtype=np.int64)
    for row, (start, end) in enumerate(pairwise(indptr)):
        assert (np.diff(index[start:end]) > 0).all()
        rows[row, index[start:end]] = value[start:end]
    return rows


def same(one, other):
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def encode_one(column, values):
    schema = Schema([column])
    table = {column.name: values}
    return dense(schema.fit(table).encode(table), schema.width) / 2**16


@settings(max_examples=150)
@given(st.lists(ROW, min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_encoding_does_not_depend_on_the_cut(rows, cuts):
    schema = Schema(COLUMNS).fit(rows)
    whole = schema.encode(rows)
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [schema.encode(rows[a:b]) for a, b in pairwise(bounds)]
    assert np.array_equal(whole[1], np.concatenate([part[1] for part in parts]))
    assert np.array_equal(whole[2], np.concatenate([part[2] for part in parts]))
    lengths = np.concatenate([np.diff(part[0]) for part in parts])
    assert np.array_equal(np.diff(whole[0]), lengths)
    dense(whole, schema.width)


@settings(max_examples=150)
@given(
    st.lists(ROW, min_size=1, max_size=10),
    st.lists(ROW, max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_history_equals_fitting_what_is_left(kept, gone, rng):
    """Rows come one by one or in chunks, shuffled; some are forgotten; parts are merged."""
    events = [("fit", row) for row in kept + gone]
    rng.shuffle(events)
    for row in gone:  # each forgotten at some moment after it, and rows like it, were fitted
        last = max(i for i, event in enumerate(events) if event == ("fit", row))
        events.insert(rng.randint(last + 1, len(events)), ("forget", row))
    shards = [Schema(COLUMNS), Schema(COLUMNS)]
    for verb, row in events:
        getattr(shards[0], verb)([row])
    half = rng.randint(0, len(kept))
    shards[1].fit(kept[:half])
    scratch = Schema(COLUMNS).fit(kept)
    assert shards[0].to_json() == scratch.to_json()
    assert shards[1].merge(Schema(COLUMNS).fit(kept[half:])).to_json() == scratch.to_json()
    assert same(shards[0].encode(kept + gone), scratch.encode(kept + gone))


@settings(max_examples=100)
@given(st.lists(ROW, min_size=1, max_size=8))
def test_values_and_their_canonical_texts_encode_alike(rows):
    """So a CSV, a JSONL and a Parquet file of the same data give the same integers."""

    def as_text(value):
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return text_of_float(value)
        if isinstance(value, list):
            return " ".join(map(as_text, value))
        return str(value)

    texts = [{name: as_text(value) for name, value in row.items()} for row in rows]
    schema = Schema(COLUMNS).fit(rows)
    if all(row["tags"] != [] for row in rows):
        assert Schema(COLUMNS).fit(texts).to_json() == schema.to_json()
        assert same(schema.encode(texts), schema.encode(rows))


def test_numbers_are_standardized_and_gaps_flagged():
    rows = encode_one(Column("age", "number"), [20, 30.0, 40, None, ""])
    assert rows.tolist() == [[-1.25, 0], [0, 0], [1.25, 0], [0, 1], [0, 1]]


def test_huge_standardized_values_are_clipped():
    schema = Schema([Column("v", "number")]).fit({"v": [-1.0, 1.0]})
    assert dense(schema.encode({"v": [1e9, -1e9]}), 2).tolist() == [[2**24, 0], [-(2**24), 0]]


def test_dates_become_days_and_the_season():
    rows = encode_one(Column("d", "date"), ["2024-01-01", "2024-07-02T00:00:00", None])
    assert rows[0, 1:].tolist() == [0, 0, 1]
    assert rows[1, 2:] == pytest.approx([0, -1], abs=1e-2)
    assert rows[2].tolist() == [0, 1, 0, 0]
    assert rows[1, 0] - rows[0, 0] == pytest.approx(183 / 128, abs=1e-3)


def test_dates_of_every_origin_are_the_same():
    moment = datetime(2024, 5, 31, 12, 30, tzinfo=UTC)
    texts = [
        "2024-05-31T12:30:00Z",
        "2024-05-31 12:30",
        "2024-05-31T14:30:00+02:00",
        "20240531T1230",
    ]
    schema = Schema([Column("d", "date")]).fit({"d": ["2024-01-01", "2025-01-01"]})
    expected = schema.encode({"d": texts[:1]})
    for value in (*texts, moment, moment.replace(tzinfo=None)):
        assert same(schema.encode([{"d": value}]), expected)
    assert same(
        schema.encode({"d": [date(2024, 5, 31)]}), schema.encode({"d": ["2024-05-31T00:00"]})
    )


def test_categories_fall_into_one_bucket_each():
    rows = encode_one(
        Column("c", "category", 64), ["de", "fr", "de", None, " de ", "", 3, 3.0, "3"]
    )
    assert rows.sum(axis=1).tolist() == [1, 1, 1, 0, 1, 0, 1, 1, 1]
    assert rows[0].tolist() == rows[2].tolist() == rows[4].tolist() != rows[1].tolist()
    assert rows[6].tolist() == rows[7].tolist() == rows[8].tolist()


def test_slices_of_a_table_encode_as_the_table():
    """Blanks and letters beyond ASCII in one slice change nothing in another."""
    values = ["a b", " c ", "d", "e f g", "h\u00a0i", "", None, "j"] * 3
    table = pa.table({"t": values, "c": values})
    schema = Schema([Column("t", "text", 64), Column("c", "category", 64)])
    whole = schema.encode(table)
    parts = [schema.encode(table.slice(start, 1)) for start in range(len(values))]
    assert np.array_equal(whole[1], np.concatenate([part[1] for part in parts]))
    assert np.array_equal(whole[2], np.concatenate([part[2] for part in parts]))


def test_empty_texts_of_a_slice_are_null_and_the_others_stay():
    array = pa.array(["ab", "", None, "c", "", "é", "", "d"])
    for start in range(len(array)):
        for end in range(start, len(array) + 1):
            part = array[start:end]
            assert no_empty(part).to_pylist() == [text or None for text in part.to_pylist()]


def test_a_bag_is_scaled_by_the_length_of_its_counts():
    """Words that repeat count as often, and rows without words are empty."""
    words = [["a"] * 3 + ["b"], [], ["b", "a"], ["c"] * 70_000 + ["a", "a"]]
    column = Column("words", "words", 1 << 20)  # so that no two words share a bucket
    table = {"words": [" ".join(row) for row in words]}
    indptr, _, value = Schema([column]).encode(table)
    for row, (start, end) in zip(words, pairwise(indptr), strict=True):
        counts = [row.count(word) for word in set(row)]
        length = sum(count * count for count in counts) ** 0.5
        expected = [round(count / length * 2**16) for count in counts]
        assert sorted(value[start:end].tolist()) == sorted(expected)


def test_the_bucket_depends_on_the_column():
    one, other = (encode_one(Column(name, "category", 1024), ["de"]) for name in "ab")
    assert one.tolist() != other.tolist()


def test_booleans_are_one_of_two_places():
    values = [True, "no", "YES", 0, 1.0, None, "", "NA"]
    expected = [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]
    assert encode_one(Column("b", "boolean"), values).tolist() == expected


def test_words_are_counted_and_scaled_to_unit_length():
    rows = encode_one(Column("t", "text", 4096), ["Graph, graph; GROWS!", "", None, "ähre"])
    assert sorted(rows[0][rows[0] > 0]) == pytest.approx([1 / 5**0.5, 2 / 5**0.5], abs=1e-4)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 0, 1], abs=1e-4)
    listed = encode_one(Column("t", "words", 4096), [["graph", "graph", "grows"], [], None])
    assert np.linalg.norm(listed, axis=1) == pytest.approx([1, 0, 0], abs=1e-4)


def test_sparse_vectors_keep_their_zeros():
    sparse = {"index": [4, 1], "value": [1.0, 1.0]}
    rows = encode_one(Column("v", "vector", 30), [sparse, {"index": [0], "value": [1]}, None])
    assert [np.flatnonzero(row).tolist() for row in rows] == [[1, 4], [0], [30]]
    assert set(rows[rows != 0]) == {1.0}


def test_lists_texts_and_parts_are_the_same_vector():
    lists = [[0.5, 2.0], [1.5, -4.0], None]
    expected = encode_one(Column("v", "vector", 2), lists)
    assert encode_one(Column("v", "vector", 2), ["[0.5, 2]", "1.5 -4.0", ""]).tolist() == (
        expected.tolist()
    )
    assert encode_one(
        Column("v", "vector", 2), pa.array(lists, pa.list_(pa.float32(), 2))
    ).tolist() == (expected.tolist())
    schema = Schema([Column("v", "vector", 2, parts=True)])
    parts = {"v0": [0.5, 1.5, None], "v1": [2.0, -4.0, 1.0]}
    assert (dense(schema.fit(parts).encode(parts), 3) / 2**16).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], "number"),
        (["1", "2.5", "", "NA"], "number"),
        (["0", "1"], "number"),
        (["007", "123"], "category"),
        ([True, None], "boolean"),
        (["yes", "no"], "boolean"),
        (["2024-01-01", ""], "date"),
        ([datetime(2024, 1, 1)], "date"),
        (["de", "fr"], "category"),
        ([1, "de"], "category"),
        (["a long text of words", "and another one here"], "text"),
        ([["a", "b"], ["c"]], "words"),
        ([[1, 2], [3]], "words"),
        ([[1, 2], [3, 4.5]], "vector"),
        (["[1, 2]", "[3, 4]"], "vector"),
        ([{"index": [3], "value": [1.0]}], "vector"),
        ([None, ""], "drop"),
        (["NA", "NA"], "category"),
        ([float("nan")], "drop"),
    ],
)
def test_kinds_are_inferred(values, kind):
    (column,) = Schema.infer({"c": values}).columns
    assert column.kind == kind
    assert Schema([column]).encode({"c": values})[0].tolist()[0] == 0


def test_every_kind_is_inferred_somewhere():
    cases = next(
        mark for mark in test_kinds_are_inferred.pytestmark if mark.name == "parametrize"
    ).args[1]
    assert {kind for _, kind in cases} == set(KINDS)


def test_inference_does_not_depend_on_the_order_of_chunks():
    values = [1, 2.5, "x", None, "[1, 2]", [1, 2], ["a"], "2024-01-01", True, "a b c d e", [3, 4]]
    rng = random.Random(0)
    for _ in range(300):
        some = rng.sample(values, 3)
        found = set()
        for order in (some, some[::-1], some[1:] + some[:1]):
            chunks = [from_rows([{"c": value}], Report()) for value in order]
            found.add(Schema.infer(iter(chunks)).columns)
        assert len(found) == 1, some


def test_numbered_columns_become_one_vector():
    table = {"x10": [1], **{f"x{i}": [i] for i in range(10)}, "y1": [1], "y2": [2]}
    found = [(column.name, column.kind, column.size) for column in Schema.infer(table).columns]
    assert found == [("x", "vector", 11), ("y1", "number", 0), ("y2", "number", 0)]


def test_a_schema_survives_its_file():
    table = {"age": [20, 30], "x0": [1, 2], "x1": [3, 4], "country": ["de", "fr"]}
    schema = Schema.infer(table).fit(table)
    again = Schema.from_json(schema.to_json())
    assert again.to_json() == schema.to_json()
    assert same(again.encode(table), schema.encode(table))


def test_an_edited_kind_is_fitted_again():
    schema = Schema.infer({"age": [20, 30]}).fit({"age": [20, 30]})
    state = json.loads(schema.to_json())
    state["columns"][0] = {"name": "age", "kind": "category"}
    edited = Schema.from_json(json.dumps(state))
    assert edited.width == 64
    assert not edited.sums
    state["columns"][0] = {"name": "age", "kind": "date"}
    assert Schema.from_json(json.dumps(state)).sums["age"].count == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be JSON with version and columns"),
        ("[]", "must be JSON with version and columns"),
        ('{"version": 9, "columns": []}', "version of a schema must be 1, got 9"),
        ('{"version": 1, "columns": [{"name": "a"}]}', "must have name, kind, size, parts"),
        ('{"version": 1, "columns": [{"name": "a", "kind": "x"}]}', "must be one of number, .*'x'"),
        ('{"version": 1, "columns": [{"name": "a", "kind": "vector"}]}', "from 1 to .*, got 0"),
        ('{"version": 1, "columns": [{"name": "\\ud800", "kind": "number"}]}', "valid text"),
        (
            '{"version": 1, "columns": [{"name": "a", "kind": "number", "parts": true}]}',
            "only a vector has parts",
        ),
        (
            '{"version": 1, "columns": [{"name": "a", "kind": "drop"},'
            ' {"name": "a", "kind": "drop"}]}',
            "must occur once",
        ),
    ],
)
def test_broken_schema_files_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_json(text)


def test_all_complaints_come_at_once():
    table = {
        "age": ["20", "old", "1e300", "inf"],
        "joined": ["2024-01-01", "May", "2024-02-30", ""],
        "paid": ["yes", "maybe", "no", ""],
        "v": [[1.0], [1.0, 2.0], [float("inf"), 1.0], [None, 2.0]],
    }
    columns = [
        Column("age", "number"),
        Column("joined", "date"),
        Column("paid", "boolean"),
        Column("v", "vector", 2),
    ]
    with pytest.raises(TableError) as error:
        Schema(columns).encode({**table, "extra": [1, 2, 3, 4]})
    found = [(problem.column, problem.line, problem.value) for problem in error.value.problems]
    assert found == [
        ("extra", None, "'extra'"),
        ("age", 2, "'old'"),
        ("age", 3, "'1e300'"),
        ("age", 4, "'inf'"),
        ("joined", 2, "'May'"),
        ("joined", 3, "'2024-02-30'"),
        ("paid", 2, "'maybe'"),
        ("v", 1, "[1.0]"),
        ("v", 3, "[inf, 1.0]"),
        ("v", 4, "[None, 2.0]"),
    ]
    assert "table, row 2, column 'age': a number within ±4.6e+18 is needed, got 'old'" in str(
        error.value
    )


def test_with_a_report_bad_cells_count_as_missing():
    schema, report = Schema([Column("age", "number")]), Report()
    table = {"age": ["20", "old", "40"]}
    schema.fit(table, report)
    assert schema.sums["age"].count == 2
    assert dense(schema.encode(table, report), 2)[1].tolist() == [0, 2**16]
    assert report.count == 2


def test_a_failed_fit_adds_nothing():
    schema = Schema([Column("age", "number")])
    with pytest.raises(TableError):
        schema.fit({"age": ["20", "old"]})
    assert schema.sums["age"].count == 0


def test_tables_without_rows_or_columns_encode_to_nothing():
    schema = Schema([Column("age", "number")])
    assert [part.tolist() for part in schema.encode([])] == [[0], [], []]
    assert [part.tolist() for part in schema.encode({"age": []})] == [[0], [], []]
    assert [part.tolist() for part in Schema([]).encode({"a": []}, Report())] == [[0], [], []]


def test_a_row_without_cells_is_a_row():
    schema = Schema([Column("age", "number")]).fit({"age": [1, 2]})
    assert dense(schema.encode([{}, {"age": None}]), 2).tolist() == [[0, 2**16]] * 2
    assert dense(schema.encode([{}]), 2).tolist() == [[0, 2**16]]


def test_merging_needs_the_same_columns():
    with pytest.raises(ValueError, match="same columns"):
        Schema([Column("a", "number")]).merge(Schema([Column("b", "number")]))


def test_describe_names_scales():
    table = {"age": [20, 30, 40], "flag": [0] * 3, "c": ["a", "b", "c"]}
    lines = Schema.infer(table).fit(table).describe()
    assert [tuple(line.values()) for line in lines] == [
        ("age", "number", "2", "(v - 30) / 8"),
        ("c", "category", "64", ""),
        ("flag", "number", "2", "/ 1, sparse"),
    ]


def test_mixed_columns_become_canonical_texts():
    column = column_of([1, 2.0, True, "x", None, 2**70], lambda *_: pytest.fail("no complaint"))
    assert column.to_pylist() == ["1", "2", "true", "x", None, str(2**70)]
