"""A real broker on a free port, and a peer that sends requests to it. The broker's tests share both."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.wiring import Assembly
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import CommandFlag, RemotingCommand
from raptormq.protocol.record import StoredMessage, iter_records
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.store import now_ms
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool
from tests.ports import reserved_port
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem

TIMEOUT = 60.0
"""Time limit of a request in seconds. It ends a test that hangs, and no test expects it: pulls are held for up to 10 s,
and a process may stop for seconds while the machine is busy.
"""
SMALL = {
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "listenPort": "0",
    "metricsPort": "-1",
    "mappedFileSizeCommitLog": "8M",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "98",
    "diskSpaceWarningLevelRatio": "100",
}
"""Settings of a test broker: small files, free ports, and no limits of disk usage.

Port 0 is for a broker whose other ports nobody uses: the system assigns it without the ports beside it
(``tests.ports.BROKER``). :func:`running` reserves all of them.
"""


def settings(root: Path, pairs: dict[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.from_pairs(SMALL | {"storePathRootDir": str(root)} | (pairs or {}))


@asynccontextmanager
async def running(
    root: Path,
    pairs: dict[str, str] | None = None,
    filesystem: FileSystem | None = None,
    clock: Callable[[], int] = now_ms,
) -> AsyncIterator[Broker]:
    """Run a broker. Without ``listenPort`` in ``pairs``, its port and those beside it are reserved until it stops."""
    with ExitStack() as reserved:
        pairs = dict(pairs or {})
        if "listenPort" not in pairs:
            pairs["listenPort"] = str(reserved.enter_context(reserved_port()))
        broker = Broker(settings(root, pairs), filesystem=filesystem, clock=clock)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


def assembly_of(broker: Broker) -> Assembly:
    """Return the components of a running broker."""
    assert broker._assembly is not None
    return broker._assembly


class Peer:
    """A client of the broker under test. It collects the responses, and the requests that the broker sends."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.notices: asyncio.Queue[RemotingCommand] = asyncio.Queue()

    async def call(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, binary: bool = False
    ) -> RemotingCommand:
        """Send a request with these header fields and return the response."""
        command = RemotingCommand(code, _text(fields), body, serialize_type=int(binary))
        return await self.connection.request(command, TIMEOUT)

    def oneway(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> None:
        self.connection.oneway(RemotingCommand(code, _text(fields), body, flag=CommandFlag.ONEWAY))

    async def send(
        self, topic: str, body: bytes, queue_id: int = 0, properties: str = "", **more: object
    ) -> RemotingCommand:
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties) | more, body)

    async def send_list(self, topic: str, bodies: list[bytes], queue_id: int = 0, tags: str = "") -> RemotingCommand:
        text = f"TAGS\x01{tags}\x02".encode() if tags else b""
        body = encode_batch([(7, each, text) for each in bodies])
        return await self.call(RequestCode.SEND_BATCH_MESSAGE, send_fields(topic, queue_id) | {"m": "true"}, body)

    async def pull(
        self, topic: str, offset: int, queue_id: int = 0, *, wait_ms: int = 0, count: int = 32, **more: object
    ) -> RemotingCommand:
        """Pull like a lite pull consumer, with the subscription in the request."""
        fields = pull_fields(topic, offset, queue_id, wait_ms, count) | more
        return await self.call(RequestCode.PULL_MESSAGE, fields)

    async def heartbeat(self, client_id: str, group: str, *topics: str) -> RemotingCommand:
        subscriptions = [Subscription.parse(topic, "*", 1) for topic in topics]
        data = HeartbeatData(client_id, ["producers"], [ConsumerData(group, subscriptions=subscriptions)])
        return await self.call(RequestCode.HEART_BEAT, None, data.to_json())

    # RequestHandler

    def handle(self, _: Connection, requests: list[RemotingCommand]) -> None:
        for request in requests:
            self.notices.put_nowait(request)

    def closed(self, _: Connection) -> None:
        """Send a oneway request."""


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Peer]:
    peer = Peer.__new__(Peer)
    pool = ConnectionPool(peer)
    Peer.__init__(peer, await pool.connection(f"127.0.0.1:{broker.port}"))
    try:
        yield peer
    finally:
        await pool.close()


async def held(peer: Peer, count: int) -> None:
    """Wait until the broker has processed all earlier requests of the connection, which includes holding pulls."""
    for _ in range(count):
        await asyncio.sleep(0)  # the broker reads the pulls first
    await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "t", "queueId": 0})


async def expect_answered_once_saved(
    peer: Peer, disk: FaultyFileSystem, file: str, code: RequestCode, fields: dict[str, str]
) -> None:
    """Send a request that changes a table while the table's file cannot be saved. The request must fail, also when it
    is repeated, and succeed afterwards.
    """
    disk.faults.append(Fault(kind="write", path=file, error=errno.ENOSPC, repeats=True))
    for _ in range(2):
        assert (await peer.call(code, fields)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    disk.faults.clear()
    assert (await peer.call(code, fields)).code == ResponseCode.SUCCESS


def copy_of_running(store: Path, copy: Path) -> None:
    """Copy the store of a running broker, as a kill would leave it. Files that replace others when they are complete
    are left out, because they may be renamed during the copy.
    """
    shutil.copytree(store, copy, ignore=shutil.ignore_patterns("*.new"))


def saved(path: Path) -> bytes:
    """Return the contents of a table's file that a start after a crash would load, or those of its backup if the file
    is missing; empty without both.
    """
    for each in (path, path.with_name(f"{path.name}.bak")):
        with suppress(FileNotFoundError):
            return each.read_bytes()
    return b""


def send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, object]:
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 7,
        "i": properties,
        "j": 0,
    }


def pull_fields(topic: str, offset: int, queue_id: int = 0, wait_ms: int = 0, count: int = 32) -> dict[str, object]:
    return {
        "consumerGroup": "consumers",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": 4 | (2 if wait_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms,
        "subscription": "*",
        "subVersion": 0,
    }


def messages(response: RemotingCommand) -> list[StoredMessage]:
    return list(iter_records(response.body))


def bodies(response: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(response)]


def _text(fields: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (fields or {}).items()}
