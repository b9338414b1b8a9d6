"""Tasks of the sink with a broker that is killed: rows of a successful task are stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.errors import SendFailed
from pyspark_raptormq.sink.options import SinkOptions, parse_sink_options
from pyspark_raptormq.sink.writer import WrittenRows, write_task
from tests.spark.servers import Servers, stored

ROWS_PER_BATCH = 500
BATCHES = 12
WAIT_S = 60.0


def batches(reached: threading.Event, killed: threading.Event) -> Iterator[pa.RecordBatch]:
    """Return batches with numbered bodies. A request after a third sets `reached`. The last one waits for `killed`."""
    for number in range(BATCHES):
        if number == BATCHES // 3:
            reached.set()
        if number == BATCHES - 1:
            assert killed.wait(WAIT_S)
        first = number * ROWS_PER_BATCH
        yield pa.record_batch({"value": pa.array([b"%d" % n for n in range(first, first + ROWS_PER_BATCH)])})


def options_for(name_server: str, **more: str) -> SinkOptions:
    """A small limit of messages in flight, so that the task often waits for the broker."""
    raw = {"nameServer": name_server, "topic": "t", "maxInFlightBytes": "64k", "batchMaxBytes": "4k"}
    return parse_sink_options(raw | more)


async def write_and_kill(servers: Servers, options: SinkOptions) -> asyncio.Task[WrittenRows]:
    """Start to write, and kill the broker meanwhile."""
    reached, killed = threading.Event(), threading.Event()
    async with servers.broker() as broker:
        await servers.create("t")
        writing = asyncio.create_task(asyncio.to_thread(write_task, batches(reached, killed), options))
        assert await asyncio.to_thread(reached.wait, WAIT_S)
        broker.kill()
        await asyncio.to_thread(broker.wait)
    assert not writing.done()
    killed.set()
    return writing


@pytest.mark.timeout(120)
async def test_a_broker_that_is_killed_and_comes_back_costs_no_row(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    options = options_for(servers.name_server)
    async with servers.names():
        writing = await write_and_kill(servers, options)
        async with servers.broker():
            written = await writing
            found = await stored(servers.name_server, "t")
    await asyncio.to_thread(cluster_of(options.connection).close)
    bodies = {b"%d" % n for n in range(BATCHES * ROWS_PER_BATCH)}
    assert found.keys() == bodies
    assert written == WrittenRows(len(bodies), sum(map(len, bodies)))


@pytest.mark.timeout(120)
async def test_a_broker_that_stays_away_fails_the_task(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    servers = Servers(tmp_path, free_ports(2))
    options = options_for(servers.name_server, retryTimeoutMs="10000")
    async with servers.names():
        writing = await write_and_kill(servers, options)
        with pytest.raises(SendFailed, match=r"rows \d+ to \d+ of partition 0 could not be sent"):
            await writing
    await asyncio.to_thread(cluster_of(options.connection).close)
