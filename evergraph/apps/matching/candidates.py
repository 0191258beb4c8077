"""Candidate matches as the nodes of a graph: "feature matching becomes edge prediction".

Every keypoint of the first image proposes the keypoints of the second with the most similar
descriptors, and those closest to the position that an affine map fitted to confident matches
nearby predicts. Candidates whose keypoints lie close together are neighbors; the weight of their
edge says how well the similarity transform of each (from scales and orientations) predicts the
displacement of the other. Positions are complex numbers, so that a similarity transform is one
product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.features import ImageFeatures

Array = NDArray[Any]
NAMES = (
    "similarity", "row ratio", "column ratio", "rank", "mutual", "log scale ratio",
    "sine of turn", "cosine of turn", "x0", "y0", "x1", "y1", "dx", "dy", "support", "vote",
    "close support", "close vote", "consensus", "off the guide", "guide",
)  # fmt: skip
NUM_FEATURES = len(NAMES)
SHARPEN = 6  # exponent of the edge weights in affine fits, which tolerate smaller deviations
REACH = 40.0  # pixels, the unit of length in affine fits
RIDGE = 0.1  # regularization of affine fits


@dataclass(frozen=True)
class Proposal:
    """How candidates are proposed and connected."""

    candidates: int = 2  # per keypoint, by descriptor
    guided: int = 1  # per keypoint, by predicted position
    nearby: int = 24  # nearest keypoints whose candidates may become neighbors
    neighbors: int = 24  # per candidate, those with the largest weights
    slack: float = 0.25  # prediction error that is tolerated, as a share of the displacement
    tolerance: float = 3.0  # prediction error that is tolerated in addition, in pixels

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, least in (("candidates", 1), ("guided", 0), ("nearby", 1), ("neighbors", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")


@dataclass(frozen=True)
class CandidateGraph:
    """E candidate matches with K neighbors each.

    Attributes:
        first, second: `(E,)` indices of the keypoints that a candidate connects.
        features: `(E, 21)` float32, see `NAMES`.
        index: `(E, K)` neighbors of each candidate, padded with the candidate itself.
        weight: `(E, K)` float32 in 0..1, padded with 0.
    """

    first: Array
    second: Array
    features: Array
    index: Array
    weight: Array

    def __len__(self) -> int:
        return len(self.first)


def propose(
    first: ImageFeatures,
    second: ImageFeatures,
    how: Proposal = Proposal(),  # noqa: B008
) -> CandidateGraph:
    """Build the candidate graph of two images."""
    if len(first) and len(second) and first.descriptors.shape[1] != second.descriptors.shape[1]:
        raise ValueError(
            "descriptors of both images must have the same width, got "
            f"{first.descriptors.shape[1]} and {second.descriptors.shape[1]}"
        )
    if not len(first) or len(second) < 2:
        none, index = np.zeros(0, np.int64), np.zeros((0, how.neighbors), np.int64)
        table = np.zeros((0, NUM_FEATURES), np.float32)
        return CandidateGraph(none, none, table, index, index.astype(np.float32))
    look = _Appearance(first, second, how.candidates)
    around = _nearest(first.keypoints, how.nearby)
    predicted, linear, support = _guide(first, second, look, around, how)
    chosen = look.ranked[:, : how.candidates]
    count = chosen.shape[1]
    chosen = np.concatenate([chosen, _by_position(second, predicted, chosen, how.guided)], 1)
    i, j = np.repeat(np.arange(len(first)), chosen.shape[1]), chosen.reshape(-1)
    motion = _motion(first, second, i, j)
    guided = np.tile(np.arange(chosen.shape[1]) >= count, len(first)) & (support[i] > 0)
    motion = replace(motion, linear=np.where(guided, linear[i], motion.linear))
    index, weight, total = _neighbors(around, i, j, motion, how)
    cues = look.cues(i, j)
    confidence = cues["confidence"][index]
    close = weight**SHARPEN
    off = np.abs(motion.fit_affine(index, close * confidence)[0])
    columns = [
        *(cues[name] for name in ("similarity", "row", "column", "rank", "mutual")),
        motion.log_scale, np.sin(motion.rotation), np.cos(motion.rotation),
        *_positions(first, second, i, j).T, np.log1p(total),
        *(np.log1p(w.sum(1)) for w in (weight * confidence, close, close * confidence)),
        np.log1p(off / how.tolerance),
        np.log1p(np.abs(motion.target - predicted[i]) / how.tolerance), np.log1p(support[i]),
    ]  # fmt: skip
    return CandidateGraph(i, j, np.stack(columns, 1).astype(np.float32), index, weight)


class _Appearance:
    """Similarity of descriptors, and how far a match stands out from its alternatives."""

    def __init__(self, first: ImageFeatures, second: ImageFeatures, candidates: int) -> None:
        self.similarity = first.descriptors @ second.descriptors.T
        self.ranked, self.top = _largest(self.similarity, candidates + 1)
        self.best = self.similarity[0].copy()  # the two largest of each column
        self.next_best, lower = np.full_like(self.best, -1), np.empty_like(self.best)
        for row in self.similarity[1:]:
            np.minimum(self.best, row, out=lower)
            np.maximum(self.next_best, lower, out=self.next_best)
            np.maximum(self.best, row, out=self.best)

    def cues(self, i: Array, j: Array) -> dict[str, Array]:
        """Features of candidates from descriptors only, and a confidence in 0..1."""
        top, s = self.top, self.similarity[i, j]
        rank = (s[:, None] < top[i]).sum(1)
        leads = s >= self.best[j]
        rivals = (
            np.where(rank == 0, top[i, 1], top[i, 0]),
            np.where(leads, self.next_best[j], self.best[j]),
        )
        row, column = (np.clip(_distance(s) / _distance(other) - 1, -1, 2) for other in rivals)
        confidence = 1 / (1 + np.exp(8 * (np.maximum(row, column) + 0.1)))
        return {
            "similarity": s, "row": row, "column": column, "rank": rank / 2,
            "mutual": ((rank == 0) & leads).astype(np.float32),
            "confidence": confidence.astype(np.float32),
        }  # fmt: skip


@dataclass(frozen=True)
class _Motion:
    """The similarity transforms of E matches, `(E,)` each.

    Positions are complex, and so is `linear`, which is scale and rotation as one factor.
    """

    source: Array
    target: Array
    log_scale: Array
    rotation: Array
    linear: Array

    def agreement(self, others: Array, how: Proposal) -> Array:
        """How well matches and `others` `(E, K)` predict each other, 0..1."""
        moved0 = self.source[others] - self.source[:, None]
        moved1 = self.target[others] - self.target[:, None]
        length = np.abs(moved1)
        strain = np.zeros(moved0.shape, np.float32)
        for linear in (self.linear[:, None], self.linear[others]):
            predicted = linear * moved0
            allowed = how.slack * (np.abs(predicted) + length) + how.tolerance
            strain += np.square(np.abs(predicted - moved1) / allowed)
        return np.exp(-strain)

    def fit_affine(self, index: Array, weight: Array) -> Array:
        """Correct each transform to an affine map by weighted least squares on neighbors.

        Returns `(3, E)`, complex: an offset, and what is added per `REACH` pixels along x and y.
        """
        moved = self.source[index] - self.source[:, None]
        residual = self.target[index] - self.target[:, None] - self.linear[:, None] * moved
        x, y = moved.real / REACH, moved.imag / REACH
        columns = np.stack([np.ones_like(x), x, y], -1)  # (E, K, 3)
        weighted = columns * weight[..., None]
        square = np.einsum("eka,ekb->eab", weighted, columns) + RIDGE * np.eye(3, dtype=np.float32)
        right = np.einsum("eka,ek->ea", weighted, residual)
        return np.asarray(np.linalg.solve(square, right[..., None])[..., 0].T)


def _motion(first: ImageFeatures, second: ImageFeatures, i: Array, j: Array) -> _Motion:
    source, target = _complex(first.keypoints)[i], _complex(second.keypoints)[j]
    log_scale = np.log(second.scales[j] / first.scales[i])
    rotation = second.orientations[j] - first.orientations[i]
    linear = np.exp(log_scale + 1j * rotation).astype(np.complex64)
    return _Motion(source, target, log_scale, rotation, linear)


def _affine(linear: Array, added: Array, moved: Array) -> Array:
    """Apply a transform with the correction of `_Motion.fit_affine` to displacements."""
    offset, x, y = added
    return np.asarray(linear * moved + offset + x * (moved.real / REACH) + y * (moved.imag / REACH))


def _guide(
    first: ImageFeatures, second: ImageFeatures, look: _Appearance, around: Array, how: Proposal
) -> tuple[Array, Array, Array]:
    """Predict the position of each keypoint from the best supported affine map nearby.

    Affine maps are fitted to the nearest neighbors by descriptor, twice: the second time, those
    far from the first fit count less. Returns `(N0,)` each: the position in the second image and
    scale with rotation there, both complex, and the sum of the weights behind the prediction.
    """
    rows, partner = np.arange(len(first)), look.ranked[:, 0]
    confidence = look.cues(rows, partner)["confidence"]
    motion = _motion(first, second, rows, partner)
    source, target, linear = motion.source, motion.target, motion.linear
    index, weight, _ = _neighbors(around, rows, partner, motion, how)
    weight = weight**SHARPEN * confidence[index]
    support = weight.sum(1) * confidence
    added = motion.fit_affine(index, weight)
    fitted = _affine(linear[:, None], added[..., None], source[index] - source[:, None])
    residual = np.abs(target[index] - target[:, None] - fitted)
    added = motion.fit_affine(index, weight / (1 + np.square(residual / how.tolerance)))
    near = np.concatenate([rows[:, None], index], 1)
    distance = np.abs(source[near] - source[:, None])
    seed = near[rows, (support[near] / (1 + distance / REACH)).argmax(1)]
    there = target[seed] + _affine(linear[seed], added[:, seed], source - source[seed])
    local = linear[seed] + (added[1, seed] - 1j * added[2, seed]) / (2 * REACH)
    return there, local.astype(np.complex64), support[seed]


def _by_position(second: ImageFeatures, there: Array, taken: Array, count: int) -> Array:
    """The keypoints closest to predicted positions that are not taken yet, `(N0, count)`."""
    count = min(count, len(second) - taken.shape[1])
    if count < 1:
        return np.zeros((len(taken), 0), np.int64)
    reach = count + taken.shape[1]
    spots = np.stack([there.real, there.imag], 1)
    found = np.asarray(cKDTree(second.keypoints).query(spots, reach)[1]).reshape(-1, reach)
    known = (found[:, :, None] == taken[:, None]).any(2)
    order = np.argsort(known, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(found, order, 1)


def _neighbors(
    around: Array, i: Array, j: Array, motion: _Motion, how: Proposal
) -> tuple[Array, Array, Array]:
    """Neighbors of all candidates, their weights, and the sum over all candidates nearby."""
    per = len(i) // len(around)
    others = (around[:, :, None] * per + np.arange(per)).reshape(len(around), -1)[i]
    weight = motion.agreement(others, how)
    weight *= (j[others] != j[:, None]) & (i[others] != i[:, None])
    total = weight.sum(1)
    missing = how.neighbors - weight.shape[1]
    if missing > 0:
        weight = np.pad(weight, ((0, 0), (0, missing)))
        own = np.broadcast_to(np.arange(len(i))[:, None], (len(i), missing))
        others = np.concatenate([others, own], 1)
    chosen = np.sort(np.argpartition(-weight, how.neighbors - 1, axis=1)[:, : how.neighbors], 1)
    index, kept = (np.take_along_axis(part, chosen, 1) for part in (others, weight))
    return index, kept, total


def _positions(first: ImageFeatures, second: ImageFeatures, i: Array, j: Array) -> Array:
    """Centered positions and displacements `(E, 6)`, in units of the first image's extent."""
    center0, center1 = first.keypoints.mean(0), second.keypoints.mean(0)
    extent = max(float(np.abs(first.keypoints - center0).max()), 1.0)
    p0 = (first.keypoints[i] - center0) / extent
    p1 = (second.keypoints[j] - center1) / extent
    return np.concatenate([p0, p1, p1 - p0], 1)


def _nearest(points: Array, count: int) -> Array:
    """The nearest other points of each, `(N, count)` or fewer."""
    count = min(count, len(points) - 1)
    found = cKDTree(points).query(points, count + 1)[1]
    return np.asarray(found).reshape(len(points), -1)[:, 1:]


def _largest(table: Array, count: int) -> tuple[Array, Array]:
    """Columns and values of the few largest entries of each row, in descending order.

    One maximum after the other, each hidden from the next: quicker than a partial sort, and a copy
    of the table would cost more than to restore it.
    """
    rows = np.arange(len(table))
    order = np.empty((min(count, table.shape[1]), len(table)), np.int64)
    values = np.empty(order.shape, table.dtype)
    for column, value in zip(order, values, strict=True):
        table.argmax(1, out=column)
        value[:] = table[rows, column]
        table[rows, column] = -np.inf
    table[rows, order] = values
    return order.T, values.T


def _complex(points: Array) -> Array:
    return np.asarray(points[:, 0] + 1j * points[:, 1], np.complex64)


def _distance(similarity: Array) -> Array:
    return np.asarray(np.sqrt(np.maximum(2 - 2 * similarity, 1e-4)))
