"""A long stream through a whole learner: memory and time per item must not grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch

from benchmarks.measure import resident_mb
from evergraph.stream.continuum import Continuum, Settings
from evergraph.graph.dataset import Dataset
from evergraph.learn.learner import Learner
from evergraph.learn.memory import Reservoir
from evergraph.learn.methods import Replay
from evergraph.nn.fgn import FGN
from evergraph.learn.training import Training

PARTS = 10


def follow(
    dataset: Dataset,
    capacity: int = 500,
    batch_size: int = 100,
    report: Callable[[int], None] = lambda seen: None,
) -> Iterator[dict[str, float]]:
    """One pass in order of arrival with a bounded memory, in ten parts.

    Each batch gets one step and one minibatch of replay, so that the cost per item is constant by
    design; what is measured is whether it is in fact.
    """
    stream = Continuum(dataset, Settings(scenario="time", batch_size=batch_size))
    torch.manual_seed(0)
    learner = Learner(
        FGN(dataset.graph.num_features, 0, concatenate=True),
        Replay(),
        Reservoir(capacity),
        Training(lr=0.05, steps=1, replay_batches=1, replay_batch_size=batch_size),
    )
    seen = correct = 0
    marks = [round(part * len(stream) / PARTS) for part in range(1, PARTS + 1)]
    start, first = time.perf_counter(), 0
    for position, batch in enumerate(stream, start=1):
        if learner.classes:
            correct += int((learner.predict(batch) == batch.target).sum())
        learner.observe(batch)
        seen += len(batch)
        report(seen)
        if position in marks:
            elapsed = time.perf_counter() - start
            assert learner.memory is not None
            yield {
                "items": seen,
                "us_per_item": elapsed * 1e6 / (seen - first),
                "resident_mb": resident_mb(),
                "memory_bytes": learner.memory.nbytes,
                "prequential": correct / (seen - first),
            }
            start, first, correct = time.perf_counter(), seen, 0
