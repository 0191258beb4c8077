"""What Prometheus reads. No names of classes or nodes: their number has no bound."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from evergraph.serve.service import Service

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics(Collector):
    """Counts and sizes of a service, worked out when they are asked for."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._seconds = Histogram(
            "evergraph_request_seconds", "Time of requests.", ["route"],
            registry=self._registry, buckets=BUCKETS,
        )  # fmt: skip
        self._requests = Counter(
            "evergraph_requests", "Requests.", ["route", "status"], registry=self._registry
        )

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Note a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        if route != "/stream":
            self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of it in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The counts and sizes of now."""
        stats = self._service.monitor.stats(self._service.state())
        for name, count in stats["counts"].items():
            if name != "right":
                yield CounterMetricFamily(f"evergraph_{name}", _HELP[name], count)
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"evergraph_{name}", text, stats[name] or 0)
        yield GaugeMetricFamily("evergraph_classes", "Classes.", len(stats["classes"]))
        for name, part in (("prequential", "accuracy"), ("recent", "recent")):
            value = stats["prequential"][part]
            text = "Share of late labels that were predicted right."
            yield GaugeMetricFamily(f"evergraph_accuracy_{name}", text, value or 0)
        alarms = stats["drift"]["alarms"]
        yield CounterMetricFamily("evergraph_drift_alarms", "Changes of the error rate.", alarms)


_HELP = {
    "accepted": "Events that were stored.",
    "refused": "Events that were refused.",
    "predictions": "Nodes that were predicted.",
    "scored": "Late labels.",
}
_GAUGES = {
    "position": "Events in the graph.",
    "version": "Events that the classifier knows.",
    "nodes": "Nodes.",
    "edges": "Edges.",
    "queue": "Events that wait.",
    "memory_bytes": "Memory of the process.",
    "events_per_second": "Over the last ten seconds.",
}
