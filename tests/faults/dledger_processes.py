"""Processes of a name server and of the members of a Dledger group, which tests kill, wipe and restart.

The settings are those of the three ``broker.conf`` in guides for Apache RocketMQ, except for ports and paths, with
small files, and with an election timeout that a leader on a busy machine does not exceed. The end of a leader's process
is noticed without it.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from raptormq.client import AdminClient, ClientConfig
from raptormq.protocol.signing import Credentials
from tests.faults.broker_process import serving
from tests.ports import free_port, free_port_run

FAST_ELECTIONS = "dLegerElectionTimeout=1000\n"
"""The default of brokers, for measurements and for leaders that stop responding while their process runs."""
CLUSTER, BROKER = "RaftCluster", "RaftNode00"
CONF = """\
brokerClusterName = {cluster}
brokerName={broker}
listenPort={port}
namesrvAddr={name_server}
storePathRootDir={root}
storePathCommitLog={root}/commitlog
enableDLegerCommitLog=true
dLegerGroup={broker}
dLegerPeers={peers}
# must be unique
dLegerSelfId={member}
sendMessageThreadPoolNums=16
brokerIP1={host}
metricsPort={metrics}
metricsHost={host}
dLegerElectionTimeout=5000
mappedFileSizeCommitLog=8M
diskMaxUsedSpaceRatio=95
diskSpaceCleanForciblyRatio=98
diskSpaceWarningLevelRatio=100
"""


PATIENCE_S = 60.0
"""Limit of a request or a send that must not fail, however slow the machine is. After a shorter one, a send is repeated
and its message may be stored twice."""
NAME_SERVER = "ns"
"""Name of the name server among the hosts."""


@dataclass(frozen=True)
class Host:
    """A host for a process: its address, and the command that executes another command on it."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


_TRANSFER_PATIENTLY = """\
import runpy, sys
from raptormq.broker.replication import forwarding, replication
forwarding.HOLD_S = forwarding._ANSWER_S = replication._TRANSFER_S = 60.0
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PATIENT_HOSTS: Mapping[str, Host] = {
    NAME_SERVER: Host(),
    **dict.fromkeys(("n0", "n1", "n2"), Host(enter=(sys.executable, "-c", _TRANSFER_PATIENTLY))),
}
"""This machine, with members that give a transfer of leadership a minute instead of two seconds, and hold and forward
sends for as long: for tests in which a transfer must succeed and no send may be refused, however slow the disk is.
"""


class DledgerProcesses:
    """The processes. Members are ``n0``, ``n1`` and ``n2``, each on this machine or on a host of ``hosts``."""

    def __init__(
        self,
        folder: Path,
        opened: AsyncExitStack,
        more: str = "",
        leader_address: str = "",
        hosts: Mapping[str, Host] | None = None,
        environment: Callable[[str], Mapping[str, str]] = lambda member: {},
    ) -> None:
        """Prepare the processes. None runs yet.

        Args:
            more: settings of all members in addition.
            leader_address: address that leads to one of ``leader_ports``.
            environment: environment variables of each member in addition to those of the test.
        """
        self.folder = folder
        self._opened = opened
        self._more = more
        self._environment = environment
        self.ports = {f"n{number}": free_port_run(before=2, after=0) for number in range(3)}
        self.leader_ports = {member: free_port() for member in self.ports}
        self.hosts = hosts or dict.fromkeys((NAME_SERVER, *self.ports), Host())
        self.metrics = {member: free_port() for member in self.ports}
        self.name_server = f"{self.hosts[NAME_SERVER].address}:{free_port()}"
        self._base: dict[str, str] = {}
        self.peers = {member: f"{self.hosts[member].address}:{free_port()}" for member in self.ports}
        """Addresses of the members for each other."""
        peers = ";".join(f"{member}-{address}" for member, address in self.peers.items())
        for member, port in self.ports.items():
            text = CONF.format(
                cluster=CLUSTER, broker=BROKER, port=port, name_server=self.name_server, peers=peers, member=member,
                root=self.root(member), metrics=self.metrics[member], host=self.hosts[member].address,
            )  # fmt: skip
            if leader_address:
                text += f"dLegerLeaderAddress={leader_address}\ndLegerLeaderPort={self.leader_ports[member]}\n"
            self._base[member] = text
            self.configure(member, more)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def configure(self, member: str, more: str) -> None:
        """Write the settings of a member, with ``more`` in addition. They apply from its next start on."""
        self.conf(member).write_text(self._base[member] + more, encoding="utf-8")

    def conf(self, member: str) -> Path:
        return self.folder / f"broker-{member}.conf"

    def root(self, member: str) -> Path:
        return self.folder / f"node-{member}"

    def clients(self, credentials: Credentials | None = None) -> ClientConfig:
        """Return the settings of clients. A request of theirs fails if a connection ends, but not on a slow machine."""
        return ClientConfig(name_servers=self.name_server, credentials=credentials, request_timeout=PATIENCE_S)

    def address(self, member: str) -> str:
        """Return the address of a member for clients."""
        return f"{self.hosts[member].address}:{self.ports[member]}"

    def log(self, member: str) -> str:
        return (self.folder / f"{member}.log").read_text(encoding="utf-8")

    async def start_name_server(self, more: str = "") -> None:
        conf = self.folder / "namesrv.conf"
        host, _, port = self.name_server.rpartition(":")
        conf.write_text(f"listenPort={port}\nbindAddress={host}\nkvConfigPath={self.folder}/kv.json\n{more}")
        command = ["namesrv", "-c", str(conf), "--metrics-port", "-1", "--log-level", "warning"]
        enter = self.hosts[NAME_SERVER].enter
        starting = serving(command, log=self.folder / "namesrv.log", enter=enter)
        self.running[NAME_SERVER] = await self._opened.enter_async_context(starting)

    async def start(self, member: str) -> None:
        command = ["broker", "-c", str(self.conf(member)), "--log-level", "info"]
        starting = serving(
            command,
            environment=self._environment(member),
            log=self.folder / f"{member}.log",
            enter=self.hosts[member].enter,
        )
        self.running[member] = await self._opened.enter_async_context(starting)

    def kill(self, member: str) -> None:
        """Kill a member, like ``kill -9``."""
        process = self.running.pop(member)
        process.kill()
        process.wait()

    async def stop(self, member: str) -> None:
        """Terminate a member like Kubernetes, with SIGTERM."""
        process = self.running.pop(member)
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0

    async def probe(self, member: str, path: str) -> tuple[int, str]:
        """Request a page of a member. Return the status and the body."""
        reader, writer = await asyncio.open_connection(self.hosts[member].address, self.metrics[member])
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body

    async def metric(self, member: str, name: str) -> float:
        """Return the metric ``raptormq_broker_<name>`` of a member."""
        _, page = await self.probe(member, "/metrics")
        lines = [line for line in page.splitlines() if line.startswith(f"raptormq_broker_{name}{{")]
        return float(lines[0].split()[-1])

    async def probed(self, member: str, path: str) -> None:
        """Wait until a probe of a member returns 200."""
        while (await self.probe(member, path))[0] != 200:
            await asyncio.sleep(0.02)

    def wipe(self, member: str) -> None:
        """Delete the store of a stopped member."""
        shutil.rmtree(self.root(member))

    async def leader(self, admin: AdminClient, *, other_than: str = "") -> str:
        """Wait until the name server lists a leader, and return its id."""
        while True:
            cluster = await admin.cluster_info()
            for broker in cluster.brokers.values():
                for member in self.ports:
                    if (
                        broker.broker_addrs.get(0) == self.address(member)
                        and member != other_than
                        and member in self.running
                    ):
                        return member
            await asyncio.sleep(0.02)

    async def leads(self, admin: AdminClient, *, other_than: str = "") -> str:
        """Wait until a member reports that it leads, and return its id."""
        while True:
            for member in self.ports.keys() & self.running:
                if member != other_than and (await self.probe(member, "/replication"))[1].count('"role":"leader"') > 1:
                    return member
            await asyncio.sleep(0.02)

    async def votes(self, admin: AdminClient, leader: str, member: str) -> None:
        """Wait until the leader reports a member as a voter with its current disk."""
        while True:
            own = (await admin.runtime_info(self.address(member)))["dledgerDisk"]
            facts = await admin.runtime_info(self.address(leader))
            if facts.get(f"dledgerMember_{member}", "").startswith(f"voter, disk {own},"):
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def dledger_group(
    folder: Path,
    more: str = "",
    leader_address: str = "",
    hosts: Mapping[str, Host] | None = None,
    environment: Callable[[str], Mapping[str, str]] = lambda member: {},
    name_server: str = "",
) -> AsyncIterator[DledgerProcesses]:
    """Run a name server and three members that serve. They are killed at the end of the block. ``name_server`` has
    settings of the name server in addition.
    """
    async with AsyncExitStack() as opened:
        processes = DledgerProcesses(folder, opened, more, leader_address, hosts, environment)
        await processes.start_name_server(name_server)
        await asyncio.gather(*map(processes.start, processes.ports))
        yield processes
