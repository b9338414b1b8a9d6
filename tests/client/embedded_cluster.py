"""A complete cluster in the test process: name servers and brokers on free ports, with real sockets and files.

async with Cluster(tmp_path, brokers=2) as cluster:
    async with Producer("p", name_servers=cluster.name_servers) as producer: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from raptormq.broker.broker import Broker
from raptormq.broker.config.config import BrokerConfig
from raptormq.client import AdminClient
from raptormq.namesrv.config import NameServerConfig
from raptormq.namesrv.service import NameServer
from raptormq.storage.store import now_ms

SEGMENT_BYTES = 16 * 1024 * 1024


class Cluster:
    """`brokers` masters named `broker-0`, `broker-1` and so on, which register with every name server."""

    def __init__(self, folder: Path, brokers: int = 1, name_servers: int = 1, **settings: str) -> None:
        self.clock: Callable[[], int] = now_ms
        """Wall clock of brokers that are started from now on."""
        self._folder = folder
        self._settings = settings
        self._name_server_count = name_servers
        self.servers: list[NameServer] = []
        self.brokers: list[Broker | None] = [None] * brokers

    @property
    def name_servers(self) -> str:
        """Addresses of the name servers in the form of client configurations."""
        return ";".join(server.address for server in self.servers)

    def broker(self, number: int = 0) -> Broker:
        """Return a running broker."""
        broker = self.brokers[number]
        assert broker is not None
        return broker

    async def start_broker(self, number: int, port: int = 0) -> Broker:
        """Start or restart a broker, and wait until every name server lists it."""
        pairs = {
            "brokerName": f"broker-{number}",
            "brokerClusterName": "DefaultCluster",
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "metricsPort": "-1",
            "namesrvAddr": self.name_servers,
            "storePathRootDir": str(self._folder / f"broker-{number}"),
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            # No limits of disk usage, which depends on the machine.
            "diskMaxUsedSpaceRatio": "95",
            "diskSpaceCleanForciblyRatio": "98",
            "diskSpaceWarningLevelRatio": "100",
        }
        broker = Broker(BrokerConfig.from_pairs(pairs | self._settings), clock=self.clock)
        await broker.start()
        self.brokers[number] = broker
        for server in self.servers:
            await listed(server.address, f"broker-{number}", broker.address)
        return broker

    async def stop_broker(self, number: int) -> None:
        """Stop a broker cleanly."""
        broker, self.brokers[number] = self.broker(number), None
        await broker.stop()

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every broker."""
        async with AdminClient(name_servers=self.name_servers) as admin:
            await admin.create_topic(topic, queues, queues)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def _start(self) -> None:
        for number in range(self._name_server_count):
            folder = self._folder / f"namesrv-{number}"
            config = NameServerConfig.from_pairs(
                {
                    "bindAddress": "127.0.0.1",
                    "listenPort": "0",
                    "kvConfigPath": str(folder / "kvConfig.json"),
                    "configStorePath": str(folder / "namesrv.properties"),
                }
            )
            server = NameServer(config)
            await server.start()
            self.servers.append(server)
        for number in range(len(self.brokers)):
            await self.start_broker(number)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for broker in self.brokers:
            if broker is not None:
                await broker.stop()
        for server in self.servers:
            await server.stop()


async def listed(name_server: str, broker_name: str, address: str) -> None:
    """Wait until a name server lists a broker."""
    async with AdminClient(name_servers=name_server) as admin:
        while True:
            info = await admin.cluster_info()
            broker = info.brokers.get(broker_name)
            if broker is not None and address in broker.broker_addrs.values():
                return
            await asyncio.sleep(0)
