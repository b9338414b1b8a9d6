"""Batch reader. Start and end offsets are determined once, when the query is planned.

`source` creates the reader, `cluster_offsets` resolves the bounds, `pushdown` restricts them, `partition` reads. Spark
pickles the reader from the planning process to executors, so its state is limited to options and filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.cluster_offsets import (
    available_queues,
    check_assigned,
    check_bounds,
    offsets_at,
    with_topic_ids,
    without_recreated_topics,
)
from pyspark_raptormq.offsets import QueueOffsets, TopicIds
from pyspark_raptormq.options import EARLIEST, LATEST, SourceOptions
from pyspark_raptormq.partition import QueuePartition, read_partition
from pyspark_raptormq.planner import QueueRange, pack_ranges, ranges_between, split_ranges
from pyspark_raptormq.pushdown import Pushed, push
from raptormq.client import Sql
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.tags import TAG_SEPARATOR


class RaptorMQReader(DataSourceReader):
    """Reads the messages between two positions."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """Plan one task per non-empty queue. Options `minPartitions` and `maxRowsPerPartition` split large queues.
        Small queues share a task."""
        options, cluster = self._options, cluster_of(self._options.connection)
        queues = available_queues(options, cluster, self._pushed.takes)
        check_assigned(options, cluster)
        (start, end), ids = with_topic_ids(cluster, queues, lambda ids: self._bounds(queues, ids))
        wanted = self._narrowed(ranges_between(start, end))
        ranges = split_ranges(wanted, options.min_partitions, options.max_rows_per_partition)
        tasks = pack_ranges(ranges, options.min_partitions, options.max_rows_per_partition)
        return [QueuePartition(each, ids) for each in tasks]

    def _narrowed(self, ranges: Iterable[QueueRange]) -> list[QueueRange]:
        """Return the ranges restricted by the pushed filters."""
        pushed, cluster = self._pushed, cluster_of(self._options.connection)
        clipped = [left for each in ranges if (left := pushed.clip(each)) is not None]
        queues = [each.queue for each in clipped]
        first = {} if pushed.first_ms is None else cluster.offsets_by_time(queues, pushed.first_ms)
        end = {} if pushed.end_ms is None else cluster.offsets_by_time(queues, pushed.end_ms)
        start_of = {each.queue: max(each.start, first.get(each.queue, 0)) for each in clipped}
        return ranges_between(start_of, {each.queue: min(each.end, end.get(each.queue, each.end)) for each in clipped})

    def _bounds(self, queues: Sequence[MessageQueue], ids: TopicIds) -> tuple[QueueOffsets, QueueOffsets]:
        options, cluster, fail = self._options, cluster_of(self._options.connection), self._options.fail_on_data_loss
        start = offsets_at(without_recreated_topics(options.start, ids, fail=fail), queues, cluster, unnamed=EARLIEST)
        end = offsets_at(without_recreated_topics(options.end, ids, fail=fail), queues, cluster, unnamed=LATEST)
        return check_bounds(start, end, cluster, fail=fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        return read_partition(partition, self._options)


class FilteringReader(RaptorMQReader):
    """A `RaptorMQReader` with filter pushdown; see `pushdown`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept filters, and return those that Spark must still apply."""
        sql = isinstance(self._options.expression, Sql)
        self._pushed, left = push(filters, tags=None if sql else self._options.tags)
        if self._pushed.tags:
            expression = f" {TAG_SEPARATOR} ".join(sorted(self._pushed.tags))
            self._options = replace(self._options, expression=expression)
        return left
