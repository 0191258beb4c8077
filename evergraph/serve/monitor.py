"""How well and how fast a service does: counts, windows of the recent past, and drift."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evergraph.learn.drift import Drift
from evergraph.model.record import Scored, count_pairs

WINDOW = 1000  # scored labels, novelties and latencies of the recent past
SECONDS = 10  # over which events per second are counted, and within which a change is one
POINTS = 600  # of the curves that a page draws at once
PROOFS = 60  # retrainings that a page draws
SHOWN = 30  # classes in the confusion matrix, the most frequent ones
POINT = ("time", "position", "events_per_second", "memory_bytes")  # of a point, see `point`


class Monitor:
    """Counts what a service does; all methods may be called from any thread.

    The record of all labels is in the store: `start` takes it over after a restart.

    Attributes:
        each: called with every point of the curves, see `point`.
    """

    each: Callable[[Mapping[str, Any]], None] | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(("accepted", "refused", "predictions", "scored", "right"), 0)
        self.points: deque[dict[str, Any]] = deque(maxlen=POINTS)
        self._confusion: dict[str, dict[str, int]] = {}
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._novelty: deque[float] = deque(maxlen=WINDOW)
        self._latency: dict[str, deque[float]] = {
            kind: deque(maxlen=WINDOW) for kind in ("predict", "events", "solve")
        }
        self._arrived: deque[tuple[float, int]] = deque()
        self._drift, self._strange = Drift(), Drift()
        self._alarms: deque[dict[str, Any]] = deque(maxlen=20)
        self._changes = {"error": 0, "novelty": 0}  # how many alarms of each kind there were
        self._proofs: deque[dict[str, Any]] = deque(maxlen=PROOFS)

    def start(self, right: int, seen: int, confusion: Mapping[str, Mapping[str, int]]) -> None:
        """Take over the record of a model, as it is in the store."""
        with self._lock:
            self.counts.update(scored=seen, right=right)
            self._confusion = {truth: dict(row) for truth, row in confusion.items()}

    def took(self, accepted: int, refused: int, scored: Sequence[Scored], position: int) -> None:
        """Note events that were stored or refused, and what was predicted for their labels."""
        with self._lock:
            self.counts["accepted"] += accepted
            self.counts["refused"] += refused
            self._arrived.append((time.monotonic(), accepted))
            while self._arrived[0][0] < time.monotonic() - SECONDS:
                self._arrived.popleft()
            count_pairs(self._confusion, scored)
            for one in scored:
                right = one.predicted == one.truth
                self.counts["scored"] += 1
                self.counts["right"] += right
                self._recent.append(right)
                if self._drift.add(float(not right)):
                    self._alarm("error", self._drift, position)

    def predicted(self, novelties: Iterable[float], position: int) -> None:
        """Note questions that were answered."""
        with self._lock:
            for novelty in novelties:
                self.counts["predictions"] += 1
                self._novelty.append(novelty)
                if self._strange.add(min(max(novelty, 0.0), 1.0)):
                    self._alarm("novelty", self._strange, position)

    def _alarm(self, kind: str, drift: Drift, position: int) -> None:
        """Note a change; one that is found again while its numbers come is not another."""
        before, after = drift.change or (0.0, 0.0)
        now, last = time.time(), self._last_of(kind)
        again = last is not None and now - last["time"] < SECONDS
        if last is not None and again and (after > before) == (last["after"] > last["before"]):
            last.update(time=now, position=position, after=after)
            return
        self._changes[kind] += 1
        self._alarms.append(
            {"kind": kind, "time": now, "position": position, "before": before, "after": after}
        )

    def _last_of(self, kind: str) -> dict[str, Any] | None:
        return next((one for one in reversed(self._alarms) if one["kind"] == kind), None)

    def lasted(self, kind: str, seconds: float) -> None:
        """Note how long something took."""
        with self._lock:
            self._latency[kind].append(seconds)

    def proved(self, proof: Mapping[str, Any]) -> None:
        """Keep what a retraining from scratch gave."""
        with self._lock:
            self._proofs.append(dict(proof))

    def stats(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """All that a page shows, with the state of the service."""
        with self._lock:
            now = time.monotonic()
            recent = [count for at, count in self._arrived if at >= now - SECONDS]
            return {
                "time": time.time(),
                **state,
                "counts": dict(self.counts),
                "events_per_second": sum(recent) / SECONDS,
                "latency_ms": {kind: _quantiles(part) for kind, part in self._latency.items()},
                "memory_bytes": memory(),
                "prequential": self._prequential(),
                "confusion": self._matrix(),
                "novelty": {"mean": _mean(self._novelty), "alarms": self._changes["novelty"]},
                "drift": {
                    "alarms": self._changes["error"],
                    "last": [dict(one) for one in self._alarms],
                },
                "proofs": list(self._proofs),
            }

    def point(self, stats: Mapping[str, Any]) -> None:
        """Keep a point of the curves."""
        kept = {name: stats[name] for name in POINT}
        kept |= {name: stats["prequential"][name] for name in ("accuracy", "recent")}
        kept["novelty"] = stats["novelty"]["mean"]
        kept["held_out"] = (stats.get("held_out") or {}).get("accuracy")
        with self._lock:
            self.points.append(kept)
        if self.each is not None:
            self.each({**kept, **{name: stats[name] for name in ("nodes", "edges")}})

    def curves(self) -> list[dict[str, Any]]:
        """The points that are kept."""
        with self._lock:
            return list(self.points)

    def _prequential(self) -> dict[str, Any]:
        right, seen = self.counts["right"], self.counts["scored"]
        classes = {
            truth: {"right": row.get(truth, 0), "scored": sum(row.values())}
            for truth, row in self._confusion.items()
        }
        most = sorted(classes.items(), key=lambda pair: -pair[1]["scored"])[:SHOWN]
        return {
            "right": right,
            "scored": seen,
            "accuracy": right / seen if seen else None,
            "recent": _mean(self._recent),
            "classes": {
                name: {**part, "accuracy": part["right"] / max(part["scored"], 1)}
                for name, part in most
            },
        }

    def _matrix(self) -> dict[str, Any]:
        totals: dict[str, int] = {}
        for truth, row in self._confusion.items():
            for name, count in row.items():
                for one in (truth, name):
                    totals[one] = totals.get(one, 0) + count
        names = sorted(sorted(totals, key=lambda name: -totals[name])[:SHOWN])
        counts = [[self._confusion.get(a, {}).get(b, 0) for b in names] for a in names]
        return {"classes": names, "counts": counts}


def memory() -> int:
    """Bytes of memory that the process uses now; where that is unknown, at the most."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _quantiles(values: Iterable[float]) -> dict[str, float | None]:
    ranked = sorted(values)
    if not ranked:
        return {"p50": None, "p99": None}
    return {
        name: 1000 * ranked[min(int(share * len(ranked)), len(ranked) - 1)]
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
