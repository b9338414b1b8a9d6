"""Three masters and three slaves of RaptorMQ with a name server, on one machine: the layout of the published benchmark,
"Interleaved on three machines" in docs/guides/master-slave.md.

A master answers when its slave has the message (SYNC_MASTER), as Kafka's leader does with `acks=all`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from raptormq.client import AdminClient
from tests.faults.broker_process import serving
from tests.interop.raptormq_dev import ANY_DISK
from tests.ports import free_port, free_port_run

BROKERS = ("broker-a", "broker-b", "broker-c")
_QUIET = ("--metrics-port", "-1", "--log-level", "warning")
_POLL_S = 0.05
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Interleaved:
    """The running brokers."""

    name_server: str
    pid: int
    """Process id of the first master."""


@asynccontextmanager
async def interleaved(folder: Path) -> AsyncIterator[Interleaved]:
    """Start the brokers over an empty folder, and wait until each master has its slave. Kills them at the end."""
    name_server = f"127.0.0.1:{free_port()}"
    async with AsyncExitStack() as opened:

        async def start(command: str, name: str, settings: dict[str, str]) -> int:
            conf = folder / f"{name}.conf"
            conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
            starting = serving([command, "-c", str(conf), *_QUIET], log=folder / f"{name}.log")
            return (await opened.enter_async_context(starting)).pid

        host, _, port = name_server.partition(":")
        where = {"listenPort": port, "bindAddress": host, "kvConfigPath": f"{folder}/kv.json"}
        await start("namesrv", "namesrv", where)
        common = ANY_DISK | {"brokerIP1": host, "namesrvAddr": name_server, "brokerClusterName": "DefaultCluster"}
        masters: dict[str, int] = {}
        pids = []
        for name in BROKERS:
            masters[name] = free_port_run(before=2, after=1)
            role = {"brokerName": name, "brokerRole": "SYNC_MASTER", "brokerId": "0"}
            ports = {"listenPort": str(masters[name]), "haListenPort": str(masters[name] + 1)}
            pids.append(await start("broker", name, common | role | ports | {"storePathRootDir": f"{folder}/{name}"}))
        for name, master in masters.items():
            role = {"brokerName": name, "brokerRole": "SLAVE", "brokerId": "1"}
            place = {"haMasterAddress": f"{host}:{master + 1}", "storePathRootDir": f"{folder}/{name}-slave"}
            await start("broker", f"{name}-slave", common | role | place | {"listenPort": str(free_port_run(2, 1))})
        async with asyncio.timeout(_TIMEOUT_S), AdminClient(name_servers=name_server) as admin:
            for master in masters.values():
                await _has_slave(admin, f"{host}:{master}")
        yield Interleaved(name_server, pids[0])


async def _has_slave(admin: AdminClient, master: str) -> None:
    while True:
        facts = await admin.runtime_info(master)
        if facts["haSlaves"] == "1":
            return
        await asyncio.sleep(_POLL_S)
