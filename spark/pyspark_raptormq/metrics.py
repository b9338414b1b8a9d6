"""How far a streaming query is behind: Spark shows no metrics of Python sources, but its progress reports hold both
offsets.

`LagListener` is added by the job: ``spark.streams.addListener(LagListener())``. Neighbour:
`stream_reader.reportLatestOffset`.
Source: `avgOffsetsBehindLatest` and its siblings of Spark's Kafka connector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_raptormq.errors import OffsetFormatError
from pyspark_raptormq.offsets import QueueOffsets, parse_json, stream_offset
from raptormq.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class Lag:
    """Offsets between what a query has read and the ends of its queues, when its last batch was planned."""

    query: str
    """The query's name, else its id."""
    batch_id: int
    by_queue: QueueOffsets
    """Offsets behind, per queue."""

    @property
    def total(self) -> int:
        """Offsets behind over all queues."""
        return sum(self.by_queue.values())

    @property
    def largest(self) -> int:
        """Offsets behind in the queue that is farthest behind."""
        return max(self.by_queue.values(), default=0)


def offsets_behind(end_offset: str | None, latest_offset: str | None) -> QueueOffsets | None:
    """Return how far `end_offset` is behind `latest_offset` per queue; `None` for the offsets of another kind of
    source.
    """
    if not end_offset or not latest_offset:
        return None
    try:
        end, latest = stream_offset(parse_json(end_offset)), stream_offset(parse_json(latest_offset))
    except OffsetFormatError:
        return None
    return {queue: max(0, offset - end.queues.get(queue, 0)) for queue, offset in latest.queues.items()}


def log_lag(lag: Lag) -> None:
    """Write one line to this module's log."""
    log.info(
        "query %s, batch %d: %d offsets behind, at most %d in a queue", lag.query, lag.batch_id, lag.total, lag.largest
    )


class LagListener(StreamingQueryListener):
    """Calls `report` after every batch of a query that reads from RaptorMQ.

    Args:
        report: what to do with the lag, called on Spark's listener thread; the default writes it to the log.
    """

    def __init__(self, report: Callable[[Lag], None] = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag of each of the query's sources that is ours."""
        progress = event.progress
        for source in progress.sources:
            behind = offsets_behind(source.endOffset, source.latestOffset)
            if behind is not None:
                self._report(Lag(progress.name or str(progress.id), progress.batchId, behind))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing new: the lag is what it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The last batch has been reported."""
