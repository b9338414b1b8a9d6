"""Lag of streaming queries, computed from Spark's progress reports, since Spark shows no metrics of Python sources.

A job adds a listener with ``spark.streams.addListener(LagListener())``. `LagListener` calls a function after every
batch; `PrometheusListener` updates metrics in the driver's Python process, which `prometheus_client.start_http_server`
exports. The latest offsets come from `stream_reader.reportLatestOffset`.
Source: `avgOffsetsBehindLatest` and related metrics of Spark's Kafka connector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_raptormq.errors import OffsetFormatError
from pyspark_raptormq.offsets import QueueOffsets, parse_json, reported_ends, stream_offset
from raptormq.logs import get_logger
from raptormq.protocol.bodies.group_progress import GroupLag
from raptormq.protocol.message import MessageQueue

log = get_logger(__name__)

_BATCH_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True)
class Lag:
    """Lag of a query behind the ends of its queues, at the time when its last batch was planned."""

    query: str
    """The query's name, or else its id."""
    batch_id: int
    by_queue: QueueOffsets
    """Number of unread offsets per queue, without deleted messages."""
    lost: QueueOffsets = field(default_factory=dict)
    """Number of offsets that were deleted before the query read them, for queues with such offsets."""
    unreachable: frozenset[MessageQueue] = frozenset()
    """Queues that no broker offers now. Their lag is counted up to the last known end."""

    @property
    def total(self) -> int:
        """Lag over all queues."""
        return sum(self.by_queue.values())

    @property
    def largest(self) -> int:
        """Lag of the queue with the largest lag."""
        return max(self.by_queue.values(), default=0)

    @property
    def total_lost(self) -> int:
        """Number of offsets deleted before they were read, over all queues."""
        return sum(self.lost.values())


def lag_between(end_offset: str | None, latest_offset: str | None) -> dict[MessageQueue, GroupLag] | None:
    """Return the lag of `end_offset` behind `latest_offset` per queue; None for a source of another kind."""
    if not end_offset or not latest_offset:
        return None
    try:
        end, latest = stream_offset(parse_json(end_offset)), reported_ends(parse_json(latest_offset))
    except OffsetFormatError:
        return None
    return latest.behind(end.queues)


def unreachable_queues(latest_offset: str | None) -> frozenset[MessageQueue]:
    """Return the queues that could not be reached according to a latest offset; none for a source of another kind."""
    try:
        return reported_ends(parse_json(latest_offset)).unreachable if latest_offset else frozenset()
    except OffsetFormatError:
        return frozenset()


def log_lag(lag: Lag) -> None:
    """Log the lag, and a warning if offsets were lost."""
    text = "query %s, batch %d: lag %d offsets, at most %d in one queue"
    log.info(text, lag.query, lag.batch_id, lag.total, lag.largest)
    if lag.unreachable:
        text = "query %s, batch %d: %d queues cannot be reached"
        log.warning(text, lag.query, lag.batch_id, len(lag.unreachable))
    if lag.lost:
        log.warning(
            "query %s, batch %d: %d offsets were deleted before they were read",
            lag.query,
            lag.batch_id,
            lag.total_lost,
        )


class LagListener(StreamingQueryListener):
    """Calls `report` after every batch of a query that reads from RaptorMQ.

    Args:
        report: function that receives the lag, on Spark's listener thread. The default logs it.
    """

    def __init__(self, report: Callable[[Lag], None] = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag of each RaptorMQ source of the query."""
        progress = event.progress
        for source in progress.sources:
            found = lag_between(source.endOffset, source.latestOffset)
            if found is not None:
                behind = {queue: each.waiting for queue, each in found.items()}
                lost = {queue: each.lost for queue, each in found.items() if each.lost}
                away = unreachable_queues(source.latestOffset)
                self._report(Lag(progress.name or str(progress.id), progress.batchId, behind, lost, away))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the last batch was already reported."""


class PrometheusListener(LagListener):
    """Maintains Prometheus metrics of running queries that read from RaptorMQ::

        spark.streams.addListener(PrometheusListener())
        prometheus_client.start_http_server(8000)

    Args:
        registry: registry of the metrics; by default the global registry.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(self._keep)
        labels = ["query", "topic"]
        self._lag = Gauge("raptormq_spark_lag", "Unread offsets over all queues.", labels, registry=registry)
        self._lag_max = Gauge(
            "raptormq_spark_lag_max", "Unread offsets of the queue with the largest lag.", labels, registry=registry
        )
        self._lost = Gauge("raptormq_spark_lost", "Offsets deleted before they were read.", labels, registry=registry)
        self._unreachable = Gauge(
            "raptormq_spark_unreachable_queues",
            "Queues that no broker offers, whose lag counts up to the last known end.",
            labels,
            registry=registry,
        )
        self._batch = Gauge("raptormq_spark_batch", "Number of the last batch.", ["query"], registry=registry)
        self._rows = Counter("raptormq_spark_rows", "Rows read.", ["query"], registry=registry)
        self._seconds = Histogram(
            "raptormq_spark_batch_seconds", "Duration of batches.", ["query"], buckets=_BATCH_SECONDS, registry=registry
        )
        self._names: dict[str, str] = {}
        self._topics: dict[str, set[str]] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Update the metrics from the report of a batch."""
        progress = event.progress
        if not any(lag_between(each.endOffset, each.latestOffset) is not None for each in progress.sources):
            return
        query = progress.name or str(progress.id)
        self._names[str(progress.id)] = query
        self._batch.labels(query).set(progress.batchId)
        self._rows.labels(query).inc(progress.numInputRows)
        self._seconds.labels(query).observe(progress.durationMs.get("triggerExecution", 0) / 1000)
        super().onQueryProgress(event)

    def _keep(self, lag: Lag) -> None:
        by_topic: dict[str, list[MessageQueue]] = {}
        for queue in lag.by_queue:
            by_topic.setdefault(queue.topic, []).append(queue)
        for topic, queues in by_topic.items():
            behind = [lag.by_queue[queue] for queue in queues]
            self._lag.labels(lag.query, topic).set(sum(behind))
            self._lag_max.labels(lag.query, topic).set(max(behind))
            self._lost.labels(lag.query, topic).set(sum(lag.lost.get(queue, 0) for queue in queues))
            self._unreachable.labels(lag.query, topic).set(sum(queue in lag.unreachable for queue in queues))
        self._topics.setdefault(lag.query, set()).update(by_topic)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Remove the metrics of the query, which would otherwise keep their last values."""
        query = self._names.pop(str(event.id), None)
        if query is None:
            return
        for topic in self._topics.pop(query, ()):
            for by_topic in (self._lag, self._lag_max, self._lost, self._unreachable):
                by_topic.remove(query, topic)
        for by_query in (self._batch, self._rows, self._seconds):
            by_query.remove(query)
