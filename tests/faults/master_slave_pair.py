"""A master and its slave, of processes that tests kill or freeze. They can change roles."""

from __future__ import annotations

import asyncio
import signal

from raptormq.client import AdminClient
from tests.faults.ha_processes import LOOK_S, HaProcesses, promote


class MasterSlavePair:
    """The brokers of one broker name. :attr:`master` and :attr:`slave` are the names of their processes."""

    def __init__(
        self, processes: HaProcesses, admin: AdminClient, broker_name: str, master: str = "one", slave: str = "two"
    ) -> None:
        self._processes = processes
        self._admin = admin
        self.broker_name = broker_name
        self.master, self.slave = master, slave

    async def start(self, name: str) -> None:
        """Start a broker in its role."""
        await self.start_as(name, is_master=name == self.master)

    async def start_as(self, name: str, *, is_master: bool) -> None:
        """Start a broker as a master or as a slave."""
        role, broker_id = ("SYNC_MASTER", 0) if is_master else ("SLAVE", 1)
        await self._processes.start(name, role, broker_id, {"brokerName": self.broker_name})

    def lose(self, name: str, *, freezes: bool) -> None:
        """Kill a broker, or stop it from running until :meth:`bring_back`."""
        if freezes:
            self._processes.running[name].send_signal(signal.SIGSTOP)
        else:
            self._processes.kill(name)

    async def bring_back(self, name: str) -> None:
        """Let a frozen broker go on, or start a killed one in its role."""
        if name in self._processes.running:
            self._processes.running[name].send_signal(signal.SIGCONT)
        else:
            await self.start(name)

    async def promote_slave(self) -> None:
        """Promote the slave with the command line. The brokers change roles."""
        await promote(self._processes, self.slave)
        self.master, self.slave = self.slave, self.master

    async def replace_slave(self) -> None:
        """Start the slave, which does not run, with an empty store, and wait until it has the log."""
        self._processes.wipe(self.slave)
        await self.start(self.slave)
        await self.caught_up()

    async def acknowledge_by_slave(self) -> None:
        """Restart a promoted master as a SYNC_MASTER. No message may be sent meanwhile."""
        await self._processes.stop(self.master)
        await self.start(self.master)
        await self.caught_up()

    async def caught_up(self) -> int:
        """Wait until the slave has the log of the master. Return its end."""
        return await self._processes.caught_up(self._admin, self.slave, self._processes.address(self.master))

    async def reports(self, name: str) -> str:
        """Wait until a broker reports why it does not serve or does not follow its master, and return the reason."""
        while not (reason := (await self._facts(name)).get("haReason", "")):
            await asyncio.sleep(LOOK_S)
        return reason

    async def follows_or_reports(self, name: str) -> str:
        """Wait until a slave follows its master or reports why not. Return the reason; empty if it follows."""
        while True:
            facts = await self._facts(name)
            if facts.get("haConnected") == "true" or facts.get("haReason"):
                return facts.get("haReason", "")
            await asyncio.sleep(LOOK_S)

    async def is_listed(self) -> None:
        """Wait until the name server lists the master."""
        address = self._processes.address(self.master)
        while True:
            brokers = (await self._admin.cluster_info()).brokers
            if self.broker_name in brokers and brokers[self.broker_name].broker_addrs.get(0) == address:
                return
            await asyncio.sleep(LOOK_S)

    async def different_logs(self) -> list[str]:
        """Return whether the logs of both brokers differ, as a list of violations."""
        end = await self.caught_up()
        if self._log(self.master, end) == self._log(self.slave, end):
            return []
        return [f"the logs of the brokers of {self.broker_name} differ"]

    def _log(self, name: str, end: int) -> bytes:
        files = sorted((self._processes.root(name) / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files)[:end]

    async def _facts(self, name: str) -> dict[str, str]:
        return dict(await self._admin.runtime_info(self._processes.address(name)))
