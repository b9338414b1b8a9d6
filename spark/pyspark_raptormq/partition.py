"""Input partition: one Spark task reads one offset range of one queue.

`reader` and `stream_reader` create partitions; `scan` reads them.
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
    """An offset range of one queue. Spark pickles it from the driver to an executor."""

    def __init__(self, wanted: QueueRange, topic_id: str | None = None) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.topic_id = topic_id
        """Id of the topic to which the offsets belong; None if unknown."""


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the Arrow batches of one task. Nothing is yielded for the dummy partition that Spark creates for empty
    plans."""
    if isinstance(partition, QueuePartition):
        cluster = cluster_of(options.connection)
        yield from scan(partition.wanted, options, cluster, topic_id=partition.topic_id, keys=cluster.keys)
