"""The unit that Spark schedules: one task reads one range of one queue."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from pyspark_raptormq.planner import QueueRange


class QueuePartition(InputPartition):
    """A range of one queue; pickled from the driver to an executor."""

    def __init__(self, wanted: QueueRange, topic_id: str | None = None) -> None:
        super().__init__(str(wanted))
        self.wanted = wanted
        self.topic_id = topic_id
        """Of the topic that the offsets are of; None where that is not known."""
