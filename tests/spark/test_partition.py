"""A task that reads ranges of several queues."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import DataLoss
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.partition import QueuePartition, read_partition
from pyspark_raptormq.planner import QueueRange
from raptormq.protocol.message import MessageQueue
from tests.spark.memory_broker import BROKER, MemoryBroker

QUEUES, ROWS = 40, 3


async def test_every_range_of_a_task_is_read_in_order() -> None:
    with MemoryBroker(pull_count=2) as broker:
        broker.create("t", QUEUES)
        for number in range(QUEUES * ROWS):
            broker.send("t", number % QUEUES, b"%d" % number)
        options = SourceOptions(Connection((broker.address,)), topics=("t",), columns=("queueId", "queueOffset"))
        ranges = [QueueRange(MessageQueue("t", BROKER, number), 0, ROWS) for number in range(QUEUES)]
        partition = pickle.loads(pickle.dumps(QueuePartition(ranges, {})))
        found = await asyncio.to_thread(lambda: list(read_partition(partition, options)))
        rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
        assert rows == [(number, offset) for number in range(QUEUES) for offset in range(ROWS)]
        broker.topics["t"][QUEUES - 1].first = 1
        with pytest.raises(DataLoss, match=f"t@{BROKER}:{QUEUES - 1}"):
            await asyncio.to_thread(lambda: list(read_partition(partition, options)))
        await asyncio.to_thread(cluster_of(options.connection).close)
