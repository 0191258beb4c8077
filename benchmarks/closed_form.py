"""The closed form against matrix products, and against one outer product per item.

`share_of_dgemm` compares adding rows to the sums with one dgemm over the same dense rows (with
scipy's sparse product where rows are short), embedding apart. `over_reference` compares learning
class by class, tests included, with the implementation of commit 7247736, which is kept here.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import torch
import typer
from scipy import sparse
from scipy.linalg.blas import dgemm

from evergraph.cli.console import AsJson, DataRoot, Out, progress, publish, table_of, use_threads
from evergraph.datasets import load
from evergraph.evaluate.config import Config, build
from evergraph.evaluate.evidence import provenance
from evergraph.extras import require
from evergraph.feature_graph import embedding, neighborhoods
from evergraph.feature_graph.fixed_point import ONE
from evergraph.graph import Dataset, SparseRows
from evergraph.learn import Learner
from evergraph.learn.learner import Predictor
from evergraph.learn.methods import Analytic
from evergraph.learn.sums import Rows, Sums
from evergraph.stream.batch import Batch
from evergraph.stream.source import NodeSource, gathered

SHORT = 0.05  # the share of nonzeros below which scipy's sparse product is the peer
DATASETS = ("cora", "citeseer", "pubmed", "amazon-computers")
SETTINGS = ("solver", "strength", "relevance", "blocks", "normalization", "max_width")
Clocks = tuple[float, float]


class _Known(Sums):
    """Sums whose G is given."""

    known: Any = None

    @property
    def gram(self) -> Any:
        """G."""
        return self.known


@dataclass
class Reference(Analytic):
    """The closed form with one outer product and one prediction per item, in floating point.

    Items are embedded again whenever they are asked for, in torch; see `as_before`.
    """

    gram: Any = field(default=None, repr=False)
    totals: dict[str, Any] = field(default_factory=dict, repr=False)
    counts: dict[str, int] = field(default_factory=dict, repr=False)

    def _add(self, learner: Learner, batch: Batch, sign: int) -> None:
        rows = self._rows(learner, batch)
        for (index, values), label in zip(rows, batch.target.tolist(), strict=True):
            self.gram[np.ix_(index, index)] += sign * np.outer(values, values)
            total = self.totals.setdefault(str(label), np.zeros(len(self.gram)))
            total[index] += sign * values
            self.counts[str(label)] = self.counts.get(str(label), 0) + sign
        self.solution = None

    def _embed(self, learner: Learner, batch: Batch) -> Rows:
        return self._embedded(learner, batch, learner.model.requires.hops)

    def _rows(self, learner: Learner, batch: Batch) -> list[tuple[Any, Any]]:
        found = scipy_rows(self._embed(learner, batch))
        if self.gram is None:
            self.gram = np.zeros((found.shape[1], found.shape[1]))
        places = pairwise(found.indptr.tolist())
        return [(found.indices[a:b], found.data[a:b]) for a, b in places]

    def predictor(self, learner: Learner) -> Predictor:
        """The same classifier, item by item."""
        if self.solution is None:
            self.sums = _Known(len(self.gram))
            self.sums.known = self.gram
            self.sums._totals, self.sums.counts = self.totals, self.counts
            self.solution = self._solve(learner.classes)
        weight, offset, _ = self.solution

        def predict(batch: Batch) -> torch.Tensor:
            rows = [values @ weight[index] for index, values in self._rows(learner, batch)]
            return torch.from_numpy(np.reshape(rows, (len(batch), -1)) / ONE + offset)

        return predict


def scipy_rows(rows: Rows) -> sparse.csr_array:
    """Rows in scipy's layout."""
    if not isinstance(rows, SparseRows):
        return sparse.csr_array(rows)
    parts = tuple(t.numpy() for t in (rows.values, rows.indices, rows.indptr))
    return sparse.csr_array(parts, shape=(len(rows), rows.num_features))


@contextmanager
def as_before() -> Iterator[None]:
    """Sort packed entries to condense neighborhoods, and embed items step by step."""
    with (
        patch.object(neighborhoods, "supports", _never),
        patch.object(embedding, "supports", _never),
    ):
        yield


def _never(*tensors: torch.Tensor) -> bool:
    return False


def clocks(action: Callable[[], object]) -> Clocks:
    """CPU and wall-clock seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def learned(dataset: Dataset, reference: bool = False) -> tuple[Clocks, float]:
    """What learning class by class with a test after each class costs, and the last accuracy."""
    stream, learner = build(Config(dataset=dataset.name, method="analytic"), dataset, 0)
    if reference:
        assert isinstance(stream.source, NodeSource)
        stream = replace(stream, source=replace(stream.source, pack=gathered), steady=False)
        own = {name: getattr(learner.method, name) for name in SETTINGS}
        learner.method = Reference(**own)
    accuracy = [float("nan")]

    def run() -> None:
        task = None
        for batch in stream.batches(0):
            if task not in (None, int(batch.task[0])):
                accuracy[0] = learner.evaluate(stream.test())
            task = int(batch.task[0])
            learner.observe(batch)
        accuracy[0] = learner.evaluate(stream.test())

    with as_before() if reference else nullcontext():
        return clocks(run), accuracy[0]


def adding(dataset: Dataset, repetitions: int) -> dict[str, Any]:
    """Rows per second into the sums, and into one product."""
    stream, learner = build(Config(dataset=dataset.name, method="analytic"), dataset, 0)
    method = learner.method
    assert isinstance(method, Analytic)
    parts = [(method._embed(learner, b), list(map(str, b.target.tolist()))) for b in stream]
    first = parts[0][0]
    stacked = sparse.vstack([scipy_rows(part) for part, _ in parts], format="csr")
    size, short = stacked.shape[1], stacked.nnz < SHORT * stacked.shape[0] * stacked.shape[1]
    dense = None if short else np.asfortranarray(stacked.toarray())
    times: dict[str, list[Clocks]] = {"sums": [], "product": []}

    def add() -> None:
        sums = Sums(size)
        for rows, labels in parts:
            sums.add(rows, labels)
        assert sums.gram.shape == (size, size)

    def product() -> None:
        found = stacked.T @ stacked if dense is None else dgemm(1.0, dense, dense, trans_a=True)
        assert found.shape == (size, size)

    for _ in range(repetitions):
        for name, action in (("sums", add), ("product", product)):
            times[name].append(clocks(action))
    cpu, wall = (
        [statistics.median(each[k] for each in times[name]) for name in ("sums", "product")]
        for k in (0, 1)
    )
    return {
        "dataset": dataset.name,
        "rows": stacked.shape[0],
        "width": size,
        "nonzeros": stacked.nnz / stacked.shape[0],
        "sparse_rows": isinstance(first, SparseRows),
        "peer": "sparse product" if short else "dgemm",
        "rows_per_second": stacked.shape[0] / wall[0],
        "share_of_dgemm": cpu[1] / cpu[0],
        "share_of_dgemm_wall": wall[1] / wall[0],
    }


def learning(dataset: Dataset, turns: int) -> dict[str, float]:
    """What learning costs, and what the reference takes of it."""
    pairs = [[learned(dataset, reference) for reference in (False, True)] for _ in range(turns)]
    (own, accuracy), (_, reference) = pairs[0]
    cpu, wall = (
        statistics.median(old[0][k] / new[0][k] for new, old in pairs) for k in range(len(own))
    )
    return {
        "learn_seconds_cpu": statistics.median(new[0][0] for new, _ in pairs),
        "over_reference": cpu,
        "over_reference_wall": wall,
        "accuracy": accuracy,
        "accuracy_reference": reference,
        "load": os.getloadavg()[0],
    }


def command(
    datasets: str = ",".join(DATASETS),
    repetitions: Annotated[int, typer.Option(min=1, help="Turns of adding rows.")] = 5,
    turns: Annotated[int, typer.Option(min=1, help="Turns of learning.")] = 3,
    data: DataRoot = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Time the closed form on real graphs: medians of turns that both sides take."""
    use_threads(1)
    require("threadpoolctl", "matching").threadpool_limits(1)  # idle threads of BLAS would count
    rows, names = [], datasets.split(",")
    with progress(as_json) as shown:
        task = shown.add_task("closed form", total=len(names))
        for name in names:
            dataset = load(name, data)
            row = adding(dataset, repetitions)
            learned(dataset)  # loads compiled loops
            rows.append({**row, **learning(dataset, turns)})
            shown.advance(task)
    columns = ("dataset", "rows_per_second", "share_of_dgemm", "over_reference", "accuracy")
    cells = [[f"{r[c]:.3g}" if c != "dataset" else r[c] for c in columns] for r in rows]
    publish(
        {**provenance(), "cases": rows}, as_json, out,
        lambda: table_of("The closed form", columns, cells),
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(command)
