"""Points without scale and orientation, and the decision whether two images show one scene."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from matching_pairs import easy_pair, random_features, texture

from evergraph.apps.matching.evaluate import evaluate, ratio_test
from evergraph.apps.matching.features import ImageFeatures, detect, features
from evergraph.apps.matching.frames import at_least_mutual, mutual, unknown, with_frames
from evergraph.apps.matching.homography import Views, pairs
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.truth import homography_pair, sorted_matches, unknown_pair
from evergraph.apps.matching.verify import verify


def bare(side):
    return features(side.keypoints, side.descriptors)


def without_frames(pair):
    return replace(pair, first=bare(pair.first), second=bare(pair.second))


@pytest.fixture(scope="module")
def tool():
    return Matcher.pretrained()


def turned(angle, scale, points=120, noise=0.3):
    """A pair turned and scaled about the origin, whose points have no frames."""
    first = random_features(points, seed=4)
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    homography = np.array([[c, -s, 300.0], [s, c, 200.0], [0, 0, 1]])
    there = np.c_[first.keypoints, np.ones(points)] @ homography.T
    table = first.descriptors + noise * np.random.default_rng(1).normal(size=(points, 8)) / 8**0.5
    second = features(there[:, :2], table)
    return homography_pair(bare(first), second, homography, (200, 150))


@pytest.mark.parametrize(("angle", "scale"), [(0.0, 1.0), (2.0, 1.0), (-1.2, 1.8), (3.1, 0.6)])
def test_scale_and_rotation_are_found(angle, scale):
    pair = turned(angle, scale)
    assert unknown(pair.first)
    first, second = with_frames(pair.first, pair.second)
    assert first is pair.first
    assert np.allclose(second.scales, scale, rtol=0.05)
    off = np.angle(np.exp(1j * (second.orientations - angle)))
    assert np.abs(off).max() < 0.05


def test_turned_points_without_frames_are_matched(tool):
    pair = turned(2.5, 1.4)
    found = evaluate([pair], tool.match_pair)
    plain = evaluate([pair], lambda one: ratio_test(one, ratio=1.0))
    assert found["f1"] > plain["f1"]
    assert found["f1"] > 0.8


def test_better_than_mutual_neighbors_on_views_of_a_picture(tool):
    made = [without_frames(p) for p in pairs([texture(300, 5)], 8, 0, Views(points=128))]
    found = evaluate(made, tool.match_pair)
    plain = evaluate(made, lambda one: ratio_test(one, ratio=1.0))
    assert found["f1"] > plain["f1"]


def test_mutual_neighbors_are_the_fallback():
    pair = turned(0.0, 1.0, noise=0.05)
    plain = mutual(pair.first, pair.second)
    nothing = plain.strongest(0)
    assert at_least_mutual(pair.first, pair.second, nothing).first.tolist() == plain.first.tolist()
    assert at_least_mutual(pair.first, pair.second, plain) is plain
    wrong = sorted_matches(plain.first, np.roll(plain.second, 1), plain.confidence)
    kept = at_least_mutual(pair.first, pair.second, wrong)
    assert kept.second.tolist() == plain.second.tolist()
    other = bare(random_features(120, seed=9))
    assert at_least_mutual(pair.first, other, nothing) is nothing


def test_too_few_points_stay_as_they_are():
    first, second = bare(random_features(5)), bare(random_features(5, seed=1))
    assert with_frames(first, second) == (first, second)
    one_place = features(np.zeros((20, 2)), np.eye(20))
    assert with_frames(one_place, one_place) == (one_place, one_place)


def test_the_order_of_points_without_frames_does_not_matter(tool):
    pair = turned(1.0, 1.2)
    found = tool.match_pair(pair)
    order = np.random.default_rng(0).permutation(len(pair.first))
    mixed = replace(pair, first=pair.first.take(order))
    again = tool.match_pair(mixed)
    assert sorted(zip(order[again.first].tolist(), again.second.tolist(), strict=True)) == sorted(
        zip(found.first.tolist(), found.second.tolist(), strict=True)
    )


@pytest.mark.parametrize("frames", [True, False])
def test_unrelated_pictures_have_no_matches(tool, frames):
    sides: list[ImageFeatures] = [detect(texture(240, seed), points=200) for seed in range(8)]
    sides = sides if frames else [bare(side) for side in sides]
    counts = [
        len(tool.match_pair(unknown_pair(a, b, (240, 240))))
        for i, a in enumerate(sides)
        for b in sides[i + 1 :]
    ]
    assert np.median(counts) == 0
    assert len(tool.match_pair(unknown_pair(sides[0], sides[0], (240, 240)))) > 100
    always = replace(tool, certain=0)
    assert len(always.match_pair(unknown_pair(sides[0], sides[1], (240, 240)))) > 0


def test_certain_must_not_be_negative():
    with pytest.raises(ValueError, match="certain must be 0 or more matches, got -1"):
        Matcher(certain=-1)


# -- verification -------------------------------------------------------------------------------


@pytest.fixture
def scene():
    """Points in space seen by two cameras; of 80 matches the first 25 are wrong."""
    rng = np.random.default_rng(0)
    camera = np.array([[300.0, 0, 160], [0, 300, 120], [0, 0, 1]])
    space = rng.uniform(-2, 2, (80, 3)) + np.array([0, 0, 6])
    rotation = cv2.Rodrigues(np.array([0.05, 0.1, -0.03]))[0]
    shift = np.array([0.5, 0.1, 0.05])
    ends = []
    for points in (space, space @ rotation.T + shift):
        seen = points @ camera.T
        ends.append(seen[:, :2] / seen[:, 2:])
    ends[1][:25] += rng.uniform(20, 80, (25, 2))
    return (*ends, camera, rotation, shift / np.linalg.norm(shift))


@pytest.mark.parametrize("model", ["fundamental", "essential"])
def test_wrong_matches_are_no_inliers(model, scene):
    points0, points1, camera, rotation, shift = scene
    found = verify(points0, points1, model, (camera, camera))
    assert found.inliers[25:].mean() > 0.9
    assert found.inliers[:25].mean() < 0.2
    if model == "essential":
        assert np.abs(found.rotation - rotation).max() < 0.01
        assert np.abs(found.translation - shift).max() < 0.05


@pytest.mark.parametrize("model", ["homography", "fundamental", "essential"])
def test_noise_and_too_few_points_are_no_error(model):
    rng = np.random.default_rng(0)
    camera = np.eye(3) * [200, 200, 1]
    for count in (0, 3, 12, 40):
        for _ in range(5):
            ends = rng.uniform(0, 100, (2, count, 2))
            found = verify(*ends, model, (camera, camera))
            assert found.inliers.shape == (count,)
            assert (found.model is None) == (not found.inliers.any())
    with pytest.raises(ValueError, match="needs the intrinsics"):
        verify(*rng.uniform(0, 9, (2, 9, 2)), "essential")


def test_easy_pairs_agree_with_a_homography(tool):
    pair = easy_pair(80)
    found = tool.match_pair(pair)
    assert verify(*pair.points(found), "homography").inliers.mean() > 0.8
