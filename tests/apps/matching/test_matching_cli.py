"""The commands: what they write, what they print, and how they complain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import typer
from matching_pairs import texture
from typer.testing import CliRunner

from benchmarks import matching as bench
from evergraph.apps.matching.matcher import Matcher
from evergraph.cli.match import match
from experiments import matching as compare
from experiments import matching_limits as limits
from experiments import matching_scenes as render
from experiments import matching_shipped as shipped
from experiments import matching_stream as stream
from experiments import matching_table7 as table7

runner = CliRunner()


def invoke(*arguments):
    return runner.invoke(match, [str(a) for a in arguments])


def call(command, *arguments):
    """Run a module's main as `python -m` does."""
    app = typer.Typer()
    app.command()(command)
    return runner.invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    """Three tiny sequences in TartanAir's layout."""
    root = tmp_path_factory.mktemp("rendered")
    pictures = [texture(96, seed) for seed in range(4)]
    for number, name in enumerate(("indoor", "dark", "hard")):
        frames = render.sequence(render.CATEGORIES[name], pictures, 3, number, width=128)
        render.write_sequence(root / name / "Easy" / "P000", frames)
    return root


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    big = texture(160, 7)
    cv2.imwrite(str(folder / "a.png"), big)
    cv2.imwrite(str(folder / "b.png"), np.roll(big, 4, axis=1))
    return folder


def test_pair_writes_matches_and_a_picture(images, tmp_path):
    out = tmp_path / "out"
    shown = invoke("pair", images / "a.png", images / "b.png", "--out", out, "--json")
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    saved = np.load(out / "matches.npz")
    assert (saved["matches"] >= 0).sum() == told["matches"] > 20
    partner = saved["keypoints1"][saved["matches"][saved["matches"] >= 0]]
    moved = partner - saved["keypoints0"][saved["matches"] >= 0]
    assert np.median(moved[:, 0]) == pytest.approx(4, abs=0.5)
    assert cv2.imread(str(out / "matches.png")).shape == (160, 320, 3)
    table = invoke("pair", images / "a.png", images / "b.png", "--out", out)
    assert str(told["matches"]) in table.output


@pytest.mark.parametrize("model", ["homography", "fundamental", "essential"])
def test_pair_verifies_what_matches_agree_on(model, images, tmp_path):
    big = texture(160, 7)
    moved = np.roll(big, 4, axis=1)
    moved[:60, :60] = texture(60, 3)  # something else has come into view
    cv2.imwrite(str(images / "b.png"), moved)
    arguments = ["pair", images / "a.png", images / "b.png", "--out", tmp_path, "--verify", model]
    if model == "essential":
        arguments += ["--intrinsics", "150,150,80,80"]
    told = json.loads(invoke(*arguments, "--json").stdout)
    with np.load(tmp_path / "matches.npz") as file:
        saved = dict(file)
    inliers = saved["inliers"]
    assert inliers.shape == saved["matches"].shape
    assert told["inliers"] == inliers.sum() > 20
    assert (saved["matches"][inliers] >= 0).all()
    ends = saved["keypoints0"][inliers], saved["keypoints1"][saved["matches"][inliers]]
    points0, points1 = (np.c_[part, np.ones(len(part))] for part in ends)
    if model == "homography":
        there = points0 @ saved["model"].T
        assert np.abs(there[:, :2] / there[:, 2:] - ends[1]).max() < 4
    if model == "fundamental":
        line = points0 @ saved["model"].T
        off = np.abs((points1 * line).sum(1)) / np.hypot(line[:, 0], line[:, 1])
        assert off.max() < 4
    if model == "essential":
        assert np.allclose(saved["rotation"] @ saved["rotation"].T, np.eye(3))
        assert np.linalg.norm(saved["translation"]) == pytest.approx(1)


def test_evaluate_names_the_truth(tmp_path):
    scene = tmp_path / "leuven"
    scene.mkdir()
    image = cv2.cvtColor(texture(160, 5), cv2.COLOR_GRAY2BGR)
    homography = np.array([[1.0, 0.05, 4.0], [-0.05, 1.0, 6.0], [0, 0, 1]])
    cv2.imwrite(str(scene / "img1.ppm"), image)
    cv2.imwrite(str(scene / "img2.ppm"), cv2.warpPerspective(image, homography, (160, 160)))
    np.savetxt(scene / "H1to2p", -homography)
    told = json.loads(invoke("evaluate", tmp_path, "--points", 80, "--json").stdout)
    assert told["layout"] == "oxford"
    assert told["truth"] == "the homographies H1tokp of Oxford's affine sets"
    assert told["pairs"] == 1
    assert told["rows"][-1]["recall"] > 0.3
    shown = invoke("evaluate", tmp_path, "--points", 80)
    assert "Oxford's affine sets" in " ".join(shown.output.split())
    (scene / "H1to2p").unlink()
    cv2.imwrite(str(tmp_path / "a.png"), image)
    plain = invoke("evaluate", tmp_path, "--points", 80, "--pairs", 1)
    assert "random homographies" in " ".join(plain.output.split())


def test_images_of_different_scenes_have_no_matches(tmp_path):
    for seed in (1, 2):
        cv2.imwrite(str(tmp_path / f"{seed}.png"), texture(200, seed))
    arguments = ("pair", tmp_path / "1.png", tmp_path / "2.png", "--out", tmp_path)
    shown = invoke(*arguments, "--certain", 0, "--json")
    assert json.loads(shown.stdout)["matches"] > 0  # what there is without the decision
    told = json.loads(invoke(*arguments, "--json").stdout)
    assert (told["matches"], told["same_scene"]) == (0, False)
    assert "do not seem to be images of one scene" in invoke(*arguments).output
    same = json.loads(invoke("pair", *[tmp_path / "1.png"] * 2, "--out", tmp_path, "--json").stdout)
    assert same["same_scene"]
    assert same["matches"] > 50


@pytest.mark.parametrize("kind", ["gray16", "alpha", "one"])
def test_pair_takes_all_kinds_of_images(kind, images, tmp_path):
    gray = texture(96, 2)
    made = {
        "gray16": gray.astype(np.uint16) * 257,
        "alpha": cv2.cvtColor(gray, cv2.COLOR_GRAY2BGRA),
        "one": np.zeros((1, 1), np.uint8),
    }[kind]
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), made)
    shown = invoke("pair", path, path, "--out", tmp_path, "--json")
    assert shown.exit_code == 0, shown.output
    assert (json.loads(shown.stdout)["matches"] > 0) == (kind != "one")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pair", "no.png", "no.png"), "must be a file that exists"),
        (("video", "nowhere"), "expected a folder"),
        (("train", "nowhere"), "expected a folder"),
        (("evaluate", "nowhere"), "expected a folder"),
        (("pair", "a", "b", "--matcher", "none"), "no matcher at none"),
        (("pair", "a", "b", "--detector", "surf"), "detector must be sift, orb or corners"),
        (("pair", "a", "b", "--threshold", "3"), "threshold must lie in 0..1"),
        (("pair", "a", "b", "--verify", "affine"), "verify must be one of"),
        (("pair", "a", "b", "--verify", "essential"), "needs --intrinsics"),
        (("pair", "a", "b", "--intrinsics", "1,2,3"), "fx,fy,cx,cy with focal lengths above 0"),
        (("pair", "a", "b", "--intrinsics", "0,2,3,4"), "focal lengths above 0"),
    ],
)
def test_complaints_are_one_line(arguments, message):
    shown = invoke(*arguments)
    assert shown.exit_code == 2
    assert message in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("kept", [0, 50, -8])
def test_a_broken_image_is_one_line_of_the_program(kept, images, tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes((images / "a.png").read_bytes()[:kept])
    command = [sys.executable, "-m", "evergraph", "match", "pair", path, path, "--out", tmp_path]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "999"}
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "the file is empty, truncated or no picture" in done.stderr


def test_a_truncated_matcher_is_refused(images, tmp_path):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"\x10\x00")
    pair = (images / "a.png", images / "b.png")
    shown = invoke("pair", *pair, "--matcher", path)
    assert shown.exit_code == 2
    assert "truncated or damaged" in " ".join(shown.stderr.split())


def test_video_learns_on_the_way(rendered, images, tmp_path):
    saved = tmp_path / "learned.safetensors"
    shown = invoke(
        "video", rendered / "indoor/Easy/P000", "--learn", "--memory", 50,
        "--points", 60, "--save", saved, "--json",
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert told["pairs"] == 2
    assert told["learned_candidates"] > 50
    assert 0 <= told["f1"] <= 1
    plain = json.loads(invoke("video", images, "--matcher", saved, "--json").stdout)
    assert plain["matches_per_second"] > 0
    assert "f1" not in plain


def test_train_then_evaluate(images, rendered, tmp_path):
    saved = tmp_path / "mine.safetensors"
    told = invoke(
        "train", images, "--pairs", 3, "--steps", 2, "--points", 60, "--save", saved,
        "--json",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["images"] == ["b.png"]  # the other is held out
    deep = invoke("train", rendered, "--steps", 2, "--points", 60, "--kind", "gcn", "--save", saved)
    assert deep.exit_code == 0, deep.output
    shown = invoke("evaluate", rendered, "--matcher", saved, "--points", 60, "--pairs", 3, "--json")
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.stdout)["rows"]
    methods = [row["method"] for row in rows]
    assert {"nearest neighbor", "ratio test", "evergraph"} <= set(methods)
    assert all(len(row["auc_pose"]) == 3 for row in rows)
    plain = invoke("evaluate", images, "--points", 60, "--pairs", 1)
    assert plain.exit_code == 0, plain.output
    assert "AUC" in plain.output


@pytest.mark.parametrize("way", ["--bare", "--wide"])
def test_train_adapts_a_matcher(way, images, tmp_path):
    path, out = tmp_path / "matcher.safetensors", tmp_path / "adapted.json"
    options = ("--pairs", 4, "--steps", 1, "--points", 250, "--save", path, "--out", out)
    shown = invoke("train", images, way, *options)
    assert shown.exit_code == 0, shown.output
    start = Matcher.pretrained().network
    assert 0 < farthest(Matcher.load(path).network, start) < 0.01  # one gentle step, half of it
    fresh = invoke("train", images, *options)
    assert fresh.exit_code == 0, fresh.output
    assert farthest(Matcher.load(path).network, start) > 0.1


def farthest(one, other):
    """The largest difference of two parameters."""
    both = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in both)


def test_render_writes_every_category(tmp_path):
    shown = call(render.write_sequences, tmp_path, "--sequences", 1, "--frames", 2, "--width", 32)
    assert shown.exit_code == 0, shown.output
    found = sorted(p.parent.name for p in tmp_path.glob("*/Easy"))
    assert len(found) == 4
    assert len((tmp_path / "dark/Easy/P000/pose_left.txt").read_text().splitlines()) == 2


def test_table_7_beside_the_published_values(rendered, tmp_path):
    out, picture = tmp_path / "table.json", tmp_path / "curves.png"
    options = (
        "--seeds", 1, "--steps", 2, "--rounds", 2, "--points", 60, "--out", out,
        "--picture", picture, "--work", tmp_path / "work",
    )  # fmt: skip
    shown = call(table7.main, rendered, *options)
    assert shown.exit_code == 0, shown.output
    result = json.loads(out.read_text())
    assert (result["schema"], result["seeds"]) == (2, [0])
    rows = result["cells"]
    known = {"gat", "fgn", "oracle", "nearest neighbor", "mutual nearest neighbor"}
    assert {row["method"] for row in rows} >= known
    overall = {row["method"]: row for row in rows if row["category"] == "all"}
    assert overall["fgn"]["published"] == 2.00
    assert overall["gat"]["published"] == 2.64
    assert overall["oracle"]["f1"] == 1
    assert overall["oracle"]["possible_error"] < 1.5
    assert 0 < overall["oracle"]["possible_share"] < 1
    assert [len(curve) for curve in result["training"][0].values()] == [3, 3, 3]
    (pair,) = (d for d in result["differences"] if (d["category"], d["second"], d["first"])
               == ("all", "gat", "fgn"))  # fmt: skip
    assert pair["low"] <= pair["mean"] <= pair["high"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = out.with_suffix(".md").read_text()
    assert f"| {overall['fgn']['possible_error']:.3f} |" in text
    again = call(table7.main, rendered, *options, "--json")
    assert json.loads(again.stdout)["cells"] == rows  # from the finished seed
    other = call(table7.main, rendered, *options, "--apart", 2)
    assert "belongs to other settings" in other.output


def test_the_published_table_7_can_be_solved():
    place = Path(__file__).parents[3] / "results/matching_table7.json"
    result = json.loads(place.read_text())
    assert result["seeds"] == [0, 1, 2, 3, 4]
    assert 600 <= result["config"]["points"] <= 1000
    errors = {(r["category"], r["method"]): r["possible_error"] for r in result["cells"]}
    categories = {category for category, _ in errors}
    assert categories == {*render.CATEGORIES, "all"}
    assert all(errors[category, "oracle"] < 1.5 for category in categories)
    assert all(errors[category, "nearest neighbor"] < 4 for category in ("indoor", "outdoor"))
    assert max(errors["all", "fgn"], errors["all", "gat"]) < errors["all", "nearest neighbor"]
    (found,) = (
        row
        for row in result["differences"]
        if (row["category"], row["first"], row["second"]) == ("all", "fgn", "gat")
    )
    assert found["low"] <= found["mean"] <= found["high"]


def test_bench_prints_json_and_nothing_else():
    shown = call(bench.main, "--repeats", 1, "--most", 256, "--json")
    assert shown.exit_code == 0, shown.output
    (row,) = json.loads(shown.stdout)["rows"]
    assert row["points"] == 256
    assert row["match_ms"] > 0
    known = (
        "bare_ms",
        "bare_cpu_ms",
        "candidates",
        "graph_ms",
        "opencv_ms",
        "match_cpu_ms",
        "graph_cpu_ms",
    )
    ratios = ("opencv_cpu_ms", "fgn_us_per_item", "gcn_us_per_item", "fgn_to_gcn")
    assert set(row) == {"points", "match_ms", "match_to_opencv", *known, *ratios}


@pytest.mark.slow
def test_stream_follows_the_schema_of_runs(tmp_path):
    options = ("--seeds", 1, "--frames", 4, "--sequences", 1, "--methods", "replay", "--json")
    shown = call(stream.main, *options)
    assert shown.exit_code == 0, shown.output
    (cell,) = json.loads(shown.stdout)["cells"]
    assert list(cell["class_accuracy"][0]) == list(render.CATEGORIES)
    assert np.shape(cell["accuracy_matrix"]) == (4, 4)


@pytest.mark.slow
def test_what_is_shipped_and_where_it_ends(tmp_path):
    shown = call(shipped.main, "--test", 3, "--frames", 5, "--json")
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    cells = {(cell["test"], cell["method"]): cell for cell in told["cells"]}
    for test in {test for test, _ in cells}:
        plain = cells[test, "mutual nearest neighbor"]["f1"]
        assert cells[test, "evergraph"]["f1"] >= plain - 0.02
    medians = {row["method"]: row["median"] for row in told["unrelated"]}
    assert medians["evergraph"] == medians["evergraph, corners"] == 0
    assert medians["mutual nearest neighbor"] > 0
    shown = call(limits.main, "--pairs", 4, "--each", 1, "--steps", 1, "--json")
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.stdout)["cells"]
    mine = {(r["change"], r["amount"]): r["f1"] for r in rows if r["method"] == "evergraph"}
    assert mine["tilt", 30] > 0.8 > mine["tilt", 80]
    assert mine["turn", 180] > 0.8


@pytest.mark.slow
def test_compare_small(tmp_path):
    options = ("--small", "--kinds", "fgn,mlp", "--seeds", 1, "--work", tmp_path)
    shown = call(compare.main, *options, "--json")
    assert shown.exit_code == 0, shown.output
    cells = json.loads(shown.stdout)["cells"]
    assert {"test", "method", "precision", "recall", "f1", "runs", "train_seconds"} <= set(cells[0])


@pytest.mark.slow
def test_the_search_keeps_what_others_found(tmp_path):
    path = tmp_path / "searches.json"
    path.write_text('{"schema": 2, "searches": {"other": 1}}')
    shown = call(compare.main, "--small", "--seeds", 1, "--search", path)
    assert shown.exit_code == 0, shown.output
    kept = json.loads(path.read_text())["searches"]
    assert kept["other"] == 1
    scales = [trial["settings"]["message_scale"] for trial in kept["matching"]["trials"]]
    assert sorted(scales) == [[1.0, 1.0], [1.0, 6.0], [6.0, 1.0]]
