"""The batch reader: fixes start and end once, when the query is planned, and cuts the ranges into tasks.

Neighbours: `source` makes it, `cluster_offsets` fixes the bounds, `scan` reads. Spark asks for the partitions in a
planning process and pickles the reader to executors, so it holds nothing but the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.cluster_offsets import (
    check_assigned,
    check_bounds,
    offsets_at,
    selected_queues,
    still_meant,
    with_topic_ids,
)
from pyspark_raptormq.offsets import QueueOffsets, TopicIds, place_of
from pyspark_raptormq.options import EARLIEST, LATEST, SourceOptions
from pyspark_raptormq.partition import QueuePartition
from pyspark_raptormq.planner import ranges_between, split_ranges
from pyspark_raptormq.scan import scan
from raptormq.protocol.message import MessageQueue


class RaptorMQReader(DataSourceReader):
    """Reads what is between two positions."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan one task per non-empty queue, or more where `minPartitions` or `maxRowsPerPartition` ask for it."""
        options, cluster = self._options, cluster_of(self._options.connection)
        check_assigned(options, cluster)
        queues = selected_queues(options, cluster)
        (start, end), ids = with_topic_ids(cluster, queues, lambda ids: self._bounds(queues, ids))
        ranges = split_ranges(ranges_between(start, end), options.min_partitions, options.max_rows_per_partition)
        return [QueuePartition(each, ids.get(place_of(each.queue))) for each in ranges]

    def _bounds(self, queues: Sequence[MessageQueue], ids: TopicIds) -> tuple[QueueOffsets, QueueOffsets]:
        options, cluster, fail = self._options, cluster_of(self._options.connection), self._options.fail_on_data_loss
        start = offsets_at(still_meant(options.start, ids, fail=fail), queues, cluster, unnamed=EARLIEST)
        end = offsets_at(still_meant(options.end, ids, fail=fail), queues, cluster, unnamed=LATEST)
        return check_bounds(start, end, cluster, fail=fail)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task; Spark makes a task of its own up when there is nothing to read."""
        if isinstance(partition, QueuePartition):
            yield from scan(
                partition.wanted, self._options, cluster_of(self._options.connection), topic_id=partition.topic_id
            )
