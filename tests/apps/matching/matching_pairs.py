"""Small features, pairs and images that the tests of feature matching share."""

import cv2
import numpy as np

from evergraph.apps.matching.features import ImageFeatures
from evergraph.apps.matching.truth import homography_pair


def random_features(points=40, width=8, seed=0):
    """Points of any width, scattered over 200 × 150 pixels."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(points, width))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    return ImageFeatures(
        (rng.uniform(size=(points, 2)) * [200, 150]).astype(np.float32),
        table.astype(np.float32),
        rng.uniform(2, 6, points).astype(np.float32),
        rng.uniform(-3, 3, points).astype(np.float32),
    )


def moved_features(first, noise=0.3, seed=1):
    """The same points turned by 0.3, scaled by 1.2, shifted, with noisy descriptors; and how."""
    rng = np.random.default_rng(seed)
    c, s = 1.2 * np.cos(0.3), 1.2 * np.sin(0.3)
    homography = np.array([[c, -s, 20.0], [s, c, -5.0], [0, 0, 1]])
    points = np.c_[first.keypoints, np.ones(len(first))] @ homography.T
    width = first.descriptors.shape[1]
    table = first.descriptors + noise * rng.normal(size=first.descriptors.shape) / width**0.5
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    second = ImageFeatures(
        points[:, :2].astype(np.float32),
        table.astype(np.float32),
        first.scales * np.float32(1.2),
        first.orientations + np.float32(0.3),
    )
    return second, homography


def easy_pair(points=40, seed=0, noise=0.3):
    """A pair whose true matches are the identity."""
    first = random_features(points, seed=seed)
    second, homography = moved_features(first, noise, seed + 100)
    return homography_pair(first, second, homography, (200, 150), "easy")


def texture(size=96, seed=0):
    """A gray picture full of blobs."""
    noise = np.random.default_rng(seed).uniform(0, 1, (size, size)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 1.5)
    smooth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    return (255 * smooth).astype(np.uint8)
