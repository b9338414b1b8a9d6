"""Prometheus exporter of the broker. The values are read at each scrape.

Metrics::

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
    "bytes_in": "Bytes appended to the commit log",
    "sends_refused": "Send requests answered with an error",
    "messages_out": "Messages delivered to consumers",
    "bytes_out": "Bytes of records delivered to consumers",
    "copies_shortened": "Copies of messages, such as retries, stored without some properties because of the size limit",
    "pulls_found": "Pulls answered with messages",
    "pulls_empty": "Pulls answered without messages",
    "pulls_cold": "Pulls that waited for the disk",
}

_TOTAL = "_total"

Gauges = dict[str, tuple[str, float]]
"""Name -> (description, value)."""


class BrokerMetrics(Collector):
    """All metrics of one broker, with the prefix ``raptormq_broker_`` and the labels cluster and broker."""

    def __init__(self, cluster: str, broker: str, counters: Counters, figures: Callable[[], Gauges]) -> None:
        self._labels = {"cluster": cluster, "broker": broker}
        self._counters = counters
        self._gauges = figures

    async def render(self, lags: GroupLags) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        groups = _LazyCollector(lambda: self._group_lags(lags))
        return _text(self) + await written(lambda: _text(groups), len(lags.lags))

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics (prometheus_client)."""
        for name, text in _COUNTERS.items():
            yield self._family(f"{name}{_TOTAL}", text, getattr(self._counters, name))
        for name, (text, value) in self._gauges().items():
            yield self._family(name, text, value)
        yield self._put_times()

    def _family(self, name: str, text: str, value: float) -> Metric:
        family_type = CounterMetricFamily if name.endswith(_TOTAL) else GaugeMetricFamily
        family = family_type(f"raptormq_broker_{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _put_times(self) -> Metric:
        text = "Time to store messages of producers, in seconds; under SYNC_FLUSH until they are on disk"
        family = HistogramMetricFamily("raptormq_broker_put_seconds", text, labels=list(self._labels))
        times = self._counters.put_times
        family.add_metric(list(self._labels.values()), times.buckets(), times.total_s)
        return family

    def _group_lags(self, lags: GroupLags) -> list[Metric]:
        labels = [*self._labels, "group", "topic"]
        text = "Messages of a topic that a group has not consumed yet"
        waiting = GaugeMetricFamily("raptormq_broker_group_lag_messages", text, labels=labels)
        text = "Messages of a topic that were deleted before a group consumed them, until it commits a later offset"
        lost = GaugeMetricFamily("raptormq_broker_group_lost_messages", text, labels=labels)
        for group, topic, lag in lags.lags:
            values = [*self._labels.values(), group, topic]
            waiting.add_metric(values, lag.waiting)
            lost.add_metric(values, lag.lost)
        left_out = "Pairs of group and topic without a lag: time or number limit reached, or a queue cannot be read"
        return [waiting, lost, self._family("group_lags_left_out", left_out, lags.left_out)]


class _LazyCollector(Collector):
    """A collector that creates its metrics in the thread that renders them."""

    def __init__(self, make: Callable[[], Iterable[Metric]]) -> None:
        self._make = make

    def collect(self) -> Iterable[Metric]:
        """Return the metrics (prometheus_client)."""
        return self._make()


def _text(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def lag_gauges(lag: DispatchLag) -> Gauges:
    """Return the gauges of the dispatch to queues and index."""
    return {
        "dispatch_behind_bytes": ("Bytes of log that are not dispatched to queues and index yet", lag.bytes),
        "dispatch_behind_milliseconds": ("Age of the oldest message that is not dispatched yet", lag.milliseconds),
    }


def store_gauges(stats: StoreStats) -> Gauges:
    """Return the gauges of the store."""
    return {
        "log_end_offset_bytes": ("End of the commit log", stats.end_offset),
        "log_size_bytes": ("Bytes between the first and the last record", stats.end_offset - stats.min_offset),
        "unflushed_bytes": ("Bytes of log that are not flushed yet", stats.end_offset - stats.flushed_offset),
        "queues": ("Consume queues with messages", stats.queues),
        "open_queue_files": ("Open consume queue files", stats.open_queue_files),
        "disk_used_ratio": ("Used share of the volume, 0 to 1", stats.disk_used_ratio),
        "left_out_records_total": (
            "Records that reads skipped: damaged records, and batches that are too large to be unpacked for the client",
            stats.skipped_records,
        ),
        "deleted_segments_total": ("Segments of the log that retention has deleted", stats.deleted_segments),
        "writable": ("1 if the store accepts messages, otherwise 0", float(stats.writable)),
    }
