"""What a practitioner would pick for windows of sensors: ExtraTrees, and a ridge on convolutions.

Each takes windows and answers for others; its settings did best on what was left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.apps.action.search import Part
from evergraph.extras import require

TREES = 200
LEAVES = ("sqrt", 1), ("sqrt", 3), (0.1, 1)  # features at a split, windows in a leaf
FEW = 25  # trees that these are compared with
RIDGES = (0.01, 0.1, 1.0, 10.0)  # for each window
DILATIONS = (1, 2, 3, 4, 6)
THRESHOLDS = 12  # of each kernel and dilation: 5,040 features
SAMPLE = 64  # windows whose values the thresholds are quantiles of


@dataclass(frozen=True)
class Rows:
    """Numbers of each window `(N, D)`, its activity `(N,)`, and what is left out at a time."""

    x: Tensor
    target: Tensor
    parts: Sequence[Part] = ()

    def select(self, rows: Tensor) -> Rows:
        """Some of them."""
        return Rows(self.x[rows], self.target[rows])

    def folds(self) -> Iterator[tuple[Rows, Rows]]:
        """What to learn from and what to test on."""
        for part in self.parts:
            yield self.select(part.learned), self.select(part.held)


def trees(train: Rows, test: Tensor, setting: Sequence[Any], seed: int, count: int) -> Tensor:
    """ExtraTrees; a setting is the features that a split looks at, and the windows of a leaf."""
    forest = require("sklearn.ensemble", "action").ExtraTreesClassifier
    most, leaf = setting
    made = forest(count, max_features=most, min_samples_leaf=leaf, random_state=seed)
    return torch.from_numpy(made.fit(train.x.numpy(), train.target.numpy()).predict(test.numpy()))


def best_trees(train: Rows) -> tuple[list[Any], float]:
    """The setting that knows what is left out best, with fewer trees, and how well."""

    def accuracy(setting: Sequence[Any]) -> float:
        right = [trees(a, b.x, setting, 0, FEW) == b.target for a, b in train.folds()]
        return float(torch.cat(right).double().mean())

    known = [accuracy(setting) for setting in LEAVES]
    return list(LEAVES[int(np.argmax(known))]), max(known)


def convolved(y: Tensor, example: Tensor, seed: int) -> Tensor:
    """Shares of values of fixed convolutions above thresholds, as MiniRocket has it: `(B, 5040)`.

    All 84 kernels of length 9 with three weights of 2 and six of -1, at five dilations, each on
    the sum of a random few of the signals `(B, S C, T)`. Thresholds are quantiles of what a kernel
    makes of some training windows. Every second kernel is not padded.

    Args:
        y: the signals of windows, each of deviation 1.
        example: of some training windows.
        seed: of the draws of signals.
    """
    rng = np.random.default_rng(seed)
    shares = torch.linspace(0, 1, THRESHOLDS + 2)[1:-1]
    columns = []
    for number, (dilation, places) in enumerate(product(DILATIONS, combinations(range(9), 3))):
        kernel = torch.full((1, 1, 9), -1.0)
        kernel[..., list(places)] = 2
        size = int(2 ** rng.uniform(0, np.log2(min(y.shape[1], 9) + 1)))
        chosen = torch.from_numpy(rng.choice(y.shape[1], size, replace=False))
        padding = 0 if number % 2 and 8 * dilation < y.shape[-1] else 4 * dilation
        sample, values = (
            torch.conv1d(
                part[:, chosen].sum(1, keepdim=True), kernel, padding=padding, dilation=dilation
            )[:, 0]
            for part in (example, y)
        )
        limits = torch.quantile(sample.flatten(), shares)
        place = torch.bucketize(values, limits)  # how many limits a value is above
        above = torch.zeros(len(y), THRESHOLDS + 1)
        above.scatter_add_(1, place, torch.ones_like(values))
        columns.append(1 - above.cumsum(1)[:, :-1] / values.shape[1])
    return torch.cat(columns, 1)


Ridge = Callable[[Tensor, float], Tensor]


def ridge(train: Rows) -> Ridge:
    """Ridge regression on the classes: a function of rows `(B, D)` and a strength.

    With more features than windows it is solved through products of windows.
    """
    spread, mean = torch.std_mean(train.x, 0)
    spread = spread.clamp(min=1e-6)
    x = (train.x - mean) / spread
    goal = torch.nn.functional.one_hot(train.target).float()
    share = goal.mean(0)
    products = (x @ x.T).double()

    def predict(rows: Tensor, strength: float) -> Tensor:
        left = products + strength * len(x) * torch.eye(len(x), dtype=products.dtype)
        solved = torch.cholesky_solve((goal - share).double(), torch.linalg.cholesky(left))
        weight = x.T @ solved.float()
        found: Tensor = (((rows - mean) / spread) @ weight + share).argmax(1)
        return found

    return predict


def best_ridge(train: Rows) -> tuple[float, float]:
    """The strength that knows what is left out best, and how well."""
    right = []
    for known, held in train.folds():
        predict = ridge(known)
        right.append(torch.stack([predict(held.x, s) == held.target for s in RIDGES]))
    found = torch.cat(right, 1).double().mean(1)
    return RIDGES[int(found.argmax())], float(found.max())
