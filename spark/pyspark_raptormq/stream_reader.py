"""Streaming reader: implements Spark's interface on top of `stream_progress`.

Spark keeps one instance per query in a separate process for the offsets, and pickles another to the executors for
`read`. The two-argument form of `latestOffset` (Spark 4.2) tells Spark that the source supports batch limits.
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
from pyspark_raptormq.group_progress import GroupProgress
from pyspark_raptormq.offsets import stream_offset
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.partition import QueuePartition, read_partition
from pyspark_raptormq.planner import pack_ranges
from pyspark_raptormq.stream_progress import StreamProgress

_FIRST_IDLE_PAUSE_S = 0.01
_LONGEST_IDLE_PAUSE_S = 0.2


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader for invalid options. It raises the error at the first call of Spark, which shows only such errors."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error of the invalid options."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error of the invalid options."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error of the invalid options."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error of the invalid options."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        """Raise the error of the invalid options."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error of the invalid options."""
        raise self._error


class RaptorMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._progress: StreamProgress | None = None
        self._idle_pause_s = 0.0
        self._ends_soon = False
        self._group: GroupProgress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset document of the start of a new query."""
        return self._stream.initial().to_document()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one configured limit, or `ReadAllAvailable`. Spark does not support combined limits for Python
        sources, so `latestOffset` reads the options itself."""
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
        """Fix the current end offsets as the end of the query."""
        self._ends_soon = True
        self._stream.freeze()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset document of the end of the next batch; `start` itself without new messages."""
        begin = stream_offset(start)
        # When Spark requests the end of the next batch, all batches before its start are complete. The last request
        # comes when nothing is left to read, so that the last batch of Trigger.AvailableNow is committed, too.
        if self._options.consumer_group is not None:
            if self._group is None:
                self._group = GroupProgress(self._options.consumer_group, cluster_of(self._options.connection))
            self._group.commit(begin)
        if isinstance(limit, ReadAllAvailable):  # no limit is configured, or the trigger is Trigger.Once
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
        self._pause()
        return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end offsets of all queues and the lag of the batch, for Spark's progress reports."""
        return self._stream.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the tasks of one batch."""
        options, last = self._options, stream_offset(end)
        ranges = self._stream.ranges(stream_offset(start), last)
        tasks = pack_ranges(ranges, options.min_partitions, options.max_rows_per_partition)
        return [QueuePartition(each, last.topic_ids) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        return read_partition(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing. Spark calls this one batch late, and not for the last batch of Trigger.AvailableNow."""

    @property
    def _stream(self) -> StreamProgress:
        if self._progress is None:
            self._progress = StreamProgress(self._options, cluster_of(self._options.connection))
        return self._progress

    def _pause(self) -> None:
        """Pause before the response to Spark, with exponential backoff. Without a trigger interval, Spark would
        otherwise poll an idle query about 100 times per second."""
        if self._ends_soon:
            return
        self._idle_pause_s = min(max(2 * self._idle_pause_s, _FIRST_IDLE_PAUSE_S), _LONGEST_IDLE_PAUSE_S)
        time.sleep(self._idle_pause_s)
