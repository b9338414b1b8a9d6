"""The unit that Spark schedules: one task reads one range of one queue.

Neighbour: `scan`, which reads it; `reader` and `stream_reader` plan partitions and are called for each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan


class QueuePartition(InputPartition):
    """A range of one queue; pickled from the driver to an executor."""

    def __init__(self, wanted: QueueRange, topic_id: str | None = None) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.topic_id = topic_id
        """Of the topic that the offsets are of; None where that is not known."""


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one task; Spark makes a partition of its own up when there is nothing to read."""
    if isinstance(partition, QueuePartition):
        cluster = cluster_of(options.connection)
        yield from scan(partition.wanted, options, cluster, topic_id=partition.topic_id, keys=cluster.keys)
