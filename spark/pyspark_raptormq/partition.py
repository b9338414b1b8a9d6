"""Input partition: one Spark task reads an offset range of one queue, or small ranges of several queues.

`reader` and `stream_reader` create partitions; `scan` reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.offsets import TopicIds, place_of
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from pyspark_raptormq.task_process import spare_modules_in_collections

_MAX_SCANS = 16
"""Maximum number of ranges whose first request is sent in advance. Each range may have a response in memory."""


class QueuePartition(InputPartition):
    """Offset ranges that one task reads, one after the other. Spark pickles it from the driver to an executor."""

    def __init__(self, ranges: Sequence[QueueRange], ids: TopicIds) -> None:
        super().__init__(", ".join(map(str, ranges)))
        self.ranges = [(each, ids.get(place_of(each.queue))) for each in ranges]
        """The ranges, each with the id of the topic to which its offsets belong; None if unknown."""


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the Arrow batches of one task. Nothing is yielded for the dummy partition that Spark creates for empty
    plans."""
    if not isinstance(partition, QueuePartition):
        return
    cluster = cluster_of(options.connection)
    spare_modules_in_collections()
    begun: deque[Iterator[pa.RecordBatch]] = deque()
    for wanted, topic_id in partition.ranges:
        begun.append(scan(wanted, options, cluster, topic_id=topic_id, keys=cluster.keys))
        if len(begun) == _MAX_SCANS:
            yield from begun.popleft()
    for each in begun:
        yield from each
