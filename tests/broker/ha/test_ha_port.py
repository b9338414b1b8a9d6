"""The protocol of the HA port, and peers that are not slaves or not masters."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.errors import ConfigError
from raptormq.protocol.codes import ResponseCode
from tests.broker.ha.pair import Pair, become, end_of, master_of, pair, read, slave_of
from tests.broker.harness import connected, running
from tests.ports import free_port_run

Ports = Callable[[int], list[int]]
HEAD = struct.Struct(">qi")


@asynccontextmanager
async def dialled(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def pushed(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    offset, size = HEAD.unpack(await reader.readexactly(HEAD.size))
    return offset, await reader.readexactly(size)


async def read_to_end(reader: asyncio.StreamReader) -> None:
    """Wait until the other side has closed the connection."""
    with suppress(ConnectionError):
        await reader.read()


def was_refused(master: Broker, times: int) -> bool:
    return master_of(master).gauges()["ha_refused_connections_total"][1] == times


async def fill(broker: Broker, count: int, size: int = 1_000) -> None:
    async with connected(broker) as peer:
        for number in range(count):
            assert (await peer.send("t", b"%06d" % number + b"x" * size)).code in (ResponseCode.SUCCESS, 11)


async def test_an_empty_slave_gets_every_byte_of_the_log_and_heartbeats(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master()
        await fill(master, 100)
        end = end_of(master)
        expected = b"".join(bytes(part) for part in master._store.read_log(0, end, wait=True))
        async with dialled(brokers.ha_port) as (reader, writer):
            writer.write(struct.pack(">q", 0))
            found = b""
            while len(found) < end:
                offset, data = await pushed(reader)
                assert offset == len(found)
                assert len(data) <= 32_768
                found += data
            assert found == expected
            assert await pushed(reader) == (end, b""), "a heartbeat"
            writer.write(struct.pack(">q", end))
            await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
            await fill(master, 1)
            offset, data = await pushed(reader)
            while not data:
                offset, data = await pushed(reader)
            assert offset == end


async def test_a_push_does_not_cross_segments(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more={"mappedFileSizeCommitLog": "1M"})
        await fill(master, 30, 100_000)
        end = end_of(master)
        async with dialled(brokers.ha_port) as (reader, writer):
            writer.write(struct.pack(">q", 100))  # in the middle of a record, as slaves of Apache RocketMQ may report
            at = 100
            while at < end:
                offset, data = await pushed(reader)
                assert offset == at
                assert offset >> 20 == (offset + len(data) - 1) >> 20
                at += len(data)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the slave is ahead"),
        (struct.pack(">q", -1), "the slave is ahead"),
        (struct.pack(">q", 1 << 40), "the slave is ahead"),
        (struct.pack(">qq", 0, 1 << 40), "it reports"),
    ],
)
async def test_who_is_no_slave_is_closed_and_told_of_once(
    tmp_path: Path, free_ports: Ports, caplog: pytest.LogCaptureFixture, said: bytes, reason: str
) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER")
        for number in range(2):
            async with dialled(brokers.ha_port) as (reader, writer):
                writer.write(said)
                await read_to_end(reader)
            await become(partial(was_refused, master, number + 1))
        assert caplog.text.count(reason) == 1
        async with connected(master) as peer:
            assert (await peer.send("t", b"one")).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_slave_that_is_silent_or_does_not_read_is_closed(tmp_path: Path, free_ports: Ports) -> None:
    more = {"haHousekeepingInterval": "400"}
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more=more)
        await fill(master, 100, 100_000)
        async with dialled(brokers.ha_port), dialled(brokers.ha_port) as (_, writer):
            writer.write(struct.pack(">q", 0))
            await become(lambda: len(master_of(master).connections()["haConnectionInfo"]) == 2)
            await fill(master, 10)
            await become(lambda: not master_of(master).connections()["haConnectionInfo"])


async def test_a_slave_that_confirms_nothing_holds_nobody_up_for_long(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER", {"slaveTimeout": "200"})
        async with dialled(brokers.ha_port) as (_, writer), connected(master) as peer:
            writer.write(struct.pack(">q", 0))
            await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
            late = await peer.send("t", b"one")
            assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert late.ext_fields["msgId"]
            assert (await peer.send("t", b"two", properties="WAIT\x01false\x02")).code == ResponseCode.SUCCESS
            assert await read(peer, "t", 2) == [b"one", b"two"], "consumers receive both messages"


async def test_only_the_addresses_of_slaves_may_connect(
    tmp_path: Path, free_ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more={"haSlaveAddresses": "10.0.0.0/8,192.168.0.7"})
        async with dialled(brokers.ha_port) as (reader, writer):
            writer.write(struct.pack(">q", 0))
            await read_to_end(reader)
        assert was_refused(master, 1)
        assert "its address is not in haSlaveAddresses" in caplog.text


async def test_a_port_that_is_taken_stops_only_who_needs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = free_port_run(before=0, after=1)
    taken = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port + 1)
    try:
        pairs = {"listenPort": str(port), "brokerRole": "ASYNC_MASTER"}
        async with running(tmp_path, pairs) as broker, connected(broker) as peer:
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
        assert "cannot serve slaves: cannot listen on" in caplog.text
        for needed in ({"haListenPort": str(port + 1)}, {"brokerRole": "SYNC_MASTER"}):
            with pytest.raises(ConfigError, match="cannot listen on"):
                async with running(tmp_path, pairs | needed):
                    pass
    finally:
        taken.close()


# --- masters that are none ---


Change = Callable[[int, int, bytes], bytes]


class Proxy:
    """A proxy between a slave and the HA port of its master. ``change`` gets the number of the connection and each
    push, and returns the bytes to send.
    """

    def __init__(self, port: int, change: Change) -> None:
        self._port = port
        self._change = change
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, stack: Pair) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        stack.opened.push_async_callback(self.stop)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._tasks.add(serving)
        number = self.connections
        self.connections += 1
        async with dialled(self._port) as (back, forth):
            pumps = [
                asyncio.ensure_future(self._reports(reader, forth)),
                asyncio.ensure_future(self._pushes(number, back, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                writer.close()
                self._tasks.discard(serving)

    async def _pushes(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(self._change(number, *await pushed(reader)))
            await writer.drain()

    async def _reports(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4_096):
            writer.write(data)


async def followed(brokers: Pair, change: Change, check: Callable[[Broker, Broker, Proxy], Awaitable[None]]) -> None:
    master = await brokers.master()
    await fill(master, 50)
    proxy = Proxy(brokers.ha_port, change)
    slave = await brokers.slave(more={"haMasterAddress": await proxy.start(brokers)})
    await check(master, slave, proxy)


def frame(offset: int, data: bytes) -> bytes:
    return HEAD.pack(offset, len(data)) + data


async def test_damaged_pushes_are_refused_and_asked_for_again(tmp_path: Path, free_ports: Ports) -> None:
    damages: list[Callable[[int, bytes], bytes]] = [
        lambda offset, data: frame(offset, data[:200] + b"?" + data[201:]),  # in a body, so that its CRC is wrong
        lambda offset, data: frame(offset, b"\0" * len(data)),
        lambda offset, data: frame(offset + 1, data),
        lambda offset, data: HEAD.pack(offset, -1) + data,
        lambda offset, data: HEAD.pack(offset, (64 << 20) + 1) + data,
    ]

    def change(connection: int, offset: int, data: bytes) -> bytes:
        return damages[connection](offset, data) if connection < len(damages) and data else frame(offset, data)

    async def check(master: Broker, slave: Broker, proxy: Proxy) -> None:
        await become(lambda: end_of(slave) == end_of(master))
        assert proxy.connections == len(damages) + 1
        async with connected(slave) as peer:
            assert len(await read(peer, "t", 50)) == 50

    async with pair(tmp_path, free_ports(2)) as brokers:
        await followed(brokers, change, check)


async def test_pushes_may_end_anywhere(tmp_path: Path, free_ports: Ports) -> None:
    def change(_: int, offset: int, data: bytes) -> bytes:
        cuts = [0, 1, 5, 90, 91, 92, *range(100, len(data), 777), len(data)]
        parts = [(low, high) for low, high in pairwise(cuts) if high > low]
        return b"".join(frame(offset + low, data[low:high]) for low, high in parts) or frame(offset, data)

    async def check(master: Broker, slave: Broker, proxy: Proxy) -> None:
        await become(lambda: end_of(slave) == end_of(master))
        assert proxy.connections == 1
        assert slave_of(slave).facts()["haBehindBytes"] == "0"

    async with pair(tmp_path, free_ports(2)) as brokers:
        await followed(brokers, change, check)


ROOT = '{"accessKey": "root", "secretKey": "root-secret"}'
ACCESS_CONTROL = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username": "root", "password": "root-secret"}',
    "innerClientAuthenticationCredentials": ROOT,
}


async def test_with_access_control_slaves_sign_for_the_tables(tmp_path: Path, free_ports: Ports) -> None:
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master(more=ACCESS_CONTROL | {"haSlaveAddresses": "127.0.0.1"})
        slave = await brokers.slave(more=ACCESS_CONTROL)
        await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
        await become(lambda: master_of(master).connections()["inSyncSlaveNums"] == 1)
        stranger = ACCESS_CONTROL | {"innerClientAuthenticationCredentials": ROOT.replace("root-secret", "guessed")}
        other = await brokers.slave(2, stranger)
        await become(lambda: "code 16" in slave_of(other).facts().get("haReason", ""))
