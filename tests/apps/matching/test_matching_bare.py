"""Points without scale and orientation, and the decision whether two images show one scene."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from matching_pairs import easy_pair, random_features, texture

from evergraph.apps.matching.arrangements import candidate_network
from evergraph.apps.matching.baselines import ratio_test
from evergraph.apps.matching.evaluate import evaluate
from evergraph.apps.matching.features import ImageFeatures, detect, features
from evergraph.apps.matching.frames import at_least_mutual, missing, mutual, with_frames, without
from evergraph.apps.matching.homography import Views, pairs
from evergraph.apps.matching.matcher import Matcher
from evergraph.apps.matching.train import bare_pairs
from evergraph.apps.matching.truth import homography_pair, sorted_matches, unknown_pair, warp
from evergraph.apps.matching.verify import refined_homography, verify


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
    assert missing(pair.first, pair.second) == (True, True)
    first, second = with_frames(pair.first, pair.second)
    assert first.scales.tolist() == pair.first.scales.tolist()
    assert np.allclose(second.scales, scale, rtol=0.05)
    off = np.angle(np.exp(1j * (second.orientations - angle)))
    assert np.abs(off).max() < 0.05


@pytest.mark.parametrize("lost", [(True, False), (False, True)])
def test_what_is_known_is_kept(lost):
    pair = easy_pair(60)  # turned by 0.3, 1.2 times as large
    sides = without(pair.first, *lost), without(pair.second, *lost)
    assert missing(*sides) == lost
    assert missing(sides[0], pair.second) == lost  # one image is enough
    _, second = with_frames(sides[0], pair.second)
    known, found = ("orientations", "scales") if lost[0] else ("scales", "orientations")
    assert getattr(second, known).tolist() == getattr(pair.second, known).tolist()
    assert np.allclose(getattr(second, found), 1.2 if lost[0] else 0.3, atol=0.1)
    assert with_frames(pair.first, pair.second) == (pair.first, pair.second)


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


def test_points_without_frames_have_a_network_of_their_own(tool):
    other = replace(tool, bare=None)
    assert any(
        bool((a != b).any())
        for a, b in zip(tool.bare.parameters(), tool.network.parameters(), strict=True)
    )
    pair = easy_pair(60, noise=0.9)
    same = tool.match_pair(pair), other.match_pair(pair)
    assert same[0].confidence.tolist() == same[1].confidence.tolist()
    pair = without_frames(pair)
    own = tool.match_pair(pair), other.match_pair(pair)
    assert own[0].confidence.tolist() != own[1].confidence.tolist()
    before = [part.clone() for part in tool.network.parameters()]
    taught = replace(tool, bare=candidate_network(), learner=None)
    assert taught.learn(pair) > 0
    assert taught.learner.model is taught.bare
    assert all(bool((a == b).all()) for a, b in zip(before, tool.network.parameters(), strict=True))


def test_corners_have_neither_scale_nor_orientation(tool):
    picture = texture(200, 3)
    moved = np.roll(picture, (5, 9), (0, 1))
    first, second = (detect(image, "corners", 150) for image in (picture, moved))
    assert missing(first, second) == (True, True)
    assert len(first) > 100
    shift = np.array([[1.0, 0, 9], [0, 1, 5], [0, 0, 1]])
    pair = homography_pair(first, second, shift, (200, 200))
    assert evaluate([pair], tool.match_pair)["f1"] > 0.9


def test_half_of_the_pairs_without_frames_are_corners():
    made = bare_pairs([texture(300, 5)], 12, 0, Views(points=96, matches=4))
    assert len(made) == 12
    lost = [missing(pair.first, pair.second) for pair in made]
    assert all(any(one) for one in lost)
    assert set(lost[:6]) > {(True, True)}  # of SIFT, something may be known
    assert set(lost[6:]) == {(True, True)}


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


def test_a_matcher_without_frames_falls_back_to_mutual_neighbors(tool):
    unsure = replace(tool, certain=10**6)  # whatever the network says, it does not suffice
    pair = turned(0.0, 1.0, noise=0.05)
    plain = mutual(pair.first, pair.second)
    assert len(unsure.match_pair(pair)) == len(plain) > 100
    assert len(unsure.match_pair(easy_pair(120, noise=0.05))) == 0  # with frames there is none


def test_too_few_points_stay_as_they_are():
    first, second = bare(random_features(5)), bare(random_features(5, seed=1))
    one_place = features(np.zeros((20, 2)), np.eye(20))
    for sides in ((first, second), (one_place, one_place)):
        for made, side in zip(with_frames(*sides), sides, strict=True):
            assert made.scales.tolist() == side.scales.tolist()
            assert made.orientations.tolist() == side.orientations.tolist()


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
    strangers = [
        unknown_pair(a, b, (240, 240)) for i, a in enumerate(sides) for b in sides[i + 1 :]
    ]
    assert np.median([len(tool.match_pair(pair)) for pair in strangers]) == 0
    assert len(tool.match_pair(unknown_pair(sides[0], sides[0], (240, 240)))) > 100
    always = replace(tool, certain=0)
    assert sum(len(always.match_pair(pair)) for pair in strangers) > 0


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


def test_a_homography_is_refined_by_all_matches():
    rng = np.random.default_rng(0)
    true = np.array([[1.1, 0.1, 5], [-0.05, 0.95, 9], [2e-4, 1e-4, 1]])
    points = rng.uniform(0, 300, (200, 2))
    there = warp(points, true) + rng.normal(0, 0.5, (200, 2))
    there[:60] += rng.uniform(10, 80, (60, 2))
    rough = true @ np.array([[1, 0, 1.5], [0, 1, -1.5], [0, 0, 1]])
    off = [
        np.abs(warp(points, found) - warp(points, true)).mean()
        for found in (rough, refined_homography(rough, points, there))
    ]
    assert off[1] < 0.1 < 1 < off[0]
    exact = refined_homography(true, points[60:], warp(points[60:], true))
    assert np.abs(exact - true).max() < 1e-6
    singular = np.zeros((3, 3))
    assert refined_homography(singular, points, there) is singular
    # the sign and the size of a homography are not known
    other = refined_homography(-7 * rough, points, there)
    assert np.abs(warp(points, other) - warp(points, true)).mean() == pytest.approx(
        off[1], rel=0.01
    )


def test_easy_pairs_agree_with_a_homography(tool):
    pair = easy_pair(80)
    found = tool.match_pair(pair)
    assert verify(*pair.points(found), "homography").inliers.mean() > 0.8
