"""The Python client with `raptormq dev` in another process: killed, frozen, and restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    Order,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    SendStatus,
    message_key,
)
from raptormq.errors import RaptorMQError, TransportError
from tests.client.embedded_cluster import Cluster, listed
from tests.client.eventually import eventually

pytestmark = pytest.mark.client

RAPTORMQ = str(Path(sys.executable).with_name("raptormq"))


class DevServer:
    """`raptormq dev`. It keeps its ports and its data across restarts."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._arguments = ["dev", "--data-dir", str(folder)]
        names = ("--namesrv-port", "--broker-port", "--metrics-port")
        for name, port in zip(names, ports, strict=True):
            self._arguments += [name, str(port)]
        self.name_servers = f"127.0.0.1:{ports[0]}"
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        self._process = await asyncio.create_subprocess_exec(RAPTORMQ, *self._arguments, stdout=asyncio.subprocess.PIPE)
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line.startswith(b"ready "), line

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


@pytest.fixture
def server(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> DevServer:
    return DevServer(tmp_path, free_ports(3))


async def send_for_sure(producer: Producer, message: Message) -> None:
    """Send until a broker has stored the message."""
    while True:
        try:
            await producer.send(message, timeout=2)
        except RaptorMQError:
            await asyncio.sleep(0.05)
        else:
            return


async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed_in_the_middle(server: DevServer) -> None:
    count, senders = 3000, 16
    expected = {b"%d" % number for number in range(count)}
    seen: Counter[bytes] = Counter()
    progress = asyncio.Condition()

    async def listener(messages: list[MessageExt]) -> None:
        async with progress:
            seen.update(message.body for message in messages)
            progress.notify_all()

    async def send_some(producer: Producer, first: int) -> None:
        for number in range(first, count, senders):
            await send_for_sure(producer, Message("t", b"%d" % number))

    config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=1)
    async with (
        server,
        Producer("p", name_servers=server.name_servers) as producer,
        PushConsumer("g", name_servers=server.name_servers, config=config) as consumer,
    ):
        consumer.subscribe("t", "*", listener)
        sending = asyncio.gather(*(send_some(producer, first) for first in range(senders)))
        for share in (4, 2):
            async with progress:
                await progress.wait_for(lambda: len(seen) >= count // share)  # noqa: B023 - awaited in this turn
            await server.kill()
            await server.start()
        await sending
        async with progress:
            await progress.wait_for(lambda: set(seen) == expected)


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_sends_outlive_the_restart_of_their_broker(server: DevServer, auto_batch: bool) -> None:
    config = ProducerConfig(auto_batch=auto_batch, send_timeout=60)
    async with server, Producer("p", name_servers=server.name_servers, config=config) as producer:
        await producer.send(Message("t", b"before"))
        queues = [None, *await producer.queues("t")]
        await server.kill()
        sending = [producer.submit(Message("t", b"meanwhile"), queue=queue) for queue in queues]
        await server.start()
        results = await asyncio.gather(*sending)
    assert {result.status for result in results} == {SendStatus.SEND_OK}


async def test_a_frozen_broker_costs_the_time_of_the_call_and_no_more(server: DevServer) -> None:
    clock = asyncio.get_running_loop().time
    config = ProducerConfig(retries=50)
    async with server, Producer("p", name_servers=server.name_servers, config=config) as producer:
        await producer.send(Message("t", b"before"))
        server.signal(signal.SIGSTOP)
        started = clock()
        with pytest.raises(TransportError):
            await producer.send(Message("t", b"meanwhile"), timeout=1.0)
        assert clock() - started < 20  # not a second for each attempt
        server.signal(signal.SIGCONT)
        await send_for_sure(producer, Message("t", b"after"))


async def test_a_poll_goes_on_after_the_broker_was_killed(server: DevServer) -> None:
    async with server:
        config = ProducerConfig(retries=20)
        async with (
            Producer("p", name_servers=server.name_servers, config=config) as producer,
            PullConsumer(name_servers=server.name_servers) as consumer,
        ):
            queue = (await producer.send(Message("t", b"0"))).queue
            consumer.assign([queue])
            assert [message.body for message in await consumer.poll(10)] == [b"0"]
            await server.kill()
            await server.start()
            await producer.send(Message("t", b"1"), queue=queue, timeout=20)
            bodies: list[bytes] = []
            while b"1" not in bodies:
                bodies += [message.body for message in await consumer.poll(20)]


@asynccontextmanager
async def another_broker(folder: Path, name_servers: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a broker in another process, in addition to those of the name servers."""
    settings = {
        "brokerName": "another",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "metricsPort": -1,
        "namesrvAddr": name_servers,
        "storePathRootDir": folder / "another",
        "mappedFileSizeCommitLog": "16M",
    }
    path = folder / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = await asyncio.create_subprocess_exec(RAPTORMQ, "broker", "-c", str(path), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"ready ")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_frozen_broker_keeps_no_new_subscription_from_the_others(tmp_path: Path, free_port: int) -> None:
    got = asyncio.Queue[bytes]()

    async def listener(messages: list[MessageExt]) -> None:
        got.put_nowait(messages[0].body)

    async with (
        Cluster(tmp_path) as cluster,
        another_broker(tmp_path, cluster.name_servers, free_port) as frozen,
        Producer("p", name_servers=cluster.name_servers) as producer,
    ):
        await listed(cluster.name_servers, "another", f"127.0.0.1:{free_port}")
        for topic in ("a", "b"):
            await cluster.create_topic(topic)
        queues = [queue for queue in await producer.queues("b") if queue.broker_name != "another"]
        patient = ClientConfig(cluster.name_servers, request_timeout=300)
        async with PushConsumer("g", client_config=patient) as consumer:
            consumer.subscribe("a", "*", listener)
            places = {(topic, broker) for topic in ("a", "%RETRY%g") for broker in ("broker-0", "another")}
            await eventually(lambda: {(each.topic, each.broker_name) for each in consumer.assignment} == places)
            frozen.send_signal(signal.SIGSTOP)
            consumer.subscribe("b", "*", listener)
            await producer.send(Message("b", b"x"), queue=queues[0])
            async with asyncio.timeout(60):
                assert await got.get() == b"x"
            frozen.kill()  # else the consumer waits as long when it closes


async def test_order_by_key_holds_from_the_command_line_to_the_consumer_when_the_broker_is_killed(
    server: DevServer,
) -> None:
    count, keys = 300, ["account 1", "account 2", "account 3"]
    first: dict[str, list[int]] = {key: [] for key in [*keys, "cli"]}
    running: set[str] = set()

    async def listener(messages: list[MessageExt]) -> None:
        for message in messages:
            key = message_key(message)
            assert key not in running
            running.add(key or "")
            await asyncio.sleep(0)
            running.discard(key or "")
            number = int(message.body)
            if number not in first[key or ""]:  # a repeated message is a duplicate
                first[key or ""].append(number)

    async def send(producer: Producer, key: str) -> None:
        for number in range(count):
            while True:
                try:
                    await producer.send(Message("t", b"%d" % number), key=key, timeout=2)
                except RaptorMQError:
                    await asyncio.sleep(0.05)
                else:
                    break

    config = ConsumerConfig(
        consume_from=ConsumeFromWhere.FIRST, order=Order.BY_KEY, commit_interval=0.2, rebalance_interval=1
    )
    async with (
        server,
        Producer("p", name_servers=server.name_servers, auto_batch=True) as producer,
        PushConsumer("g", name_servers=server.name_servers, config=config) as consumer,
    ):
        consumer.subscribe("t", "*", listener)
        sending = asyncio.gather(*(send(producer, key) for key in keys))
        await eventually(lambda: len(first[keys[0]]) > count // 3)
        await server.kill()
        await server.start()
        await sending
        command = [RAPTORMQ, "produce", "t", "--key", "cli", "--batch", "7", "-n", server.name_servers]
        produce = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        await produce.communicate(b"".join(b"%d\n" % number for number in range(count)))
        assert produce.returncode == 0
        await eventually(lambda: all(len(numbers) == count for numbers in first.values()))
    assert first == {key: list(range(count)) for key in [*keys, "cli"]}
