"""The broker's figures for Prometheus: counters as they are, the rest asked for at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from raptormq.broker.counters import Counters
from raptormq.storage.dispatch import Lag
from raptormq.storage.results import StoreStats

_COUNTERS = {
    "messages_in": "Messages stored",
    "bytes_in": "Bytes of log that the stored messages took",
    "sends_refused": "Send requests answered with an error",
    "messages_out": "Messages handed to consumers",
    "bytes_out": "Bytes of records handed to consumers",
    "pulls_found": "Pulls answered with messages",
    "pulls_empty": "Pulls answered without messages",
    "pulls_cold": "Pulls that waited for the disk",
}

Gauges = Callable[[], dict[str, tuple[str, float]]]
"""Returns name -> (what it is, value)."""


class BrokerMetrics(Collector):
    """Everything one broker reports, under ``raptormq_broker_*`` with its cluster and name as labels."""

    def __init__(self, cluster: str, broker: str, counters: Counters, gauges: Gauges):
        self._labels = {"cluster": cluster, "broker": broker}
        self._counters = counters
        self._gauges = gauges
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """Return the text of a scrape."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics (prometheus_client)."""
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"raptormq_broker_{name}", text, labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), getattr(self._counters, name))
            yield counter
        for name, (text, value) in self._gauges().items():
            gauge = GaugeMetricFamily(f"raptormq_broker_{name}", text, labels=list(self._labels))
            gauge.add_metric(list(self._labels.values()), value)
            yield gauge


def lag_gauges(lag: Lag) -> dict[str, tuple[str, float]]:
    """Return how far what consumers see is behind the log."""
    return {
        "dispatch_behind_bytes": ("Bytes of log that queues and index do not have yet", lag.bytes),
        "dispatch_behind_milliseconds": ("Age of the oldest message among them", lag.milliseconds),
    }


def store_gauges(stats: StoreStats) -> dict[str, tuple[str, float]]:
    """Return what the store is like."""
    return {
        "log_end_offset_bytes": ("End of the commit log", stats.end_offset),
        "log_size_bytes": ("Bytes between the first and the last record", stats.end_offset - stats.min_offset),
        "unflushed_bytes": ("Bytes of log that the disk may not have yet", stats.end_offset - stats.flushed_offset),
        "queues": ("Consume queues with messages", stats.queues),
        "open_queue_files": ("Open consume queue files", stats.open_queue_files),
        "disk_used_ratio": ("Share of the volume that is in use, 0 to 1", stats.disk_used_ratio),
        "deleted_segments": ("Segments of the log that retention has deleted since the start", stats.deleted_segments),
        "writable": ("1 while the store takes messages", float(stats.writable)),
    }
