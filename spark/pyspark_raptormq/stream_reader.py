"""The streaming reader: Spark's side of `stream_progress`.

Spark keeps one such object per query in a process of its own for the offsets, and pickles another to the executors for
`read`. `latestOffset` has its two-argument form (Spark 4.2), by which Spark knows that the source limits its batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.errors import OptionError
from pyspark_raptormq.offsets import QueueOffsets, StreamOffset, place_of, stream_offset
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.partition import QueuePartition, read_partition
from pyspark_raptormq.stream_progress import StreamProgress
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger

log = get_logger(__name__)

_FIRST_IDLE_PAUSE_S = 0.01
_LONGEST_IDLE_PAUSE_S = 0.2


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader that cannot be, until Spark asks the first question: only then it shows the reason."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise."""
        raise self._error


class RaptorMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._progress: StreamProgress | None = None
        self._idle_pause_s = 0.0
        self._ends_soon = False
        self._shown: QueueOffsets | None = None
        """Offsets that the consumer group was set to."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the document of the position where a new query starts."""
        return self._stream.initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit if an option sets any: Spark knows no sets of them, so `latestOffset` looks at the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return (
            ReadAllAvailable()
            if options.min_offsets_per_trigger is None
            else ReadMinRows(options.min_offsets_per_trigger)
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take the ends of the queues as they are now for the end of the query."""
        self._ends_soon = True
        self._stream.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the document of the next batch's end; `start` itself when there is nothing new."""
        begin = stream_offset(start)
        self._show_progress(begin)
        if isinstance(limit, ReadAllAvailable):  # no limit is set, or Trigger.Once, which has none
            end = self._stream.advance(begin, None)
        else:
            end = self._stream.advance(
                begin,
                self._options.max_offsets_per_trigger,
                max_bytes=self._options.max_bytes_per_trigger,
                min_rows=None if self._ends_soon else self._options.min_offsets_per_trigger,
            )
        if end is not begin:
            self._idle_pause_s = 0.0
            return end.to_document()
        self._rest()
        return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of all queues and how far the batch is behind them, for Spark's progress reports."""
        return self._stream.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of one batch."""
        last = stream_offset(end)
        ranges = self._stream.ranges(stream_offset(start), last)
        return [QueuePartition(each, last.topic_ids.get(place_of(each.queue))) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        return read_partition(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this one batch late, and not at all for the last one of Trigger.AvailableNow."""

    def _show_progress(self, read: StreamOffset) -> None:
        """Show progress as the offsets of a consumer group, if option `consumerGroup` asks for it; best effort.

        When Spark asks where the next batch ends, everything before its start is done. It asks for the last time when
        there is nothing more to read, so the last batch of Trigger.AvailableNow is shown too.
        """
        group = self._options.consumer_group
        if group is None or read.queues == self._shown:
            return
        try:
            cluster_of(self._options.connection).report(group, read.queues)
            self._shown = dict(read.queues)
        except RaptorMQError as error:
            log.warning("progress of group %s is not reported: %s", group, error)

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
