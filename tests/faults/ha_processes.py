"""Processes of a name server, a master and slaves, which tests kill, wipe and restart."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from raptormq.client import AdminClient
from raptormq.config_file import format_properties
from tests.broker.harness import SMALL
from tests.faults.broker_process import RAPTORMQ, serving
from tests.ports import free_port, free_port_run

LOOK_S = 0.02
MASTER, SLAVE = "master", "slave"


class HaProcesses:
    """The processes by name, such as ``master`` and ``slave``."""

    def __init__(
        self,
        folder: Path,
        opened: AsyncExitStack,
        more: Mapping[str, str] | None = None,
        environment: Callable[[str], Mapping[str, str]] = lambda name: {},
    ) -> None:
        """Prepare the processes. None runs yet.

        Args:
            more: settings of all brokers in addition.
            environment: environment variables of each broker in addition to those of the test.
        """
        self.folder = folder
        self._opened = opened
        self._more = dict(more or {})
        self._environment = environment
        self.name_server = f"127.0.0.1:{free_port()}"
        self.ports: dict[str, int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def root(self, name: str) -> Path:
        return self.folder / name / "store"

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")

    async def start_name_server(self, more: str = "") -> None:
        conf = self.folder / "namesrv.conf"
        port = self.name_server.rpartition(":")[2]
        conf.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nkvConfigPath={self.folder}/kv.json\n{more}")
        command = ["namesrv", "-c", str(conf), "--metrics-port", "-1", "--log-level", "warning"]
        await self._opened.enter_async_context(serving(command, log=self.folder / "namesrv.log"))

    async def start(self, name: str, role: str, broker_id: int = 0, more: Mapping[str, str] | None = None) -> None:
        """Start a broker. A restart uses the same port and store."""
        port = self.ports.setdefault(name, free_port_run(before=2, after=1))
        pairs = SMALL | {
            "brokerClusterName": "DefaultCluster",
            "brokerRole": role,
            "brokerId": str(broker_id),
            "listenPort": str(port),
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(self.root(name)),
            "haSendHeartbeatInterval": "500",
            "haHousekeepingInterval": "3000",
        }
        pairs |= self._more | dict(more or {})
        conf = self.folder / f"{name}.conf"
        conf.write_text(format_properties(pairs), encoding="utf-8")
        command = ["broker", "-c", str(conf), "--log-level", "warning"]
        starting = serving(command, environment=self._environment(name), log=self.folder / f"{name}.log")
        self.running[name] = await self._opened.enter_async_context(starting)

    def kill(self, name: str) -> None:
        """Kill a broker, like ``kill -9``."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    async def stop(self, name: str) -> None:
        """Stop a broker cleanly."""
        process = self.running.pop(name)
        process.terminate()
        await asyncio.to_thread(process.wait)

    def wipe(self, name: str) -> None:
        """Delete the store of a stopped broker."""
        shutil.rmtree(self.root(name))

    async def caught_up(self, admin: AdminClient, slave: str = SLAVE, master: str | None = None) -> int:
        """Wait until the logs of a slave and of its master have the same end. Return it."""
        address = self.address(MASTER) if master is None else master
        while True:
            ends = [
                int((await admin.runtime_info(each))["commitLogMaxOffset"]) for each in (address, self.address(slave))
            ]
            if ends[0] == ends[1]:
                return ends[0]
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def ha_processes(
    folder: Path, more: Mapping[str, str] | None = None, name_server: str = ""
) -> AsyncIterator[HaProcesses]:
    """Run a name server, with the settings ``name_server`` in addition. The test starts brokers, which are killed at
    the end of the block.
    """
    async with AsyncExitStack() as opened:
        processes = HaProcesses(folder, opened, more)
        await processes.start_name_server(name_server)
        yield processes


async def promote(processes: HaProcesses, slave: str) -> int:
    """Promote a slave with the command line. Return the offset from which messages of the old master are lost."""
    command = [
        RAPTORMQ,
        "cluster",
        "promote",
        processes.address(slave),
        "-n",
        processes.name_server,
        "-o",
        "json",
        "--yes",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, told = await process.communicate()
    assert process.returncode == 0, told
    assert b"when it last heard of it. Lost are" in told
    return int(json.loads(output)["lost_from"])
