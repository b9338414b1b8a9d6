"""Clusters of real processes in each mode of replication, under each condition of the page of crossings.

A cluster is started with its settings (access control, TLS), and a condition happens to it while features are in use:
a restart of all brokers, a fail-over, a full disk.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from raptormq.client import AclEntry, AdminClient, ClientConfig, ClientTls, Credentials, Message, Producer
from raptormq.config_file import format_properties
from raptormq.errors import RaptorMQError
from tests.certificates import Authority
from tests.faults.dledger_processes import PATIENCE_S, DledgerProcesses
from tests.faults.failing_disk import Failing, FailingDisks
from tests.faults.ha_processes import MASTER, SLAVE, HaProcesses

LOOK_S = 0.05
ROOT = Credentials("root", "root-secret-of-tests")
APPLICATION = Credentials("application", "secret-of-the-application")
_SETTINGS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "flushConsumerOffsetInterval": "200",
}
_ACCESS_CONTROL = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "secret-of-brokers"}),
    "haSlaveAddresses": "127.0.0.1",
}
_PERMISSIONS = [
    AclEntry("Topic:*", ("Pub", "Sub", "Get")),
    AclEntry("Group:*", ("Sub", "Get")),
]


class Cluster(ABC):
    """A running cluster."""

    clients: ClientConfig
    """Settings of an application's clients."""
    administration: ClientConfig
    """Settings of an administrator's clients."""
    disks: FailingDisks
    name_servers: str
    """The address of the name server."""
    name_server_settings = ""
    """Lines for the settings file of the name server."""

    @abstractmethod
    async def start(self) -> None:
        """Start all processes."""

    @abstractmethod
    async def restart(self) -> None:
        """Kill all brokers, and start them again."""

    @abstractmethod
    async def fail_over(self) -> None:
        """Kill the broker that accepts messages, and wait until another one does."""

    @abstractmethod
    def brokers(self) -> list[str]:
        """Return the names of the disks of all brokers."""

    async def fill_disks(self) -> None:
        """Fill the disks of all brokers, wait until a message is refused, and make room again."""
        for name in self.brokers():
            self.disks.set(name, Failing.ROOM)
        async with Producer("full-disk", client_config=self.administration, retries=0, send_timeout=5.0) as producer:
            refused = False
            while not refused:  # the current segment still has room
                try:
                    await producer.send(Message("full-disk", b"x" * 1_000_000))
                except RaptorMQError:
                    refused = True
            for name in self.brokers():
                self.disks.set(name, Failing.NOTHING)
            while True:
                try:
                    await producer.send(Message("full-disk", b"room again"))
                except RaptorMQError:
                    await asyncio.sleep(LOOK_S)
                else:
                    return


class Pair(Cluster):
    """A broker alone, or a master with a slave."""

    def __init__(self, processes: HaProcesses, *, has_slave: bool) -> None:
        self._processes, self._has_slave = processes, has_slave
        self.name_servers = processes.name_server

    async def start(self) -> None:
        await self._processes.start_name_server(self.name_server_settings)
        await self._start()

    async def _start(self) -> None:
        await self._processes.start(MASTER, "SYNC_MASTER" if self._has_slave else "ASYNC_MASTER")
        if self._has_slave:
            await self._processes.start(SLAVE, "SLAVE", 1)
            async with AdminClient(client_config=self.administration) as admin:
                slave = self._processes.address(SLAVE)
                while (await admin.runtime_info(slave)).get("haConnected") != "true":  # two empty logs are equal, too
                    await asyncio.sleep(LOOK_S)
                await self._processes.caught_up(admin)

    async def restart(self) -> None:
        for name in list(self._processes.running):
            self._processes.kill(name)
        await self._start()

    async def fail_over(self) -> None:
        async with AdminClient(client_config=self.administration) as admin:
            await self._processes.caught_up(admin)
            self._processes.kill(MASTER)
            slave = self._processes.address(SLAVE)
            while True:
                try:
                    await admin.promote_slave(slave)
                except RaptorMQError:
                    await asyncio.sleep(LOOK_S)
                else:
                    break
            while (await admin.cluster_info()).brokers["broker-a"].broker_addrs.get(0) != slave:
                await asyncio.sleep(LOOK_S)

    def brokers(self) -> list[str]:
        return [MASTER, SLAVE] if self._has_slave else [MASTER]


class Group(Cluster):
    """A Dledger group of three."""

    def __init__(self, processes: DledgerProcesses) -> None:
        self._processes = processes
        self.name_servers = processes.name_server

    async def start(self) -> None:
        await self._processes.start_name_server(self.name_server_settings)
        await self._start()

    async def _start(self) -> None:
        await asyncio.gather(*map(self._processes.start, self._processes.ports))
        for member in self._processes.ports:
            await self._processes.probed(member, "/replication/caught-up")
        async with AdminClient(client_config=self.administration) as admin:
            # After a restart, the name server lists the former leader until the next one registers.
            while await self._processes.leads(admin) != await self._processes.leader(admin):
                await asyncio.sleep(LOOK_S)

    async def restart(self) -> None:
        for member in self._processes.ports:
            self._processes.kill(member)
        await self._start()

    async def fail_over(self) -> None:
        async with AdminClient(client_config=self.administration) as admin:
            leader = await self._processes.leader(admin)
            self._processes.kill(leader)
            await self._processes.leader(admin, other_than=leader)

    def brokers(self) -> list[str]:
        return list(self._processes.ports)


@asynccontextmanager
async def cluster_under(mode: str, condition: str, folder: Path) -> AsyncIterator[Cluster]:
    """Run a cluster of a mode (``tests.crossings.MODES``) with the settings that a condition needs."""
    settings = dict(_SETTINGS)
    name_server: dict[str, str] = {}
    credentials: tuple[Credentials | None, Credentials | None] = None, None
    tls: ClientTls | None = None
    if condition == "access-control":
        settings |= _ACCESS_CONTROL
        credentials = APPLICATION, ROOT
    if condition == "tls":
        name_server, tls = _tls(folder)
        settings |= name_server | {"haSlaveAddresses": "127.0.0.1"}
    disks = FailingDisks(folder)
    async with AsyncExitStack() as opened:
        cluster = _cluster(mode, folder, opened, settings, disks)
        cluster.disks, cluster.name_server_settings = disks, format_properties(name_server)
        cluster.clients, cluster.administration = (
            ClientConfig(cluster.name_servers, credentials=each, tls=tls, request_timeout=PATIENCE_S)
            for each in credentials
        )
        await cluster.start()
        async with AdminClient(client_config=cluster.administration) as admin:
            if condition == "access-control":
                await admin.create_user(APPLICATION.access_key, APPLICATION.secret_key)
                await admin.put_acl(APPLICATION.access_key, _PERMISSIONS)
            if condition == "full-disk":
                await admin.create_topic("full-disk", 1, 1)
        yield cluster


def _cluster(
    mode: str,
    folder: Path,
    opened: AsyncExitStack,
    settings: Mapping[str, str],
    disks: FailingDisks,
) -> Cluster:
    if mode != "master-slave":
        settings = {key: value for key, value in settings.items() if key != "haSlaveAddresses"}

    def environment(name: str) -> dict[str, str]:
        root = folder / f"node-{name}" if mode == "dledger" else folder / name / "store"
        return disks.environment(name, root)

    if mode == "dledger":
        return Group(DledgerProcesses(folder, opened, format_properties(settings), environment=environment))
    processes = HaProcesses(folder, opened, settings, environment=environment)
    return Pair(processes, has_slave=mode == "master-slave")


def _tls(folder: Path) -> tuple[dict[str, str], ClientTls]:
    """Return the settings of servers that refuse plain connections, and those of clients."""
    authority = Authority(folder, "authority")
    issued = authority.issue("servers")
    servers = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(issued.cert),
        "tls.server.keyPath": str(issued.key),
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.cert),
    }
    return servers, ClientTls(trust_cert_path=authority.cert, auth_server=True)
