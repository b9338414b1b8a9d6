"""Tasks of the sink at a real broker, without Spark."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.sink.options import parse_sink_options
from pyspark_raptormq.sink.writer import RaptorMQWriter
from raptormq.client import AdminClient, MessageExt, PullConsumer
from tests.spark.servers import Servers

ROWS = 3_000


async def _stored(name_server: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    async with PullConsumer(name_servers=name_server) as consumer:
        for queue in await consumer.queues("t"):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, 1000)
                found += result.messages()
                offset = result.next_offset
    return found


@pytest.mark.parametrize("exactly_once", ["false", "true"])
@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_rows_are_stored_once_with_tag_and_keys(
    tmp_path: Path, free_ports: Callable[[int], list[int]], queue_type: str, exactly_once: str
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    options = parse_sink_options(
        {"nameServer": servers.name_server, "topic": "t", "batchMaxBytes": "16k", "exactlyOnce": exactly_once}
    )
    writer = RaptorMQWriter(options, "broker-a")
    numbers = range(ROWS)
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % number for number in numbers]),
            "keys": pa.array([[f"k{number}", "all"] for number in numbers]),
            "tags": pa.array(["JFK"] * ROWS),
        }
    )
    async with servers.names(), servers.broker(), AdminClient(name_servers=servers.name_server) as admin:
        await admin.create_topic("t", 4, 4, attributes={"queue.type": queue_type})
        written = await asyncio.to_thread(writer.write, iter([rows.slice(0, 1000), rows.slice(1000)]))
        await asyncio.to_thread(writer.commit, [written])
        await asyncio.to_thread(cluster_of(options.connection).close)
        assert written.rows == ROWS
        found = await _stored(servers.name_server)
        assert Counter(message.body for message in found) == Counter(b"%d" % number for number in numbers)
        assert {message.tags for message in found} == {"JFK"}
        assert all(message.keys == (f"k{message.body.decode()}", "all") for message in found)
        assert len({message.message_id for message in found}) == ROWS
        by_queue = defaultdict(list)
        for message in found:
            by_queue[message.queue].append(int(message.body))
        assert len(by_queue) == 4
        assert all(each == sorted(each) for each in by_queue.values())

        while not (by_key := await admin.find_messages("t", "k1234")):
            await asyncio.sleep(0.01)  # the index is built after the store; the time limit of the test bounds the wait
        assert b"1234" in {message.body for message in by_key}
