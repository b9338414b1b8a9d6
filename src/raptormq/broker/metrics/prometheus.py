"""The broker's Prometheus exporter: counters are kept, gauges are read at each scrape.

    raptormq_broker_<figure>{cluster, broker}
    raptormq_broker_put_seconds_bucket{cluster, broker, le}
    raptormq_broker_group_lag_messages{cluster, broker, group, topic}
    raptormq_broker_group_lost_messages{cluster, broker, group, topic}

The names of counters end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from raptormq.broker.cooperative import written
from raptormq.broker.metrics.counters import Counters
from raptormq.broker.metrics.lag import GroupLags
from raptormq.storage.read import StoreStats
from raptormq.storage.records import DispatchLag

_COUNTERS = {
    "messages_in": "Messages stored",
    "bytes_in": "Bytes of log that the stored messages took",
    "sends_refused": "Send requests answered with an error",
    "messages_out": "Messages handed to consumers",
    "bytes_out": "Bytes of records handed to consumers",
    "copies_shortened": "Copies of messages, as for a retry, that had no room for all of their properties",
    "pulls_found": "Pulls answered with messages",
    "pulls_empty": "Pulls answered without messages",
    "pulls_cold": "Pulls that waited for the disk",
}

_TOTAL = "_total"

Gauges = dict[str, tuple[str, float]]
"""Name -> (description, value)."""


class BrokerMetrics(Collector):
    """All metrics of one broker, named ``raptormq_broker_*``, labelled with its cluster and name."""

    def __init__(self, cluster: str, broker: str, counters: Counters, figures: Callable[[], Gauges]) -> None:
        self._labels = {"cluster": cluster, "broker": broker}
        self._counters = counters
        self._gauges = figures

    async def render(self, lags: GroupLags) -> bytes:
        """Return the text of a scrape."""
        groups = _Made(lambda: self._group_lags(lags))
        return _text(self) + await written(lambda: _text(groups), len(lags.lags))

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics (prometheus_client)."""
        for name, text in _COUNTERS.items():
            yield self._family(f"{name}{_TOTAL}", text, getattr(self._counters, name))
        for name, (text, value) in self._gauges().items():
            yield self._family(name, text, value)
        yield self._put_times()

    def _family(self, name: str, text: str, value: float) -> Metric:
        made = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
        family = made(f"raptormq_broker_{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _put_times(self) -> Metric:
        text = "Seconds that messages of producers take to be stored; under SYNC_FLUSH, until the disk has them"
        family = HistogramMetricFamily("raptormq_broker_put_seconds", text, labels=list(self._labels))
        times = self._counters.put_times
        family.add_metric(list(self._labels.values()), times.buckets(), times.total_s)
        return family

    def _group_lags(self, lags: GroupLags) -> list[Metric]:
        labels = [*self._labels, "group", "topic"]
        text = "Messages that a group has still to consume in a topic"
        waiting = GaugeMetricFamily("raptormq_broker_group_lag_messages", text, labels=labels)
        text = "Messages of a topic that were deleted before a group consumed them, until it goes on behind them"
        lost = GaugeMetricFamily("raptormq_broker_group_lost_messages", text, labels=labels)
        for group, topic, lag in lags.lags:
            values = [*self._labels.values(), group, topic]
            waiting.add_metric(values, lag.waiting)
            lost.add_metric(values, lag.lost)
        left_out = "Groups times topics whose lag is not here: no time, no room, or a queue that cannot be read"
        return [waiting, lost, self._family("group_lags_left_out", left_out, lags.left_out)]


class _Made(Collector):
    """A collector that creates its metrics in the thread that renders them."""

    def __init__(self, make: Callable[[], Iterable[Metric]]) -> None:
        self._make = make

    def collect(self) -> Iterable[Metric]:
        """Make them (prometheus_client)."""
        return self._make()


def _text(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def lag_gauges(lag: DispatchLag) -> Gauges:
    """Return how far the queues and the index are behind the log."""
    return {
        "dispatch_behind_bytes": ("Bytes of log that queues and index do not have yet", lag.bytes),
        "dispatch_behind_milliseconds": ("Age of the oldest message among them", lag.milliseconds),
    }


def store_gauges(stats: StoreStats) -> Gauges:
    """Return the gauges of the store."""
    return {
        "log_end_offset_bytes": ("End of the commit log", stats.end_offset),
        "log_size_bytes": ("Bytes between the first and the last record", stats.end_offset - stats.min_offset),
        "unflushed_bytes": ("Bytes of log that the disk may not have yet", stats.end_offset - stats.flushed_offset),
        "queues": ("Consume queues with messages", stats.queues),
        "open_queue_files": ("Open consume queue files", stats.open_queue_files),
        "disk_used_ratio": ("Share of the volume that is in use, 0 to 1", stats.disk_used_ratio),
        "left_out_records_total": (
            "Records that reads left out, a batch being one: damaged, or too large to be taken apart for the reader",
            stats.skipped_records,
        ),
        "deleted_segments_total": ("Segments of the log that retention has deleted", stats.deleted_segments),
        "writable": ("1 while the store takes messages", float(stats.writable)),
    }
