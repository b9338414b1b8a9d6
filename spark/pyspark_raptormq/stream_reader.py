"""The streaming reader: Spark's side of `stream_progress`.

Spark keeps one such object per query in a process of its own for the offsets, and pickles another to the executors for
`read`. `latestOffset` has its two-argument form (Spark 4.2), by which Spark knows that the source limits its batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.offsets import place_of, stream_offset
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.partition import QueuePartition
from pyspark_raptormq.scan import scan
from pyspark_raptormq.stream_progress import StreamProgress
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger

log = get_logger(__name__)

_FIRST_IDLE_PAUSE_S = 0.01
_LONGEST_IDLE_PAUSE_S = 0.2


class RaptorMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._progress: StreamProgress | None = None
        self._idle_pause_s = 0.0
        self._ends_soon = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the document of the position where a new query starts."""
        return self._stream.initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that option `maxOffsetsPerTrigger` sets."""
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the ends of the queues as they are now for the end of the query."""
        self._ends_soon = True
        self._stream.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the document of the next batch's end; `start` itself when there is nothing new."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = stream_offset(start)
        end = self._stream.advance(begin, max_rows)
        if end is not begin:
            self._idle_pause_s = 0.0
            return end.to_document()
        self._rest()
        return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of all queues, from which progress reports tell the lag."""
        latest = self._stream.latest
        return None if latest is None else latest.to_document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of one batch."""
        last = stream_offset(end)
        ranges = self._stream.ranges(stream_offset(start), last)
        return [QueuePartition(each, last.topic_ids.get(place_of(each.queue))) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        if isinstance(partition, QueuePartition):
            yield from scan(
                partition.wanted, self._options, cluster_of(self._options.connection), topic_id=partition.topic_id
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Show progress as the offsets of a consumer group, if option `consumerGroup` asks for it; best effort.

        Spark calls this one batch late and not at all for the last one of Trigger.AvailableNow.
        """
        if self._options.consumer_group is None:
            return
        try:
            cluster_of(self._options.connection).report(self._options.consumer_group, stream_offset(end).queues)
        except RaptorMQError as error:
            log.warning("progress of group %s is not reported: %s", self._options.consumer_group, error)

    @property
    def _stream(self) -> StreamProgress:
        if self._progress is None:
            self._progress = StreamProgress(self._options, cluster_of(self._options.connection))
        return self._progress

    def _rest(self) -> None:
        """Without a trigger interval Spark asks again at once, a hundred times a second: an idle query must cost
        nothing.
        """
        if self._ends_soon:
            return
        self._idle_pause_s = min(max(2 * self._idle_pause_s, _FIRST_IDLE_PAUSE_S), _LONGEST_IDLE_PAUSE_S)
        time.sleep(self._idle_pause_s)
