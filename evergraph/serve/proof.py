"""The proof that nothing is lost by learning online: the same model, made again from scratch."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evergraph.learn.solution import Solution
from evergraph.model.state import State
from evergraph.serve.limits import RefusedError
from evergraph.serve.service import Service

MOST = 20_000  # nodes: the writer waits while they are read, and they are twice in memory
NOWHERE = Path("/nonexistent")  # no sums are found there, so that all are made


class Proof:
    """Retrains beside a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def retrain(self) -> dict[str, Any]:
        """Train on all that is stored, and compare with the model that has learned it bit by bit.

        Statistics of columns and landmarks are the same; all sums are made again. Equal digests
        mean that both give the same answer to every question.
        """
        start = time.monotonic()
        position, digest, solve, fresh = self.service.writer.call(self._begin).result()
        again = fresh.learner.solution()
        found = {
            "position": position,
            "equal": fresh.digest() == digest,
            "served": _held_out(solve()),
            "retrained": _held_out(again),
            "seconds": time.monotonic() - start,
        }
        self.service.monitor.proved(found)
        return found

    def _begin(self) -> tuple[int, str, Callable[[], Solution], State]:
        """In the writer: what is served, and the stored graph without any sums."""
        self.service.need_shown()
        model = self.service.need_model()
        if model.settings.learner != "exact":
            raise RefusedError(409, "a network depends on its history: there is nothing to compare")
        if len(model.graph) > MOST:
            raise RefusedError(
                409, f"a graph of at most {MOST:,} nodes is retrained beside the service, got "
                f"{len(model.graph):,}; use `evergraph refit` on a copy"
            )  # fmt: skip
        fresh = State(NOWHERE, model.store, model.settings)
        return model.store.position, model.digest(), model.state.learner.prepare(), fresh


def _held_out(solution: Solution) -> dict[str, Any]:
    right, tested = solution.held_out
    return {"right": right, "tested": tested, "accuracy": right / tested if tested else None}
