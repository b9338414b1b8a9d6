"""Three broker processes of one group: the leader is killed, a disk is wiped, and everything acknowledged is there."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, ProducerConfig, PullConsumer, SendStatus
from raptormq.errors import RaptorMQError
from tests.faults.broker_process import RAPTORMQ
from tests.faults.dledger_processes import BROKER, DledgerProcesses, dledger_group

QUEUES = 4
TOPIC = "ledger"

pytestmark = pytest.mark.timeout(300)


class Ledger:
    """Sends numbers, each once, and keeps those that were acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
        self._grown = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def begin(self) -> None:
        self._tasks = [asyncio.ensure_future(self._send(queue)) for queue in range(QUEUES)]

    async def _send(self, queue_id: int) -> None:
        queue, number = MessageQueue(TOPIC, BROKER, queue_id), queue_id
        while not self._stopping:
            try:
                result = await self._producer.send(Message(TOPIC, b"%d" % number), queue=queue, timeout=2)
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged[queue_id].append(number)
                    self._grown.set()
            except RaptorMQError:
                await asyncio.sleep(0.02)  # nobody leads; another number is tried
            number += QUEUES

    async def grow(self, more: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self.count + more
        while self.count < wanted:
            self._grown.clear()
            await self._grown.wait()

    async def end(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)


async def read_queue(consumer: PullConsumer, queue_id: int) -> list[int]:
    found: list[int] = []
    offset = 0
    while messages := (result := await consumer.pull(MessageQueue(TOPIC, BROKER, queue_id), offset)).messages():
        found += [int(each.body) for each in messages]
        offset = result.next_offset
    return found


async def assert_whole(processes: DledgerProcesses, ledger: Ledger) -> None:
    """Everything acknowledged can be read, once and in order."""
    consumer = PullConsumer(name_servers=processes.name_server)
    await consumer.start()
    try:
        for queue_id, acknowledged in ledger.acknowledged.items():
            found = await read_queue(consumer, queue_id)
            counted = Counter(found)
            assert [number for number in acknowledged if counted[number] != 1] == []
            assert found == sorted(found)
    finally:
        await consumer.close()


async def test_the_group_outlives_its_leaders_and_a_disk(tmp_path: Path) -> None:
    async with dledger_group(tmp_path) as processes:
        admin = AdminClient(name_servers=processes.name_server)
        producer = Producer("senders", name_servers=processes.name_server, config=ProducerConfig(retries=0))
        await admin.start()
        await producer.start()
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        ledger = Ledger(producer)
        ledger.begin()
        await ledger.grow(100)

        for _ in range(2):  # the second time the first one is needed for a majority
            processes.kill(leader)
            await ledger.grow(100)
            await processes.start(leader)
            leader = await processes.leader(admin, other_than=leader)
            await ledger.grow(100)

        wiped, other = [member for member in processes.ports if member != leader]
        processes.kill(wiped)
        processes.wipe(wiped)
        await processes.start(wiped)
        await ledger.grow(100)
        await processes.votes(admin, leader, wiped)
        processes.kill(other)  # now the wiped one is needed, with all that is in the log
        await ledger.grow(100)
        processes.kill(leader)
        await processes.start(other)
        assert await processes.leader(admin, other_than=leader) in (wiped, other)
        await ledger.grow(100)
        await ledger.end()
        await assert_whole(processes, ledger)
        await producer.close()
        await admin.close()


async def test_a_member_list_that_cannot_be_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:1;n1-127.0.0.1:2\ndLegerSelfId=n0\n"
    )
    process = await asyncio.create_subprocess_exec(
        RAPTORMQ, "broker", "-c", str(conf), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().strip().count("\n") == 0
    assert "dLegerPeers has 2 members: expected an odd number" in errors.decode()
