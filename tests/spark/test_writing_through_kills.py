"""Tasks of the sink with a broker that is killed: rows of a successful task are stored."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pytest

from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.errors import SendFailed
from pyspark_raptormq.sink.options import SinkOptions, parse_sink_options
from pyspark_raptormq.sink.writer import WrittenRows, write_task
from raptormq.client import AdminClient, PullConsumer
from tests.faults.broker_process import process, serving

ROWS_PER_BATCH = 500
BATCHES = 12
WAIT_S = 60.0


def batches(number_of_rows: int, reached: threading.Event, after: int) -> Iterator[pa.RecordBatch]:
    """Return batches with numbered bodies. `reached` is set when this number is requested."""
    for first in range(0, number_of_rows, ROWS_PER_BATCH):
        if first >= after * ROWS_PER_BATCH:
            reached.set()
        yield pa.record_batch({"value": pa.array([b"%d" % n for n in range(first, first + ROWS_PER_BATCH)])})


async def stored(name_server: str, topic: str) -> Counter[bytes]:
    """Return all bodies of a topic."""
    found: Counter[bytes] = Counter()
    async with PullConsumer(name_servers=name_server) as consumer:
        for queue in await consumer.queues(topic):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, 1000)
                found.update(message.body for message in result.messages())
                offset = result.next_offset
    return found


def options_for(name_server: str, **more: str) -> SinkOptions:
    """A small limit of messages in flight, so that the task often waits for the broker."""
    raw = {"nameServer": name_server, "topic": "t", "maxInFlightBytes": "64k", "batchMaxBytes": "4k"}
    return parse_sink_options(raw | more)


class Servers:
    """A name server, and a broker that can be killed and restarted on its port and store."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._folder = folder
        self._name_server_port, self._broker_port = ports
        self.name_server = f"127.0.0.1:{self._name_server_port}"

    def serve_names(self) -> AbstractAsyncContextManager[Popen[bytes]]:
        """Run the name server."""
        settings = {"listenPort": self._name_server_port, "bindAddress": "127.0.0.1"}
        settings |= {name: self._folder / name for name in ("kvConfigPath", "configStorePath")}
        config = self._folder / "namesrv.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return serving(["namesrv", "-c", str(config)])

    def broker(self) -> AbstractAsyncContextManager[Popen[bytes]]:
        """Run the broker."""
        return process(self._folder, self._broker_port, {"namesrvAddr": self.name_server, "brokerIP1": "127.0.0.1"})

    async def write_and_kill(self, options: SinkOptions) -> asyncio.Task[WrittenRows]:
        """Start to write, and kill the broker meanwhile."""
        reached = threading.Event()
        async with self.broker() as broker:
            async with AdminClient(name_servers=self.name_server) as admin:
                await admin.create_topic("t", 4, 4)
            rows = batches(BATCHES * ROWS_PER_BATCH, reached, after=BATCHES // 3)
            writing = asyncio.create_task(asyncio.to_thread(write_task, rows, options))
            assert await asyncio.to_thread(reached.wait, WAIT_S)
            broker.kill()
            await asyncio.to_thread(broker.wait)
        assert not writing.done()
        return writing


@pytest.mark.timeout(120)
async def test_a_broker_that_is_killed_and_comes_back_costs_no_row(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    options = options_for(servers.name_server)
    async with servers.serve_names():
        writing = await servers.write_and_kill(options)
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
    options = options_for(servers.name_server, retryTimeoutMs="1500")
    async with servers.serve_names():
        writing = await servers.write_and_kill(options)
        with pytest.raises(SendFailed, match=r"rows \d+ to \d+ of partition 0 could not be sent"):
            await writing
    await asyncio.to_thread(cluster_of(options.connection).close)
