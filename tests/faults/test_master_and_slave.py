"""A master and a slave in separate processes: the slave is killed while the master accepts messages, then the master.

A SYNC_MASTER responds with SEND_OK only to messages that its slave has. All of them are read from the slave.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, Producer, PullConsumer, SendStatus
from raptormq.errors import RaptorMQError
from tests.faults.ha_processes import MASTER, SLAVE, HaProcesses, ha_processes, promote

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

TOPIC = "ledger"
QUEUES = 4
KILLS = 5
IN_FLIGHT = 16
SEED = 38


class Ledger:
    """Sent messages, and their responses."""

    def __init__(self) -> None:
        self.statuses: dict[bytes, SendStatus] = {}
        self.stops = False
        self._numbers = iter(range(1_000_000))

    async def write(self, producer: Producer) -> None:
        async def work() -> None:
            while not self.stops:
                body = b"%d" % next(self._numbers)
                try:
                    self.statuses[body] = (await producer.send(Message(TOPIC, body), timeout=10)).status
                except RaptorMQError:
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

    def with_status(self, status: SendStatus) -> set[bytes]:
        return {body for body, found in self.statuses.items() if found == status}


async def read_all(name_server: str) -> list[bytes]:
    bodies: list[bytes] = []
    async with PullConsumer(name_servers=name_server) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                pulled = await consumer.pull(queue, offset, 1_000)
                bodies += [message.body for message in pulled.messages()]
                offset = pulled.next_offset
    return bodies


def log_bytes(processes: HaProcesses, name: str, end: int) -> bytes:
    files = sorted((processes.root(name) / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files)[:end]


async def test_a_slave_that_is_killed_again_and_again(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ledger = Ledger()
    settings = {"mappedFileSizeCommitLog": "1M"}
    async with ha_processes(tmp_path, settings) as processes, AdminClient(name_servers=processes.name_server) as admin:
        await processes.start(MASTER, "SYNC_MASTER")
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        await processes.start(SLAVE, "SLAVE", 1)
        await processes.caught_up(admin)
        async with Producer("writers", name_servers=processes.name_server) as producer:
            writing = asyncio.create_task(ledger.write(producer))
            for _ in range(KILLS):
                wanted = len(ledger.statuses) + rng.randrange(100, 1_000)
                while len(ledger.statuses) < wanted:
                    await asyncio.sleep(0.01)
                processes.kill(SLAVE)
                await processes.start(SLAVE, "SLAVE", 1)
                acknowledged = len(ledger.with_status(SendStatus.SEND_OK))
                while len(ledger.with_status(SendStatus.SEND_OK)) < acknowledged + 100:
                    await asyncio.sleep(0.01)
            ledger.stops = True
            await writing
        assert ledger.with_status(SendStatus.SLAVE_NOT_AVAILABLE), "sends were refused while the slave was down"
        end = await processes.caught_up(admin)
        processes.kill(MASTER)
        assert log_bytes(processes, SLAVE, end) == log_bytes(processes, MASTER, end)
        found = await read_all(processes.name_server)
        assert len(found) == len(set(found))
        assert set(ledger.statuses) - set(found) == set()


async def test_what_a_killed_master_has_acknowledged_is_on_the_slave(tmp_path: Path) -> None:
    ledger = Ledger()
    async with ha_processes(tmp_path) as processes, AdminClient(name_servers=processes.name_server) as admin:
        await processes.start(MASTER, "SYNC_MASTER")
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        await processes.start(SLAVE, "SLAVE", 1)
        await processes.caught_up(admin)
        async with Producer("writers", name_servers=processes.name_server) as producer:
            writing = asyncio.create_task(ledger.write(producer))
            while len(ledger.statuses) < 2_000:
                await asyncio.sleep(0.01)
            processes.kill(MASTER)
            ledger.stops = True
            await writing
        found = await read_all(processes.name_server)
        assert ledger.with_status(SendStatus.SEND_OK) - set(found) == set()

        lost_from = await promote(processes, SLAVE)
        assert lost_from == int((await admin.runtime_info(processes.address(SLAVE)))["commitLogMaxOffset"])
        assert "brokerRole=ASYNC_MASTER" in (tmp_path / "slave.conf").read_text(encoding="utf-8")
        async with Producer("writers", name_servers=processes.name_server) as producer:
            sent = await producer.send(Message(TOPIC, b"after"), timeout=30)
            assert sent.status == SendStatus.SEND_OK
        assert sorted(await read_all(processes.name_server)) == sorted([*found, b"after"])

        # The old master may have more than the slave had. Then it reports this and changes nothing.
        await processes.start(MASTER, "SLAVE", 1)
        while True:
            facts = await admin.runtime_info(processes.address(MASTER))
            if facts["haConnected"] == "true" or "nothing was changed" in facts.get("haReason", "").lower():
                return
            await asyncio.sleep(0.05)


async def test_an_older_disk_of_a_master_takes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """Messages acknowledged since the copy are on the slave, which must be promoted."""
    ledger = Ledger()
    older = tmp_path / "older"
    async with ha_processes(tmp_path) as processes, AdminClient(name_servers=processes.name_server) as admin:
        await processes.start(MASTER, "SYNC_MASTER")
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        await processes.start(SLAVE, "SLAVE", 1)
        await processes.caught_up(admin)
        async with Producer("writers", name_servers=processes.name_server) as producer:
            for copies in (True, False):
                writing, ledger.stops = asyncio.create_task(ledger.write(producer)), False
                wanted = len(ledger.statuses) + 500
                while len(ledger.statuses) < wanted:
                    await asyncio.sleep(0.01)
                ledger.stops = True
                await writing
                end = await processes.caught_up(admin)
                processes.kill(MASTER)
                if copies:
                    shutil.copytree(processes.root(MASTER), older)
                    await processes.start(MASTER, "SYNC_MASTER")
        processes.wipe(MASTER)
        shutil.copytree(older, processes.root(MASTER))
        await processes.start(MASTER, "SYNC_MASTER")
        facts = await admin.runtime_info(processes.address(MASTER))
        assert f"ends at {end}, beyond that of this master" in facts["haReason"]
        assert f"not serving: the log of the slave at {processes.address(SLAVE)}" in processes.log(MASTER)
        await processes.stop(MASTER)
        assert await promote(processes, SLAVE) == end
        await processes.start(MASTER, "SLAVE", 1)
        assert await processes.caught_up(admin, MASTER, processes.address(SLAVE)) == end
        found = await read_all(processes.name_server)
        assert len(found) == len(set(found))
        assert ledger.with_status(SendStatus.SEND_OK) - set(found) == set()
