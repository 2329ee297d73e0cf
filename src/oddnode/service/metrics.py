"""Numbers for Prometheus, under the names that BentoML uses: request duration, total, in progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from oddnode.service.state import State

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = ("GET", "POST")


class Metrics:
    """The numbers of one service."""

    def __init__(self, state: State):
        self._state, self.registry = state, CollectorRegistry()
        names, own = ["endpoint", "method", "status"], self.registry
        self._total = Counter("oddnode_request", "Number of requests.", names, registry=own)
        self._duration = Histogram(
            "oddnode_request_duration_seconds", "Time to answer.", ["endpoint"], buckets=_BUCKETS, registry=own
        )
        self.in_progress = Gauge("oddnode_request_in_progress", "Requests that are being answered.", registry=own)
        self.registry.register(self)

    def count(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 is a client that hung up."""
        self._total.labels(endpoint, method if method in _METHODS else "other", str(status)).inc()
        self._duration.labels(endpoint).observe(seconds)

    def collect(self) -> Iterator[Any]:
        """The numbers of the state, when Prometheus asks."""
        state = self._state
        # While the graph is computed again, the one in memory has changes that were undone.
        log, live = state.log, getattr(state, "live", None) if state.phase == "ready" else None
        values = {
            "ready": ("Whether questions are answered.", state.phase == "ready"),
            "waiting": ("Requests that wait for the graph.", state.num_waiting),
            "graph_version": ("Number of changes of the graph in memory.", 0 if live is None else live.version),
            "log_version": ("Number of changes that are on disk.", 0 if log is None else log.head()),
            "nodes": ("Number of nodes.", 0 if live is None else live.num_nodes),
            "scored_arrivals": ("Nodes that were added or changed, since the log began.", state.num_scored),
            "flagged_arrivals": ("How many of them were flagged.", state.num_flagged),
            "flagged_share": ("Their share.", state.num_flagged / max(state.num_scored, 1)),
        }
        for name, (text, value) in values.items():
            yield GaugeMetricFamily(f"oddnode_{name}", text, value=float(value))

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
