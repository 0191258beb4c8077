"""Candidate matches as the items of a graph: "feature matching becomes edge prediction".

Every point of the first image proposes its few most similar points of the second, and one that
lies where the most trusted match nearby, with those that agree with it, would put it. Candidates
whose points lie close together are neighbors, and the weight of their edge tells how well the
similarity transform of one (from scales and orientations) predicts the other's displacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from evergraph.apps.matching.agreement import (
    REACH,
    affine,
    agreement,
    change,
    correction,
    nearest,
    plane,
)
from evergraph.apps.matching.features import ImageFeatures

Array = NDArray[Any]
NAMES = (
    "similarity", "row ratio", "column ratio", "rank", "mutual", "log scale ratio",
    "sine of turn", "cosine of turn", "x0", "y0", "x1", "y1", "dx", "dy", "support", "vote",
    "close support", "close vote", "consensus", "off the guide", "guide",
)  # fmt: skip
NUM_FEATURES = len(NAMES)
SHARPEN = 6  # the power that turns a weight into that of an agreement six times as close


@dataclass(frozen=True)
class Proposal:
    """How candidates are proposed and connected.

    Attributes:
        candidates: of each point, by descriptor.
        guided: of each point, by place.
        nearby: points whose candidates may become neighbors.
        neighbors: of each candidate, those with the largest weights.
        slack: share of a displacement that may be mispredicted.
        tolerance: pixels that may be mispredicted.
    """

    candidates: int = 2
    guided: int = 1
    nearby: int = 24
    neighbors: int = 24
    slack: float = 0.25
    tolerance: float = 3.0

    def __post_init__(self) -> None:
        """Reject what proposes nothing."""
        for name in ("candidates", "nearby", "neighbors"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.guided < 0:
            raise ValueError(f"guided must be at least 0, got {self.guided}")


@dataclass(frozen=True)
class CandidateGraph:
    """E candidate matches and their neighbors.

    Attributes:
        first, second: `(E,)` the points that a candidate connects.
        features: `(E, 21)` float32, see `NAMES`.
        index: `(E, K)` neighbors of each candidate; itself where there are fewer.
        weight: `(E, K)` float32 in 0..1; 0 where there are fewer.
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
    """The candidate graph of two images."""
    if len(first) and len(second) and first.descriptors.shape[1] != second.descriptors.shape[1]:
        raise ValueError(
            "descriptors of both images must have the same width, got "
            f"{first.descriptors.shape[1]} and {second.descriptors.shape[1]}"
        )
    if not len(first) or len(second) < 2:
        return _no_candidates(how.neighbors)
    similarity = first.descriptors @ second.descriptors.T
    count = min(how.candidates, len(second))
    chosen, top = _largest(similarity, min(count + 1, len(second)))
    seeds = np.arange(len(first))
    look = _Look(similarity, top)
    around = nearest(first.keypoints, how.nearby)
    trust = look.at(seeds, chosen[:, 0])["trust"]
    guide = _guide(first, second, chosen[:, 0], trust, around, how)
    extra = _by_place(second, guide.place, chosen[:, :count], how.guided)
    chosen = np.concatenate([chosen[:, :count], extra], 1)
    i, j = np.repeat(seeds, chosen.shape[1]), chosen.reshape(-1)
    looks = look.at(i, j)
    ratio, turn = change(first, second, i, j)
    turned = np.exp(ratio + 1j * turn).astype(np.complex64)
    by_place = np.tile(np.arange(chosen.shape[1]) >= count, len(first))
    turned = np.where(by_place & (guide.trust[i] > 0), guide.turned[i], turned)
    place, target = plane(first.keypoints)[i], plane(second.keypoints)[j]
    index, weight, total = _neighbors(around, i, j, place, target, turned, how)
    trust = looks["trust"][index]
    close = weight**SHARPEN
    off = np.abs(correction(place, target, turned, index, close * trust)[0])
    where = _places(first.keypoints[i], second.keypoints[j], first, second)
    columns = [
        *(looks[name] for name in ("similarity", "row", "column", "rank", "mutual")),
        ratio, np.sin(turn), np.cos(turn), *where.T, np.log1p(total),
        *(np.log1p(part.sum(1)) for part in (weight * trust, close, close * trust)),
        np.log1p(off / how.tolerance),
        np.log1p(np.abs(target - guide.place[i]) / how.tolerance), np.log1p(guide.trust[i]),
    ]  # fmt: skip
    table = np.stack(columns, 1).astype(np.float32)
    return CandidateGraph(i, j, table, index, weight)


class _Look:
    """How much points look alike, and how far they stand out from the alternatives."""

    def __init__(self, similarity: Array, top: Array) -> None:
        self.similarity, self.top = similarity, top
        self.best, self.next_best = _two_largest_of_columns(similarity)

    def at(self, i: Array, j: Array) -> dict[str, Array]:
        """What descriptors tell of candidates."""
        top, s = self.top, self.similarity[i, j]
        rank = (s[:, None] < top[i]).sum(1)
        leads = s >= self.best[j]
        rival_row = np.where(rank == 0, top[i, 1], top[i, 0])
        rival_column = np.where(leads, self.next_best[j], self.best[j])
        row, column = (
            np.clip(_distance(s) / _distance(rival) - 1, -1, 2)
            for rival in (rival_row, rival_column)
        )
        trust = 1 / (1 + np.exp(8 * (np.maximum(row, column) + 0.1)))
        return {
            "similarity": s, "row": row, "column": column, "rank": rank / 2,
            "mutual": ((rank == 0) & leads).astype(np.float32), "trust": trust.astype(np.float32),
        }  # fmt: skip


@dataclass(frozen=True)
class _Guide:
    """Where points should be by what is around them, `(N0,)` each.

    Attributes:
        place: in the second image, as complex numbers.
        turned: scale and rotation there.
        trust: sum of the weights of those who say so.
    """

    place: Array
    turned: Array
    trust: Array


def _guide(
    first: ImageFeatures,
    second: ImageFeatures,
    partner: Array,
    trust: Array,
    around: Array,
    how: Proposal,
) -> _Guide:
    """Predict every point by the nearest descriptors' best supported affine map nearby."""
    rows = np.arange(len(first))
    ratio, turn = change(first, second, rows, partner)
    turned = np.exp(ratio + 1j * turn).astype(np.complex64)
    place, target = plane(first.keypoints), plane(second.keypoints)[partner]
    index, weight, _ = _neighbors(around, rows, partner, place, target, turned, how)
    weight = weight**SHARPEN * trust[index]
    support = weight.sum(1) * trust
    added = correction(place, target, turned, index, weight)
    fitted = affine(turned[:, None], added[..., None], place[index] - place[:, None])
    missed = np.abs(target[index] - target[:, None] - fitted)
    weight = weight / (1 + np.square(missed / how.tolerance))
    added = correction(place, target, turned, index, weight)  # those that are off count less
    near = np.concatenate([rows[:, None], index], 1)
    far = np.abs(place[near] - place[:, None])
    best = (support[near] / (1 + far / REACH)).argmax(1)
    seed = near[rows, best]
    there = target[seed] + affine(turned[seed], added[:, seed], place - place[seed])
    local = turned[seed] + (added[1, seed] - 1j * added[2, seed]) / (2 * REACH)
    return _Guide(there, local.astype(np.complex64), support[seed])


def _by_place(second: ImageFeatures, there: Array, taken: Array, count: int) -> Array:
    """The points closest to where each should be that are not taken yet, `(N0, count)`."""
    count = min(count, len(second) - taken.shape[1])
    if count < 1:
        return np.zeros((len(taken), 0), np.int64)
    reach = count + taken.shape[1]
    spots = np.stack([there.real, there.imag], 1)
    found = np.asarray(cKDTree(second.keypoints).query(spots, reach)[1]).reshape(-1, reach)
    known = (found[:, :, None] == taken[:, None]).any(2)
    order = np.argsort(known, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(found, order, 1)


def _largest(table: Array, count: int) -> tuple[Array, Array]:
    """Columns and values of the largest entries of each row, in order."""
    count = min(count, table.shape[1])
    order = np.argpartition(-table, count - 1, axis=1)[:, :count]
    values = np.take_along_axis(table, order, 1)
    inner = np.lexsort((order, -values), axis=1)
    return np.take_along_axis(order, inner, 1), np.take_along_axis(values, inner, 1)


def _two_largest_of_columns(table: Array) -> tuple[Array, Array]:
    if len(table) == 1:
        return table[0], np.full_like(table[0], -1)
    two = np.partition(table, len(table) - 2, axis=0)[-2:]
    return two[1], two[0]


def _distance(similarity: Array) -> Array:
    return np.asarray(np.sqrt(np.maximum(2 - 2 * similarity, 1e-4)))


def _neighbors(
    around: Array,
    i: Array,
    j: Array,
    place: Array,
    target: Array,
    turned: Array,
    how: Proposal,
) -> tuple[Array, Array, Array]:
    """Neighbors of all candidates, their weights, and the sum of all weights in reach."""
    per = len(i) // len(around)
    weight = np.zeros((len(i), 0), np.float32)
    others = np.zeros((len(i), 0), np.int64)
    if around.shape[1]:
        others = (around[:, :, None] * per + np.arange(per)).reshape(len(around), -1)[i]
        weight = agreement(place, target, turned, others, how.slack, how.tolerance)
        weight *= (j[others] != j[:, None]) & (i[others] != i[:, None])
    total = weight.sum(1)
    if weight.shape[1] < how.neighbors:  # few points: fill up with a neighbor that weighs nothing
        missing = how.neighbors - weight.shape[1]
        weight = np.pad(weight, ((0, 0), (0, missing)))
        own = np.broadcast_to(np.arange(len(i))[:, None], (len(i), missing))
        others = np.concatenate([others, own], 1)
    chosen = np.sort(np.argpartition(-weight, how.neighbors - 1, axis=1)[:, : how.neighbors], 1)
    index, kept = (np.take_along_axis(part, chosen, 1) for part in (others, weight))
    return index, kept, total


def _places(here: Array, there: Array, first: ImageFeatures, second: ImageFeatures) -> Array:
    """Positions and displacement in units of the first image's spread, from the middles."""
    middle0, middle1 = first.keypoints.mean(0), second.keypoints.mean(0)
    spread = max(float(np.abs(first.keypoints - middle0).max()), 1.0)
    p0, p1 = (here - middle0) / spread, (there - middle1) / spread
    return np.concatenate([p0, p1, p1 - p0], 1)


def _no_candidates(neighbors: int) -> CandidateGraph:
    none = np.zeros(0, np.int64)
    table = np.zeros((0, NUM_FEATURES), np.float32)
    index = np.zeros((0, neighbors), np.int64)
    return CandidateGraph(none, none, table, index, index.astype(np.float32))
