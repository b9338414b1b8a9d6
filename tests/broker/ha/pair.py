"""A name server, a master and its slaves in one process, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.broker.ha import HaMaster, HaSlave
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.storage.fs import FileSystem
from tests.broker.harness import Peer, assembly_of, bodies, running

LOOK_S = 0.01
FAST = {"haSendHeartbeatInterval": "100", "haHousekeepingInterval": "2000"}


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[str]:
    """Run a name server and yield its address."""
    pairs = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(folder / "kv.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    server = NameServer(NameServerConfig.from_pairs(pairs))
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


class Pair:
    """The brokers with the same broker name, started and stopped by a test."""

    def __init__(self, folder: Path, opened: AsyncExitStack, address: str, ports: tuple[int, int]) -> None:
        self.folder = folder
        self.opened = opened
        self._address = address
        self.master_port, self.ha_port = ports

    async def master(
        self,
        role: str = "ASYNC_MASTER",
        more: dict[str, str] | None = None,
        filesystem: FileSystem | None = None,
    ) -> Broker:
        """Start the master."""
        pairs = {"brokerRole": role, "listenPort": str(self.master_port), "haListenPort": str(self.ha_port)}
        return await self._start("master", pairs | (more or {}), filesystem)

    def slave_settings(self, broker_id: int = 1) -> dict[str, str]:
        """Return the settings of a slave."""
        return self._common() | {"brokerRole": "SLAVE", "brokerId": str(broker_id)}

    async def slave(
        self, broker_id: int = 1, more: dict[str, str] | None = None, filesystem: FileSystem | None = None
    ) -> Broker:
        """Start a slave."""
        return await self._start(f"slave-{broker_id}", self.slave_settings(broker_id) | (more or {}), filesystem)

    async def start_as(self, name: str, more: dict[str, str]) -> Broker:
        """Start the broker of the folder ``name`` as a master without slaves."""
        return await self._start(name, more)

    def _common(self) -> dict[str, str]:
        return FAST | {"namesrvAddr": self._address}

    async def _start(self, name: str, pairs: dict[str, str], filesystem: FileSystem | None = None) -> Broker:
        settings = self._common() | pairs
        broker = await self.opened.enter_async_context(running(self.folder / name, settings, filesystem))
        await broker.registered()
        return broker


@asynccontextmanager
async def pair(folder: Path, ports: list[int]) -> AsyncIterator[Pair]:
    """Run a name server, without brokers. ``ports`` are the ports of the master for clients and for slaves."""
    folder.mkdir(exist_ok=True)
    async with name_server(folder) as address, AsyncExitStack() as opened:
        yield Pair(folder, opened, address, (ports[0], ports[1]))


async def become(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    while not condition():
        await asyncio.sleep(LOOK_S)


def master_of(broker: Broker) -> HaMaster:
    ha = assembly_of(broker).ha
    assert ha is not None
    assert isinstance(ha.role, HaMaster)
    return ha.role


def slave_of(broker: Broker) -> HaSlave:
    ha = assembly_of(broker).ha
    assert ha is not None
    assert ha.slave is not None
    return ha.slave


def end_of(broker: Broker) -> int:
    return broker._store.end_offset


async def read(peer: Peer, topic: str, count: int, queue_id: int = 0) -> list[bytes]:
    """Pull ``count`` messages from the beginning of a queue."""
    found: list[bytes] = []
    while len(found) < count:
        found += bodies(await peer.pull(topic, len(found), queue_id, wait_ms=5_000))
    return found
