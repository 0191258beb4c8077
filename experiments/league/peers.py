"""Models beside the learner's own: closed forms, frozen random features, SGD and regular training.

Each predicts the nodes to test of a split for every one of its candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from scipy import sparse

from evergraph.learn.dual import HOPS, mixtures, solve
from experiments.league.solvers import Kernel, discriminant, ridge
from experiments.league.views import Array, Matrix, Seen, Views, unit

Settings = dict[str, Any]


def kernel(seen: Seen, candidates: Sequence[Settings]) -> list[Array]:
    """The feature-graph kernel, or parts of it: whatever leave-one-out chooses of what is allowed.

    What is tried is tried once for all parts.
    """
    stored, others, every = seen.dual
    classes, out = np.unique(seen.labels), []
    for settings in candidates:
        reads = (settings["reads"],) if "reads" in settings else HOPS
        allowed = mixtures(**{**settings, "reads": reads})
        choice = min((c for c in every if c.mixture in allowed), key=lambda c: c.loss)
        out.append(classes[solve(stored, choice)(others).argmax(1)])
    return out


def closed(
    seen: Seen, candidates: Sequence[Settings], *, blocks: tuple[str, ...], solver: Any = ridge
) -> list[Array]:
    """Ridge or a discriminant on the sum of fixed blocks; candidates name hops and strength."""
    out = []
    for hops, group in groupby(candidates, lambda settings: int(settings["hops"])):
        out += solver(seen.kernel(blocks, hops), seen.labels, _strengths(group))
    return out


def random_layers(views: Views, layers: int, width: int, seed: int) -> Array:
    """Hidden layers `tanh(A H Θ)` of all nodes with random Θ, side by side (arXiv 2510.06819).

    Θ is Gaussian. The first layer reads rows of unit length with a spread of 4, so that tanh is
    not linear; later ones divide by the root of the width.
    """
    rng = np.random.default_rng(seed)
    state: Any = unit(views.x).astype(np.float32)
    smooth = views.smooth.astype(np.float32)
    found = []
    for layer in range(layers):
        spread = 4.0 if layer == 0 else 1 / np.sqrt(width)
        projected = state @ (
            rng.standard_normal((state.shape[1], width), np.float32) * np.float32(spread)
        )
        state = np.tanh(smooth @ projected)
        found.append(state)
    return np.concatenate(found, axis=1)


def frozen(seen: Seen, candidates: Sequence[Settings], *, width: int = 512) -> list[Array]:
    """A random graph network that is never trained, with streaming discriminant analysis on it."""
    most = max(settings["layers"] for settings in candidates)
    layers = random_layers(seen.views, most, width, seen.split.number)[seen.nodes.numpy()]
    out = []
    for depth, group in groupby(candidates, lambda settings: int(settings["layers"])):
        kernel = Kernel.of(layers[:, : depth * width], seen.count)
        out += discriminant(kernel, seen.labels, _strengths(group))
    return out


def projected(seen: Seen, candidates: Sequence[Settings], *, width: int = 2048) -> list[Array]:
    """Ridge on a random projection of x and m with ReLU, as RanPAC does with a trained network."""
    rng = np.random.default_rng(seen.split.number)
    weight = rng.standard_normal((seen.beside.shape[1], width), dtype=np.float32)
    rows = np.maximum(seen.beside.astype(np.float32).toarray() @ weight, 0)
    return ridge(Kernel.of(rows, seen.count), seen.labels, _strengths(candidates))


def logistic(seen: Seen, candidates: Sequence[Settings]) -> list[Array]:
    """Logistic regression on x beside the mean, trained on all items until it converges."""
    from sklearn.linear_model import LogisticRegression

    train, test = map(_narrow, seen.halves(seen.beside))
    model = LogisticRegression(warm_start=True, max_iter=300, tol=1e-6)
    out = []
    for settings in candidates:
        model.set_params(C=settings["C"])
        out.append(model.fit(train, seen.labels).predict(test))
    return out


def one_pass_sgd(
    seen: Seen, candidates: Sequence[Settings], *, batches: Sequence[Array]
) -> list[Array]:
    """scikit-learn's SGDClassifier (log loss) on x beside the mean, in the order of the stream.

    It must be told all classes before it begins, which no other model is.
    """
    from sklearn.linear_model import SGDClassifier

    train, test = map(_narrow, seen.halves(seen.beside))
    place = {node: row for row, node in enumerate(seen.split.data.train.tolist())}
    order = [np.array([place[node] for node in batch.tolist()]) for batch in batches]
    parts, out = [(train[index], seen.labels[index]) for index in order], []
    classes = np.unique(seen.labels)
    for settings in candidates:
        model = SGDClassifier(loss="log_loss", random_state=seen.split.number, **settings)
        for rows, labels in parts:
            model.partial_fit(rows, labels, classes)
        out.append(model.predict(test))
    return out


def _strengths(candidates: Iterable[Settings]) -> list[float]:
    return [settings["strength"] for settings in candidates]


def _narrow(rows: Matrix) -> Any:
    """With 32-bit indices, which scikit-learn wants."""
    parts = rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return sparse.csr_matrix(parts, shape=rows.shape)
