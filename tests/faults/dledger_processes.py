"""A name server and the members of a Dledger group in processes of their own, which tests kill, wipe and start again.

The settings are those of the three ``broker.conf`` that guides for Apache RocketMQ show, but for ports and paths, and
small files.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from raptormq.client import AdminClient
from tests.faults.broker_process import serving
from tests.interop.rocketmq_java import free_port, free_port_run

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
brokerIP1=127.0.0.1
metricsPort=-1
mappedFileSizeCommitLog=8M
diskMaxUsedSpaceRatio=95
diskSpaceCleanForciblyRatio=98
diskSpaceWarningLevelRatio=100
"""


class DledgerProcesses:
    """The processes. Members are ``n0``, ``n1`` and ``n2``."""

    def __init__(self, folder: Path, opened: AsyncExitStack, more: str = "") -> None:
        self.folder = folder
        self._opened = opened
        self._more = more
        self.ports = {f"n{number}": free_port_run(before=2, after=0) for number in range(3)}
        self.name_server = f"127.0.0.1:{free_port()}"
        peers = ";".join(f"{member}-127.0.0.1:{free_port()}" for member in self.ports)
        for member, port in self.ports.items():
            text = CONF.format(
                cluster=CLUSTER, broker=BROKER, port=port, name_server=self.name_server, peers=peers, member=member,
                root=self.root(member),
            )  # fmt: skip
            self.conf(member).write_text(text + more, encoding="utf-8")
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def conf(self, member: str) -> Path:
        return self.folder / f"broker-{member}.conf"

    def root(self, member: str) -> Path:
        return self.folder / f"node-{member}"

    def log(self, member: str) -> str:
        return (self.folder / f"{member}.log").read_text(encoding="utf-8")

    async def start_name_server(self) -> None:
        conf = self.folder / "namesrv.conf"
        port = self.name_server.rpartition(":")[2]
        conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={self.folder}/kv.json\n")
        command = ["namesrv", "-c", str(conf), "--metrics-port", "-1", "--log-level", "warning"]
        await self._opened.enter_async_context(serving(command, log=self.folder / "namesrv.log"))

    async def start(self, member: str) -> None:
        command = ["broker", "-c", str(self.conf(member)), "--log-level", "warning"]
        starting = serving(command, log=self.folder / f"{member}.log")
        self.running[member] = await self._opened.enter_async_context(starting)

    def kill(self, member: str) -> None:
        """End a member as ``kill -9`` does."""
        process = self.running.pop(member)
        process.kill()
        process.wait()

    def wipe(self, member: str) -> None:
        """Take the disk of a member that does not run."""
        shutil.rmtree(self.root(member))

    async def leader(self, admin: AdminClient, *, other_than: str = "") -> str:
        """Wait until the name server knows a leader, and return its id."""
        while True:
            cluster = await admin.cluster_info()
            for broker in cluster.brokers.values():
                port = broker.broker_addrs.get(0, ":0").rpartition(":")[2]
                for member, own in self.ports.items():
                    if str(own) == port and member != other_than and member in self.running:
                        return member
            await asyncio.sleep(0.02)

    async def votes(self, admin: AdminClient, leader: str, member: str) -> None:
        """Wait until the leader says that a member votes, with the disk that it has now."""
        while True:
            own = (await admin.runtime_info(f"127.0.0.1:{self.ports[member]}"))["dledgerDisk"]
            facts = await admin.runtime_info(f"127.0.0.1:{self.ports[leader]}")
            if facts.get(f"dledgerMember_{member}", "").startswith(f"voter, disk {own},"):
                return
            await asyncio.sleep(0.02)


@asynccontextmanager
async def dledger_group(folder: Path, more: str = "") -> AsyncIterator[DledgerProcesses]:
    """A name server and three members that serve; killed at the end of the block."""
    async with AsyncExitStack() as opened:
        processes = DledgerProcesses(folder, opened, more)
        await processes.start_name_server()
        await asyncio.gather(*map(processes.start, processes.ports))
        yield processes
