"""Where the truth comes from: homographies, depth and poses, disparity, rendered scenes."""

import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from matching_pairs import easy_pair, random_features, texture

from evergraph.apps.matching import sources, tartanair
from evergraph.apps.matching.baselines import nearest_neighbor, oracle
from evergraph.apps.matching.evaluate import evaluate, judge, summarize
from evergraph.apps.matching.homography import (
    Views,
    album_pairs,
    pairs,
    photometric,
    turned_view,
)
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.sources import judged_pairs, layout_of, video_pairs
from evergraph.apps.matching.truth import homography_pair, warp
from experiments import matching_scenes as render
from experiments import matching_stereo as stereo

SMALL = Views(size=(96, 72), points=40, difficulty=0.3, noise=0.2, matches=4)


@pytest.fixture(scope="module")
def frames():
    pictures = [texture(96, seed) for seed in range(4)]
    return render.sequence(render.CATEGORIES["indoor"], pictures, 3, seed=1, width=96)


@pytest.fixture
def folder(frames, tmp_path):
    render.write_sequence(tmp_path / "room" / "Easy" / "P000", frames)
    return tmp_path / "room" / "Easy" / "P000"


# -- homographies -------------------------------------------------------------------------------


def test_true_matches_are_the_plain_loop():
    pair = easy_pair(40)
    expected = np.full(40, -1)
    there = warp(pair.first.keypoints, pair.homography)
    back = warp(pair.second.keypoints, np.linalg.inv(pair.homography))
    worst = np.array([
        [max(np.hypot(*(there[i] - pair.second.keypoints[j])),
             np.hypot(*(back[j] - pair.first.keypoints[i]))) for j in range(40)]
        for i in range(40)
    ])  # fmt: skip
    for i in range(40):
        j = int(worst[i].argmin())
        if worst[i, j] <= 3 and worst[:, j].argmin() == i:
            expected[i] = j
    assert pair.true_matches.tolist() == expected.tolist()
    assert (expected == np.arange(40)).mean() > 0.9


def test_points_behind_the_plane_have_no_place():
    homography = np.array([[1.0, 0, 0], [0, 1, 0], [0.1, 0, 1]])
    assert np.isnan(warp(np.array([[-20.0, 0.0]]), homography)).all()


@pytest.mark.parametrize("factor", [-1.0, 1e-9, -1e9])
@pytest.mark.parametrize(
    "homography",
    [
        [[1.0, 0.1, 5.0], [-0.1, 1.2, 3.0], [0.001, 0.0005, 1.0]],
        [[1.0, 0, 0], [0, 1, 0], [0.1, 0, 1]],  # with points behind the camera
        [[-1.0, 0, 200.0], [0, 1, 0], [0, 0, 1]],  # a mirror image
        [[1.0, 0, 0], [0, 1, 0], [-0.1, 0, 1]],  # the origin in front of few points
    ],
)
def test_a_homography_has_neither_sign_nor_scale(homography, factor):
    points = np.random.default_rng(0).uniform(-15, 100, (30, 2))
    matrix = np.array(homography)
    there = warp(points, matrix)
    assert np.isfinite(there).any()
    assert np.allclose(warp(points, factor * matrix), there, equal_nan=True)
    first = random_features(30)
    one, other = (homography_pair(first, first, m, (200, 150)) for m in (matrix, factor * matrix))
    assert one.true_matches.tolist() == other.true_matches.tolist()
    assert np.allclose(one.truth.backward, other.truth.backward, equal_nan=True)


def test_a_composed_homography_keeps_what_lies_beyond_its_origin():
    first = np.array([[1.0, 0, 0], [0, -1, 0], [0.05, 0, -1.0]])  # the origin is behind the camera
    points = np.array([[40.0, 10.0], [80.0, 60.0], [100.0, 20.0]])
    depth = 0.05 * points[:, 0] - 1
    there = points * [1, -1] / depth[:, None]
    assert np.allclose(warp(points, first), there)
    assert np.allclose(warp(points, -first), there)


def test_pairs_of_photographs_follow_their_homography():
    made = list(pairs([texture(200, 5)], 3, seed=0, views=SMALL))
    assert len(made) == 3
    for pair in made:
        true = pair.true_matches
        rows = np.flatnonzero(true >= 0)
        assert len(rows) >= SMALL.matches
        assert pair.error(rows, true[rows]).max() <= 3
        assert pair.labels(rows, true[rows]).tolist() == [1] * len(rows)
    again = next(iter(pairs([texture(200, 5)], 3, seed=0, views=SMALL)))
    assert (again.first.keypoints == made[0].first.keypoints).all()


def test_a_turned_view_is_the_plain_camera():
    size, tilt, axis, turn, zoom = (320, 240), 35.0, 20.0, 70.0, 1.5
    focal, middle = 320.0, np.array([160.0, 120.0])
    camera = np.array([np.cos(np.deg2rad(axis)), np.sin(np.deg2rad(axis)), 0])
    lean = cv2.Rodrigues(np.deg2rad(tilt) * camera)[0]
    roll = cv2.Rodrigues(np.array([0, 0, np.deg2rad(turn)]))[0]
    found = turned_view(size, tilt, axis, turn, zoom)
    for point in ([160.0, 120], [20, 30], [300, 200]):
        place = np.append((np.array(point) - middle) / focal, 0)  # on the plane, about its middle
        there = roll @ lean @ place + [0, 0, 1 / zoom]
        true = middle + focal * there[:2] / there[2]
        assert warp(np.array([point]), found)[0] == pytest.approx(true)


def test_wide_views_follow_their_homography():
    views = replace(SMALL, size=(160, 120), points=80, noise=0.0, spin=180.0, tilt=30.0)
    made = list(pairs([texture(300, 2)], 6, 0, views))
    turns = []
    for pair in made:
        rows = np.flatnonzero(pair.true_matches >= 0)
        assert len(rows) >= 4
        ends = pair.first.descriptors[rows], pair.second.descriptors[pair.true_matches[rows]]
        assert np.median((ends[0] * ends[1]).sum(1)) > 0.9  # .77 by chance
        turns.append(np.angle(pair.homography[0, 0] + 1j * pair.homography[1, 0]))
    assert np.ptp(turns) > np.pi / 2
    with pytest.raises(ValueError, match=r"tilt must lie in \[0, 90\) degrees, got 90"):
        Views(tilt=90)


def test_albums_make_many_pairs_of_few_views():
    made = album_pairs([texture(200, 5), texture(200, 6)], 12, seed=0, views=SMALL)
    assert len(made) == 12
    assert {pair.name for pair in made} == {"image 0", "image 1"}
    points = {pair.first.keypoints.tobytes() for pair in made}
    assert len(points) < 12  # views come again
    for pair in made:
        true = pair.true_matches
        assert (true >= 0).sum() >= SMALL.matches
    with pytest.raises(ValueError, match="too little structure"):
        album_pairs([np.zeros((100, 100), np.uint8)], 2, 0, SMALL)


def test_photometric_noise_keeps_the_kind_of_image():
    image = texture(48)
    rng = np.random.default_rng(0)
    for _ in range(20):
        changed = photometric(image, rng)
        assert changed.dtype == np.uint8
        assert changed.shape == image.shape
    assert (photometric(image, rng, strength=0) == image).all()


def test_images_without_structure_are_refused():
    with pytest.raises(ValueError, match="too little structure"):
        list(pairs([np.zeros((100, 100), np.uint8)], 2, 0, SMALL))
    with pytest.raises(ValueError, match="at least one image"):
        list(pairs([], 2, 0, SMALL))
    with pytest.raises(ValueError, match=r"difficulty must lie in \[0, 1\), got 1"):
        Views(difficulty=1)


def test_splits_never_share_a_picture():
    for seed in range(5):
        parts = sources.split(seed)
        names = [*parts.train, *parts.validation, *parts.test, *parts.surfaces]
        assert len(names) == len(set(names)) == len(sources.SCENES + sources.SURFACES)
        assert set(parts.test) <= set(sources.SCENES)
    tested = {name for seed in range(5) for name in sources.split(seed).test}
    assert len(tested) >= 6


def test_every_bundled_picture_can_be_read(capfd):
    for name in (*sources.SCENES, *sources.SURFACES):
        assert min(sources.photograph(name).shape[:2]) > 100
    assert capfd.readouterr().err == ""  # one has a color profile that libpng warns of
    with pytest.raises(ValueError, match=r"no picture 'none\.png'"):
        sources.photograph("none.png")


# -- depth and poses ----------------------------------------------------------------------------


def test_projection_is_the_plain_loop():
    rng = np.random.default_rng(0)
    pose, other = np.eye(4), np.eye(4)
    pose[:3, :3], other[:3, :3] = render.rotation(0.1, 0.2, -0.1), render.rotation(0.3, 0, 0.1)
    pose[:3, 3], other[:3, 3] = [1, 2, 3], [0.5, 2.2, 3.1]
    points, depth = rng.uniform(0, 60, (8, 2)), rng.uniform(2, 9, 8)
    found, far = tartanair.project(points, depth, pose, other, (64, 48))
    for i in range(8):
        u, v = points[i]
        camera = depth[i] * np.array([1, (u - 32) / 32, (v - 24) / 32])  # forward, right, down
        world = pose[:3, :3] @ camera + pose[:3, 3]
        x, y, z = other[:3, :3].T @ (world - other[:3, 3])
        assert found[i] == pytest.approx([32 * y / x + 32, 32 * z / x + 24])
        assert far[i] == pytest.approx(x)


def test_rotations_survive_the_file(frames, tmp_path):
    turns = [render.rotation(*a) for a in ((0, 0, 0), (0.3, -0.2, 1.0), (3.0, 0.1, -2.0))]
    poses = np.tile(np.eye(4), (3, 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = turns, np.arange(9).reshape(3, 3)
    image, depth, _ = frames[0]
    render.write_sequence(tmp_path, [(image, depth, pose) for pose in poses])
    assert tartanair.read_poses(tmp_path / "pose_left.txt", 3) == pytest.approx(poses, abs=1e-8)


def test_rendered_frames_agree_with_their_depth_and_poses(folder, frames):
    """A pixel moved by depth and poses must find its own color in the other frame."""
    found = tartanair.read_sequence(folder)
    assert found.poses == pytest.approx(np.stack([pose for _, _, pose in frames]), abs=1e-6)
    (image0, depth0, pose0), (image1, depth1, pose1) = frames[0], frames[1]
    row, column = np.mgrid[8:64:4, 8:88:4]
    points = np.stack([column.ravel(), row.ravel()], 1).astype(float)
    place, far = tartanair.project(
        points, tartanair.sample(depth0, points, (96, 72)), pose0, pose1, (96, 72)
    )
    there = tartanair.sample(depth1, place, (96, 72))
    seen = np.abs(far - there) < 0.02 * far
    assert seen.mean() > 0.5
    smooth0, smooth1 = (cv2.GaussianBlur(i, (0, 0), 1).astype(float) for i in (image0, image1))
    mine = smooth0[points[seen, 1].astype(int), points[seen, 0].astype(int), 0]
    x, y = np.rint(place[seen]).astype(int).T
    yours = smooth1[y, x, 0]
    assert np.corrcoef(mine, yours)[0, 1] > 0.8


def test_frames_have_true_matches_and_a_motion(folder):
    found = list(tartanair.sequence_pairs(tartanair.read_sequence(folder), 1, 96, 60))
    assert len(found) == 2
    for pair in found:
        assert (pair.true_matches >= 0).sum() > 5
        assert pair.motion is not None
        judged = pair.labels(np.arange(len(pair.first)), np.zeros(len(pair.first), int))
        assert (judged[~pair.truth.judged] == -1).all()


def frame(depth, pose=None):
    found = random_features(12)
    return tartanair.Frame(found, depth, np.eye(4) if pose is None else pose, (200, 150))


def test_unknown_depth_sky_and_hidden_points_are_not_judged():
    flat = np.full((150, 200), 5.0)
    assert tartanair.frame_pair(frame(flat), frame(flat)).truth.judged.all()
    unknown = np.full((150, 200), np.nan)
    pair = tartanair.frame_pair(frame(unknown), frame(flat))
    assert not pair.truth.judged.any()
    assert (pair.true_matches == -1).all()
    sky = np.full((150, 200), 10000.0)
    assert not tartanair.frame_pair(frame(sky), frame(sky)).truth.judged.any()
    wall = np.full((150, 200), 2.0)  # something closer stands in the way
    assert not tartanair.frame_pair(frame(flat), frame(wall)).truth.judged.any()
    behind = np.eye(4)
    behind[0, 3] = 9.0  # the camera has passed the points
    assert not tartanair.frame_pair(frame(flat), frame(flat, behind)).truth.judged.any()


def test_a_missing_pose_line_is_named(folder):
    poses = folder / "pose_left.txt"
    lines = poses.read_text().splitlines()
    poses.write_text("\n".join(lines[:-1]))
    with pytest.raises(ValueError, match="one line for each of the 3 images, got 2 lines"):
        tartanair.read_sequence(folder)
    poses.write_text("\n".join([lines[0], "1 2 3 nan 0 0 1", lines[2]]))
    with pytest.raises(ValueError, match=r"line 2 of .* must be tx ty tz qx qy qz qw"):
        tartanair.read_sequence(folder)


def test_missing_and_broken_depth_is_named(folder):
    depth = folder / "depth_left" / "000001_left_depth.npy"
    depth.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="must be a depth map saved by NumPy"):
        tartanair.read_sequence(folder).frame(1, 96, 20)
    depth.unlink()
    with pytest.raises(ValueError, match=r"000001_left_depth\.npy is missing"):
        tartanair.read_sequence(folder)
    with pytest.raises(ValueError, match="expected TartanAir's layout"):
        tartanair.sequences(folder / "image_left")


def test_negative_and_infinite_depth_is_unknown(tmp_path):
    np.save(tmp_path / "d.npy", np.array([[1.0, -1.0], [np.nan, 0.0]]))
    assert np.isnan(tartanair.read_depth(tmp_path / "d.npy")).tolist() == [
        [False, True],
        [True, True],
    ]


@pytest.mark.slow
def test_the_two_real_frames_of_tartanair():
    root = Path(os.environ.get("EVERGRAPH_DATA", "data")) / "TartanAir"
    if not root.is_dir():
        pytest.skip("the two real frames are not here")
    pair = next(tartanair.sequence_pairs(tartanair.sequences(root)[0], 1, 640, 512))
    assert (pair.true_matches >= 0).sum() > 100


# -- other layouts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "image_name", "matrix_name"),
    [("hpatches", "{}.ppm", "H_1_{}"), ("oxford", "img{}.ppm", "H1to{}p")],
)
@pytest.mark.parametrize("factor", [1.0, -1.0, 250.0])
def test_layouts_with_homographies(layout, image_name, matrix_name, factor, tmp_path):
    scene = tmp_path / "v_plane"
    scene.mkdir()
    image = cv2.cvtColor(texture(128, 3), cv2.COLOR_GRAY2BGR)
    homography = np.array([[1.0, 0.05, 4.0], [-0.05, 1.0, 6.0], [0.0001, 0, 1]])
    cv2.imwrite(str(scene / image_name.format(1)), image)
    warped = cv2.warpPerspective(image, homography, (128, 128))
    cv2.imwrite(str(scene / image_name.format(2)), warped)
    np.savetxt(scene / matrix_name.format(2), factor * homography)
    assert layout_of(tmp_path) == layout
    for side in (128, 96):
        pair = next(sources.planar_pairs(scene, short_side=side, points=60, layout=layout))
        true = pair.true_matches
        assert (true >= 0).sum() > 20
        assert pair.name == "v_plane/1-2"
    found = judged_pairs(tmp_path, 5, points=60)
    assert [pair.name for pair in found] == ["v_plane/1-2"]
    (scene / matrix_name.format(2)).write_text("1 2 3")
    with pytest.raises(ValueError, match="9 numbers of an invertible homography, got 3"):
        next(sources.planar_pairs(scene, layout=layout))


@pytest.mark.parametrize("style", ["glue-factory", "superglue"])
def test_pair_lists_have_poses_and_no_true_points(style, tmp_path):
    pictures = [texture(96, seed) for seed in range(3)]
    frames = render.sequence(render.CATEGORIES["indoor"], pictures, 4, seed=1, width=160)
    (first, _, pose0), (second, _, pose1) = frames[0], frames[3]
    for name, image in (("a.png", first), ("b.png", second)):
        cv2.imwrite(str(tmp_path / name), image)
    motion = tartanair.OPTICAL @ np.linalg.inv(pose1) @ pose0 @ tartanair.OPTICAL.T
    camera = np.array([[80.0, 0, 80], [0, 80, 60], [0, 0, 1]]).ravel()
    pose = [*motion[:3, :3].ravel(), *motion[:3, 3]] if style == "glue-factory" else motion.ravel()
    turns = [] if style == "glue-factory" else [0, 0]
    line = " ".join(map(str, ["a.png", "b.png", *turns, *camera, *camera, *pose]))
    path = tmp_path / "pairs.txt"
    path.write_text(f"\n{line}\n")
    assert layout_of(tmp_path) == "list"
    (pair,) = judged_pairs(tmp_path, 5, points=200)
    assert pair.name == "pairs.txt:2"
    assert not pair.truth.judged.any()
    score = judge(pair, Matcher.pretrained().match_pair(pair), geometry=True)
    assert score.angle < 10
    assert score.epipolar > 0.7
    told = summarize([score])
    assert "f1" not in told
    assert told["pairs"] == 1
    wrong = replace(pair, motion=pair.motion @ np.diag([-1, 1, -1, 1]))
    assert judge(wrong, Matcher.pretrained().match_pair(wrong), geometry=True).angle > 60
    (half,) = sources.listed_pairs(path, short_side=60)
    assert half.cameras[0][0].tolist() == [40, 0, 40]
    path.write_text(f"{line}\n{line} 3\n")
    with pytest.raises(ValueError, match=r"line 2 of .* must be name0 name1 K0 K1"):
        list(sources.listed_pairs(path))
    path.write_text("notes about a.png and b.png")
    assert layout_of(tmp_path) == "images"


@pytest.mark.parametrize("name", list(render.CATEGORIES))
def test_points_of_every_category_can_be_matched(name):
    pictures = [sources.photograph(one) for one in sources.SCENES]
    pairs = render.rendered_pairs(render.CATEGORIES[name], pictures, 3, 1, 1, 800)
    shares = [(pair.partners >= 0).mean() for pair in pairs]
    assert min(shares) > 0.35
    told = {how: evaluate(pairs, how)["possible_error"] for how in (oracle, nearest_neighbor)}
    assert told[oracle] < 1.5
    assert told[oracle] < told[nearest_neighbor] + 1 < 13  # it was 49 to 64 pixels in the dark
    if name in ("indoor", "outdoor"):
        assert told[nearest_neighbor] < 4


def test_faces_of_a_scene_show_different_pieces(tmp_path, monkeypatch):
    picture = np.random.default_rng(0).integers(0, 256, (40, 61, 3), np.uint8)
    found = render.pieces(picture)
    assert len(found) == 8
    assert {piece.shape for piece in found} == {(20, 30, 3)}
    assert len({piece.tobytes() for piece in found}) == 8
    whole = np.block([[[found[0]], [found[2]]], [[found[4]], [found[6]]]])
    assert (whole == picture[:, :60]).all()
    assert all((b == a[:, ::-1]).all() for a, b in zip(found[::2], found[1::2], strict=True))
    shown = []
    frame = np.zeros((3, 4, 3), np.uint8), np.ones((3, 4)), np.eye(4)
    seen = lambda category, textures, *size: shown.append(textures) or [frame]  # noqa: E731
    monkeypatch.setattr(render, "sequence", seen)
    render.write_sequences(tmp_path, 1, 1)
    assert [len({piece.tobytes() for piece in one}) for one in shown] == [8 * 17] * 4


def test_disparity_there_and_back():
    disparity = np.full((20, 50), 7.0)
    disparity[:, 40:] = np.inf
    points = np.array([[20.0, 5.0], [3.0, 5.0], [45.0, 5.0]], np.float32)
    there, known = stereo.shift(points, disparity)
    assert known.tolist() == [True, False, False]  # one leaves the image, one is unknown
    assert there[0].tolist() == [13, 5]
    back, known = stereo.shift_back(there[:1], disparity)
    assert known.tolist() == [True]
    assert back[0].tolist() == [20, 5]


def test_the_motorcycle_has_true_matches():
    pair = next(iter(stereo.motorcycle_pairs((128,))))
    assert 30 < (pair.true_matches >= 0).sum() < 128
    assert pair.truth.judged.mean() > 0.7


def test_sources_of_pairs(folder, tmp_path):
    assert layout_of(tmp_path) == "tartanair"
    assert len(judged_pairs(tmp_path, 5, points=40)) == 2
    followed = list(video_pairs(folder, 96, 40))
    assert len(followed) == 2
    assert followed[0].truth.judged.any()
    plain = list(video_pairs(folder / "image_left", 96, 40))
    assert len(plain) == 2
    assert not plain[0].truth.judged.any()
    with pytest.raises(ValueError, match="expected a folder"):
        layout_of(tmp_path / "none")


def test_scenes_that_cannot_be():
    with pytest.raises(ValueError, match="frames must be at least 2, got 1"):
        render.sequence(render.Category(), [texture()], 1, 0)
    with pytest.raises(ValueError, match="at least one texture"):
        render.sequence(render.Category(), [], 2, 0)


def test_categories_look_different():
    pictures = [texture(96, seed) for seed in range(3)]
    shown = {
        name: render.sequence(category, pictures, 2, 0, width=64)[0]
        for name, category in render.CATEGORIES.items()
    }
    assert shown["dark"][0].mean() < 0.3 * shown["indoor"][0].mean()
    assert (shown["outdoor"][1] == render.FAR).any()
    assert not (shown["indoor"][1] == render.FAR).any()
