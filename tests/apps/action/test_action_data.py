"""Recordings from every source, resampling, windows and streams."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.io import savemat

from evergraph.apps.action.csv_stream import PipeReader, Rows, parse_header, read_file
from evergraph.apps.action.published import (
    WARD_CHANNELS,
    WARD_SENSORS,
    WARD_SETTLE,
    read_dsads_npz,
    read_dsads_text,
    read_ward_raw,
)
from evergraph.apps.action.recording import Layout, Recording, Recordings, generate
from evergraph.apps.action.resample import Resampler, check_rate, fill
from evergraph.apps.action.sources import load, read_folder
from evergraph.apps.action.splits import split_in_time
from evergraph.apps.action.windows import as_batch, cut, join, nodes, schedule
from evergraph.stream import Continuum

# -- WARD and DSADS in their exact layouts --------------------------------------------------


def raw_ward(path, length=120, label=1, sensors=5, lost=False):
    rng = np.random.default_rng(length)
    reading = np.empty((1, sensors), dtype=object)
    for s in range(sensors):
        reading[0, s] = rng.integers(-2048, 2048, (length + s, 5)).astype(float)
    if lost:
        reading[0, 2][10:13] = np.inf
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"WearableData": {"Class": label, "Subject": 1.0, "Reading": reading}})
    return reading


def test_raw_ward(tmp_path):
    reading = raw_ward(tmp_path / "WARD1.0/Subject2/a1t1.mat", lost=True)
    raw_ward(tmp_path / "WARD1.0/Subject10/a13t2.mat", label="13")  # a text in some files
    data = load(str(tmp_path), rate=20.0)
    assert [r.subject for r in data.recordings] == ["s2", "s10"]
    assert data.layout == Layout(WARD_SENSORS, WARD_CHANNELS, 20.0)
    assert data.activities == ("ReSt", "Push")
    first = data.recordings[0]
    assert first.samples.shape == (120, 5, 5), "the shortest sensor sets the length"
    np.testing.assert_allclose(first.samples[20, 3], reading[0, 3][20])
    before, after = reading[0, 2][9], reading[0, 2][13]
    np.testing.assert_allclose(first.samples[10, 2], before + (after - before) / 4, rtol=1e-5)
    assert data.notes == ("15 numbers of lost packets were filled in",)
    assert read_ward_raw(tmp_path).layout.rate == 30.0


def test_raw_ward_that_contradicts_itself(tmp_path):
    raw_ward(tmp_path / "Subject1/a2t1.mat", label=3)
    with pytest.raises(ValueError, match="says it is of class 3, but its name says 2"):
        read_ward_raw(tmp_path)
    raw_ward(tmp_path / "Subject1/a2t1.mat", label=2, sensors=4)
    with pytest.raises(ValueError, match="must have 5 sensors, got 4"):
        read_ward_raw(tmp_path)
    (tmp_path / "Subject1/a2t1.mat").write_bytes(b"no mat file")
    with pytest.raises(ValueError, match="not a readable"):
        read_ward_raw(tmp_path)


def test_converted_ward(tmp_path):
    rng = np.random.default_rng(0)
    data = np.empty((20, 13, 6), dtype=object)
    for place in np.ndindex(data.shape):
        data[place] = np.zeros((0, 0))
    data[3, 2, 0] = rng.random((200, 25))
    data[3, 2, 5] = rng.random((60, 25))
    savemat(tmp_path / "ward.mat", {"data": data})
    found = load(str(tmp_path / "ward.mat"))
    one, two = found.recordings
    assert (one.subject, one.activity, one.trial, two.trial) == ("s4", "ReLi", 1, 6)
    np.testing.assert_allclose(one.samples[7, 3], data[3, 2, 0][7, 15:20], rtol=1e-6)
    train, _ = split_in_time(found, settle=WARD_SETTLE)
    windows = cut(train.recordings, found.activities, 50, 1)
    assert windows.skipped == 1, "a trial shorter than a window is counted and left out"
    assert len(windows) == 100 - 49


def test_dsads_text_and_npz_are_the_same(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.integers(-3000, 3000, (4, 125, 45)).astype(np.int16)
    scale = np.full(45, 0.01)
    place = [(0, 0, 1), (0, 0, 2), (4, 1, 1), (4, 1, 2)]
    for segment, (a, p, s) in zip(x, place, strict=True):
        path = tmp_path / f"text/a{a + 1:02d}/p{p + 1}/s{s:02d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savetxt(path, segment * scale, delimiter=",", fmt="%.4f")
    activity, subject = np.array([p[0] for p in place]), np.array([p[1] for p in place])
    np.savez(tmp_path / "d.npz", x=x, scale=scale, activity=activity, subject=subject)
    text, packed = load(str(tmp_path / "text")), load(str(tmp_path / "d.npz"))
    assert text.activities == packed.activities == ("sitting", "stairs_up")
    assert [r.subject for r in packed.recordings] == ["p1", "p2"]
    assert packed.layout.columns[9] == "right_arm.acc_x"
    for one, other in zip(text.recordings, packed.recordings, strict=True):
        assert one.samples.shape == (250, 5, 9)
        np.testing.assert_allclose(one.samples, other.samples, atol=1e-4)
    (tmp_path / "text/a01/p1/s01.txt").write_text("1,2,3\n")
    with pytest.raises(ValueError, match="125 lines of 45 numbers"):
        read_dsads_text(tmp_path / "text")
    (tmp_path / "d.npz").write_bytes(b"broken")
    with pytest.raises(ValueError, match=r"d\.npz"):
        read_dsads_npz(tmp_path / "d.npz")


# -- the user's own files -------------------------------------------------------------------


def write_csv(path, time, values, columns, extra=None):
    lines = [",".join(["time", *columns, *(extra or {})])]
    for i, (t, row) in enumerate(zip(time, values, strict=True)):
        cells = [f"{t:.6f}", *("" if np.isnan(v) else f"{v:.6f}" for v in row)]
        lines.append(",".join(cells + [str(part[i]) for part in (extra or {}).values()]))
    path.write_text("\n".join(lines) + "\n")


COLUMNS = ("arm.x", "arm.y", "leg.x", "leg.y")


def wave(rate, seconds=8.0):
    time = np.arange(int(seconds * rate)) / rate
    return time, np.stack([np.sin(2 * np.pi * time + k) for k in range(4)], axis=1)


def test_folder_of_files_at_any_rate(tmp_path):
    write_csv(tmp_path / "walk-ann-2.csv", *wave(100.0), COLUMNS)
    write_csv(tmp_path / "sit.csv", *wave(20.0), ("leg.y", "leg.x", "arm.y", "arm.x"))
    data = load(str(tmp_path))
    assert data.activities == ("sit", "walk")
    assert data.layout.columns == ("leg.y", "leg.x", "arm.y", "arm.x"), "the first file's order"
    assert [r.name for r in data.recordings] == ["sit.csv", "walk-ann-2.csv"]
    walk = data.recordings[1]
    assert (walk.subject, walk.trial) == ("ann", 2)
    assert data.recordings[0].subject == "someone"
    for recording in data.recordings:
        time = recording.start + np.arange(len(recording)) / 25.0
        column = 3 if recording is walk else 0  # arm.x of walk, leg.y of sit: both first in file
        found = recording.samples.reshape(len(recording), -1)[:, column]
        np.testing.assert_allclose(found[:-1], np.sin(2 * np.pi * time[:-1]), atol=0.05)


def test_label_and_subject_columns_cut_a_file_in_runs(tmp_path):
    time, values = wave(25.0)
    activity = ["sit"] * 80 + ["walk"] * 120
    extra = {"activity": activity, "subject": ["bob"] * 200, "comment": ["-"] * 200}
    write_csv(tmp_path / "x.csv", time, values, COLUMNS, extra)
    data = read_folder(tmp_path)
    assert [(r.activity, len(r), r.subject) for r in data.recordings] == [
        ("sit", 80, "bob"), ("walk", 120, "bob"),
    ]  # fmt: skip
    np.testing.assert_allclose(data.recordings[1].start, 3.2)


def test_parquet_is_the_same_as_csv(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    time, values = wave(50.0)
    (tmp_path / "c").mkdir()
    (tmp_path / "p").mkdir()
    write_csv(tmp_path / "c/walk.csv", time, values, COLUMNS)
    columns = {"time": time, **{name: values[:, i] for i, name in enumerate(COLUMNS)}}
    parquet.write_table(pa.table(columns), tmp_path / "p/walk.parquet")
    one, other = read_folder(tmp_path / "c"), read_folder(tmp_path / "p")
    np.testing.assert_allclose(one.recordings[0].samples, other.recordings[0].samples, atol=1e-5)
    (tmp_path / "p/walk.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="not a Parquet file"):
        read_folder(tmp_path / "p")


@pytest.mark.parametrize(
    ("column", "values", "match"),
    [
        ("time", [0.0, 0.04, 0.04], "row 3: time must grow from row to row, got 0.04 after 0.04"),
        ("time", [0.0, None, 0.08], "row 2: time must be a number of seconds, got ''"),
        ("time", [0.0, 0.04, np.inf], "row 3: time must grow"),
        ("arm.x", ["1", "one", "2"], "row 2: expected a number, got 'one'"),
        ("arm.x", [], "at least one row below its header"),
    ],
)
def test_bad_parquet_files_are_refused_as_bad_csv_files_are(tmp_path, column, values, match):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    good = np.arange(len(values)) / 25
    table = {"time": good, "arm.x": good} | {column: pa.array(values)}
    parquet.write_table(pa.table(table), tmp_path / "walk.parquet")
    with pytest.raises(ValueError, match=match):
        read_file(tmp_path / "walk.parquet")


def test_nulls_of_parquet_are_missing_values(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"time": [0.0, 0.04], "arm.x": [None, 2.0], "activity": [None, " sit "]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    _, block = read_file(tmp_path / "x.parquet")
    np.testing.assert_array_equal(block.values, [[np.nan], [2.0]])
    assert block.labels == ["", "sit"]


def test_numbers_of_parquet_may_be_integers_or_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"time": [0, 1, 2**60], "arm.x": ["1", " 2.5 ", ""], "arm.y": [1, None, 2**60 + 1]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
    _, block = read_file(tmp_path / "x.parquet")
    np.testing.assert_array_equal(block.time, [0, 1, 2.0**60])
    np.testing.assert_array_equal(block.values, [[1, 1], [2.5, np.nan], [np.nan, 2.0**60]])
    columns["time"] = np.array([0, 1, 2], dtype="datetime64[s]")
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="row 1: time must be a number of seconds"):
        read_file(tmp_path / "x.parquet")


def test_gaps_and_lost_sensors_are_cut_out_and_reported(tmp_path):
    time, values = wave(25.0)
    values[50:53, 0] = np.nan  # short: filled
    values[100:120, 2:] = np.nan  # long: the leg is gone
    keep = np.ones(200, dtype=bool)
    keep[150:170] = False  # a break in time
    write_csv(tmp_path / "walk.csv", time[keep], values[keep], COLUMNS)
    data = read_folder(tmp_path)
    assert [len(r) for r in data.recordings] == [101, 31, 30], "one sample is held at an edge"
    np.testing.assert_allclose(
        data.recordings[0].samples[51, 0, 0], np.sin(2 * np.pi * 51 / 25), atol=0.15
    )
    assert data.notes == (
        "walk.csv: 0.72 s without leg, from 4.04 s on, cut out",
        "walk.csv: nothing between 5.96 s and 6.8 s",
    )


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "but is empty"),
        ("time,arm.x\n", "at least one row below its header"),
        ("arm.x\n1\n", "must have a column 'time'"),
        ("time,x\n0,1\n", "named sensor.channel"),
        ("time,arm.x,leg.x,leg.y\n0,1,1,1\n", "arm.y is missing"),
        ("time,arm.x,arm.x\n0,1,1\n", "arm.x twice"),
        ("time,arm.x\n0,1\n0.04,1\n0.04,1\n", "line 4: time must grow"),
        ("time,arm.x\n0,one\n", "line 2: expected a number, got 'one'"),
        ("time,arm.x\nnow,1\n", "line 2: time must be a number of seconds"),
        ("time,arm.x\n0,1\n0.04\n", "line 3: expected 2 values"),
        ("time,arm.x\n0,1\n1,1\n2,1\n", "at least 12.5 samples per second.*got 1$"),
        ("time,arm.x\n0,1\n40,1\n80,1\n", "is its time in seconds?"),
    ],
)
def test_bad_files_are_refused_with_the_place(tmp_path, text, match):
    (tmp_path / "walk.csv").write_text(text)
    with pytest.raises(ValueError, match=match):
        read_folder(tmp_path)


def test_files_must_agree_and_be_there(tmp_path):
    with pytest.raises(ValueError, match="must hold recordings"):
        read_folder(tmp_path)
    with pytest.raises(ValueError, match="no file or folder"):
        load(str(tmp_path / "nowhere"))
    write_csv(tmp_path / "a.csv", *wave(25.0), COLUMNS)
    time, values = wave(25.0)
    write_csv(tmp_path / "b.csv", time, values[:, :2], COLUMNS[:2])
    with pytest.raises(ValueError, match=r"leg\.x, leg\.y are missing"):
        read_folder(tmp_path)
    write_csv(tmp_path / "b.csv", time, values, COLUMNS, {"label": [""] * len(time)})
    with pytest.raises(ValueError, match="without an activity"):
        read_folder(tmp_path)
    assert parse_header(["time", "a.x", "note"], "f").ignored == ("note",)


# -- resampling -----------------------------------------------------------------------------


def resampled(time, values, rate, blocks):
    resampler, pieces = Resampler(rate), []
    for part in np.array_split(np.arange(len(time)), blocks):
        pieces += resampler.feed(time[part], values[part])
    return pieces + resampler.flush(), resampler


@pytest.mark.parametrize("rate", [10.0, 25.0, 33.0])
def test_a_stream_gives_the_same_samples_as_a_file(rate):
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.uniform(0.02, 0.06, 300))
    time[200:] += 3.0
    values = rng.normal(size=(300, 3))
    values[rng.random((300, 3)) < 0.1] = np.nan
    values[100:130, 1] = np.nan
    values[[0, 199, 200, 299]] = 1.0  # nothing is missing at the edges
    whole, _ = resampled(time, values, rate, 1)
    pieces, resampler = resampled(time, values, rate, 97)
    assert len(resampler.breaks) == 1
    assert sum(piece.fresh for piece in pieces) == sum(piece.fresh for piece in whole) == 2
    one, other = (np.concatenate([p.samples for p in part]) for part in (whole, pieces))
    np.testing.assert_allclose(one, other)
    assert np.isnan(one[:, 1]).sum() > 5
    assert not np.isnan(one[:, 0]).any()


def test_samples_at_the_right_rate_pass_unchanged():
    time, values = wave(25.0)
    (piece, *rest), _ = resampled(time + 1e6, values, 25.0, 1)
    found = np.concatenate([piece.samples, *(p.samples for p in rest)])
    np.testing.assert_allclose(found, values)


def test_the_delay_of_a_stream_is_bounded():
    resampler, made = Resampler(25.0), 0
    for i in range(100):
        made += sum(len(p.samples) for p in resampler.feed(np.array([i / 25]), np.zeros((1, 2))))
        assert made >= i - 8, "a quarter of a second, and the sample that is not over"
    assert len(resampler._time) < 20, "and so is what it keeps"


def test_many_samples_are_averaged():
    time = np.arange(1000) / 1000
    noise = np.where(np.arange(1000) % 2, 1.0, -1.0)[:, None]
    pieces, _ = resampled(time, noise, 25.0, 1)
    assert np.abs(np.concatenate([p.samples for p in pieces])[1:-1]).max() < 0.05


def test_fill_bridges_and_counts():
    found, count = fill(
        np.array([[np.inf, np.nan], [2.0, np.nan], [np.nan, np.nan], [4.0, np.nan]])
    )
    assert found.tolist() == [[2.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]
    assert count == 6
    check_rate(np.arange(10) / 25, 25.0, "x")


# -- windows, splits, streams ---------------------------------------------------------------


def test_windows_against_the_dumbest_loop():
    samples = np.random.default_rng(0).normal(size=(37, 3, 2)).astype(np.float32)
    found = nodes(samples, np.array([0, 5]), 10)
    for n, first in enumerate((0, 5)):
        for instant in range(2):
            for s in range(3):
                for c in range(2):
                    start = first + 5 * instant
                    expected = samples[start : start + 5, s, c]
                    np.testing.assert_array_equal(found[n, 3 * instant + s, c], expected)


def test_no_window_crosses_the_cut():
    samples = np.arange(1000, dtype=np.float32).reshape(-1, 1, 1)
    data = Recordings(Layout(("s",), ("c",), 25.0), (Recording(samples, "a", "p"),), ("a",), "x")
    train, test = split_in_time(data, share=0.8, settle=100)
    one, two = (cut(p.recordings, ("a",), 50, 1).x for p in (train, test))
    assert one.min() == 100
    assert one.max() == 819
    assert two.min() == 820
    assert test.recordings[0].start == 820 / 25
    with pytest.raises(ValueError, match="share"):
        split_in_time(data, share=1.0)


def test_a_window_across_activities_shows_what_fills_most_of_it():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(70, 1, 3)).astype(np.float32)

    def part(first, last, activity, name="day.csv"):
        return Recording(samples[first:last], activity, "p1", start=first / 25, name=name)

    mine = [part(0, 26, "sit"), part(26, 34, "rise"), part(34, 70, "walk")]
    known = ("sit", "walk", "rise")
    alone = cut(mine, known, 20, 5)
    assert len(alone) == 2 + 4
    assert alone.skipped == 1
    every = cut(mine, known, 20, 5, across=25.0)
    whole = cut([part(0, 70, "sit")], known, 20, 5)
    assert torch.equal(every.x, whole.x)
    shown = ["sit"] * 26 + ["rise"] * 8 + ["walk"] * 36
    for number, found in enumerate(every.target.tolist()):
        inside = shown[5 * number : 5 * number + 20]
        assert inside.count(known[found]) == max(map(inside.count, known))
    assert every.source.tolist() == [0] * 4 + [1] + [2] * (len(every) - 5)  # of the middle
    assert every.skipped == 0
    for other in (
        replace(mine[1], start=mine[1].start + 0.2),
        replace(mine[1], name="other.csv"),
        replace(mine[1], subject="p2"),
    ):
        assert len(cut([mine[0], other, mine[2]], known, 20, 5, across=25.0)) == 2 + 4


def test_too_short_for_any_window():
    short = Recording(np.zeros((20, 1, 1), np.float32), "a", "p")
    with pytest.raises(
        ValueError, match="no recording holds a window of 50 samples: 1 are shorter"
    ):
        cut([short], ["a"], 50, 10)
    for bad in ({"length": 51}, {"length": 2}, {"stride": 0}):
        with pytest.raises(ValueError, match="must be"):
            cut([short], ["a"], **bad)


@pytest.fixture(scope="module")
def streamed():
    data = generate(activities=4, subjects=3, trials=2, seconds=12, sensors=2, channels=2)
    return data, cut(data.recordings, data.activities, 50, 25)


def test_the_paper_s_stream_cycles_through_activities(streamed):
    data, windows = streamed
    order = torch.cat(schedule("paper", windows, data, 7).batches)
    assert sorted(order.tolist()) == list(range(len(windows)))
    visits = torch.unique_consecutive(windows.source[order]).tolist()
    kinds = [(data.recordings[n].trial, data.recordings[n].subject) for n in visits]
    assert kinds == sorted(kinds)
    labels = [data.recordings[n].activity for n in visits]
    assert labels == list(data.activities) * 6
    assert (order.diff()[windows.source[order].diff() == 0] > 0).all(), "in the order of time"


@pytest.mark.parametrize(("scenario", "tasks"), [("class", 4), ("subject", 3), ("regular", 2)])
def test_every_window_comes_once_in_every_scenario(streamed, scenario, tasks):
    data, windows = streamed
    made = schedule(scenario, windows, data, 16, epochs=2, seed=3)
    passes = 2 if scenario == "regular" else 1
    assert sorted(torch.cat(made.batches).tolist()) == sorted(list(range(len(windows))) * passes)
    assert len(made.names) == tasks
    assert made.epochs == passes
    ends = [made.ends_task(position) for position in range(len(made))]
    assert sum(ends) == tasks
    assert ends[-1]
    for index, task in zip(made.batches, made.tasks, strict=True):
        recordings = [data.recordings[n] for n in windows.source[index]]
        if scenario == "class":
            assert {r.activity for r in recordings} == {made.names[task]}
        if scenario == "subject":
            assert {r.subject for r in recordings} == {made.names[task]}
    again = schedule(scenario, windows, data, 16, epochs=2, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(made.batches, again.batches, strict=True))


def test_scenarios_refuse_what_they_do_not_know(streamed):
    data, windows = streamed
    with pytest.raises(ValueError, match="scenario must be one of"):
        schedule("random", windows, data)
    with pytest.raises(ValueError, match="batch_size"):
        schedule("class", windows, data, batch_size=0)
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        schedule("regular", windows, data, epochs=0)


def test_windows_are_a_source(streamed):
    data, windows = streamed
    index = torch.tensor([5, 2, 9])
    batch = windows.batch(index, task=3)
    assert torch.equal(batch.x, windows.x[index])
    assert torch.equal(batch.target, windows.target[index])
    assert torch.equal(batch.node, index)
    assert batch.task.tolist() == [3, 3, 3]
    for position in (None, 0, 7):  # a window is the same whenever it is tested
        again = windows.batch(index, -1, position)
        assert torch.equal(again.x, batch.x)
        assert again.task.tolist() == [-1] * 3
    one = windows.batch(index[1:2])
    assert torch.equal(one.x[0], batch.x[1]), "a batch of one is a row of the batch"
    order = schedule("paper", windows, data, 7)
    stream = Continuum(windows, order, torch.arange(4))
    taken = list(stream)
    assert torch.equal(torch.cat([b.node for b in taken]), torch.cat(order.batches))
    assert [int(b.task[0]) for b in taken] == list(order.tasks)
    assert torch.equal(next(stream.batches(3)).node, order.batches[3]), "from any position"
    assert [b.node.tolist() for b in stream.test()] == [[0, 1, 2, 3]]


def test_joined_windows_keep_their_order_and_their_recordings(streamed):
    _, windows = streamed
    half = len(windows) // 2
    first, second = (
        replace(
            windows,
            **{name: getattr(windows, name)[part] for name in ("x", "target")},
            source=windows.source[part] - windows.source[part][0],
        )
        for part in (slice(half), slice(half, None))
    )
    both = join(first, second)
    assert torch.equal(both.x, windows.x)
    assert torch.equal(both.target, windows.target)
    assert torch.equal(both.source[:half], first.source)
    assert both.source[half] == first.source.max() + 1


def test_batches_carry_no_neighbors():
    batch = as_batch(torch.randn(3, 10, 9, 25))
    assert len(batch.neighbors) == 0
    assert batch.nbytes < 3 * 10 * 9 * 25 * 4 + 200


def test_generated_streams_follow_their_seed():
    one, two, other = generate(), generate(), generate(seed=1)
    np.testing.assert_array_equal(one.recordings[5].samples, two.recordings[5].samples)
    assert not np.array_equal(one.recordings[5].samples, other.recordings[5].samples)
    assert generate(activities=10).activities[-1] == "activity10"
    with pytest.raises(ValueError, match="subjects must be at least 1"):
        generate(subjects=0)


def test_recordings_know_their_subjects():
    data = generate()
    assert data.without(["p2"]).subjects == ("p1", "p3")
    with pytest.raises(ValueError, match="subjects must be among p1, p2, p3, got p9"):
        data.of(["p9"])
    wrong = Recording(np.zeros((9, 1, 1), np.float32), "a", "p", name="odd")
    with pytest.raises(ValueError, match="odd must have 5 sensors"):
        Recordings(data.layout, (wrong,), data.activities, "x")
    with pytest.raises(ValueError, match="a layout needs"):
        Layout((), (), 25.0)


# -- lines from a pipe ----------------------------------------------------------------------


def test_lines_from_a_pipe_come_whole_and_as_soon_as_they_are_there():
    out, into = os.pipe()
    lines = PipeReader(out)
    os.write(into, "time,arm.x\n0.0,1\n0.1,ü".encode()[:-1])  # half of a letter
    assert next(lines) == "time,arm.x"
    assert lines.pending
    assert next(lines) == "0.0,1"
    assert not lines.pending
    os.write(into, "ü".encode()[1:] + b"\n0.2,3")
    assert next(lines) == "0.1,ü"
    os.close(into)
    assert list(lines) == ["0.2,3"]
    os.close(out)


def test_rows_that_have_piled_up_in_a_pipe_are_given_out_together():
    out, into = os.pipe()
    os.write(into, b"time,arm.x\n" + b"".join(b"%d,1\n" % i for i in range(7)))
    blocks = iter(Rows(PipeReader(out), "pipe", block=2))
    assert len(next(blocks).time) == 7
    os.write(into, b"7,1\n8,1\n")
    assert len(next(blocks).time) == 2
    os.write(into, b"9,\n")
    os.close(into)
    assert np.isnan(next(blocks).values).all()
    assert not list(blocks)
    os.close(out)


def test_the_first_block_can_be_larger():
    lines = ["\ufefftime,arm.x", *(f"{i},1" for i in range(9))]
    assert [len(b.time) for b in Rows(lines, "x", block=2, first_block=5)] == [5, 2, 2]
