"""The wall clock of one member of a Dledger group jumps by an hour, forward and back, while messages are sent.

docs/explanation/broker.md describes the effects, in "Clock jumps".
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Delay, Message, MessageQueue, Producer, ProducerConfig, PullConsumer
from raptormq.protocol.codes import RequestCode
from tests.faults.broker_process import Client
from tests.faults.dledger_processes import BROKER, PATIENCE_S, PATIENT_HOSTS, DledgerProcesses, dledger_group
from tests.faults.ledger import QUEUES, TOPIC, Ledger, assert_whole
from tests.faults.shifted_clock import ShiftedClocks

pytestmark = pytest.mark.timeout(300)

HOUR_S = 3_600
LATER = "later"
LOOK_S = 0.05
HALF_AN_HOUR = 16
"""The delay level of 30 minutes."""
SLOW_ELECTIONS = "dLegerElectionTimeout=10000\nfileReservedTime=1\n"
"""A long timeout, so that a busy machine causes no election. A new term is then caused by a jump."""


@dataclass
class Group:
    """A running group, and the messages sent to it."""

    processes: DledgerProcesses
    admin: AdminClient
    producer: Producer
    consumer: PullConsumer
    clocks: ShiftedClocks
    ledger: Ledger
    leader: str

    async def term(self) -> int:
        status, text = await self.processes.probe(self.leader, "/replication")
        assert (status, json.loads(text)["role"]) == (200, "leader")
        return int(json.loads(text)["term"])

    async def send_later(self, text: str, delay: Delay) -> None:
        await self.producer.send(Message(LATER, text.encode(), delay=delay))

    async def delivered(self) -> list[str]:
        """Return the delayed messages that are delivered, in any order."""
        offset, found = 0, []
        queue = MessageQueue(LATER, BROKER, 0)
        while messages := (result := await self.consumer.pull(queue, offset)).messages():
            found += [each.body.decode() for each in messages]
            offset = result.next_offset
        return sorted(found)

    async def delivers(self, *texts: str) -> None:
        """Wait until these messages are delivered, each once, and no others."""
        while len(found := await self.delivered()) < len(texts):
            await asyncio.sleep(LOOK_S)
        assert found == sorted(texts)


@asynccontextmanager
async def group(folder: Path) -> AsyncIterator[Group]:
    clocks = ShiftedClocks(folder)
    async with dledger_group(folder, SLOW_ELECTIONS, hosts=PATIENT_HOSTS, environment=clocks.environment) as processes:
        server = processes.name_server
        producer = Producer("senders", name_servers=server, config=ProducerConfig(retries=0, send_timeout=PATIENCE_S))
        consumer = PullConsumer(name_servers=server)
        async with AdminClient(client_config=processes.clients()) as admin, producer, consumer:
            leader = await processes.leader(admin)
            for member in processes.ports:
                await processes.probed(member, "/replication/caught-up")
            await admin.create_topic(TOPIC, QUEUES, QUEUES)
            await admin.create_topic(LATER, 1, 1)
            found = Group(processes, admin, producer, consumer, clocks, Ledger(producer, PATIENCE_S), leader)
            found.ledger.begin()
            await found.ledger.grow(100)
            yield found
            await found.ledger.end()
            await assert_whole(processes, found.ledger)


async def test_a_leader_goes_on_and_delays_are_measured_by_its_clock(tmp_path: Path) -> None:
    async with group(tmp_path) as jumping:
        clocks, leader, term = jumping.clocks, jumping.leader, await jumping.term()
        await jumping.send_later("level of half an hour", Delay.by_level(HALF_AN_HOUR))
        await jumping.send_later("timer of half an hour", Delay.by(HOUR_S / 2))
        assert await jumping.delivered() == []
        clocks.set(leader, HOUR_S)
        early = ["level of half an hour", "timer of half an hour"]
        await jumping.delivers(*early)
        await jumping.send_later("timer of a minute, an hour ahead", Delay.by(60))
        await jumping.ledger.grow(100)

        clocks.set(leader, 0)
        await jumping.send_later("level of a second, set back", Delay.by_level(1))
        await jumping.delivers(*early, "level of a second, set back")
        clocks.set(leader, -HOUR_S)
        await jumping.send_later("level of a second, set back twice", Delay.by_level(1))
        levels = [*early, "level of a second, set back", "level of a second, set back twice"]
        await jumping.delivers(*levels)
        await jumping.ledger.grow(100)

        clocks.set(leader, HOUR_S + 120)
        await jumping.delivers(*levels, "timer of a minute, an hour ahead")
        await jumping.ledger.grow(100)
        assert await jumping.term() == term, "elections use monotonic clocks"
        assert jumping.ledger.refused == []


async def test_a_follower_goes_on_and_leads_with_a_wrong_clock(tmp_path: Path) -> None:
    async with group(tmp_path) as jumping:
        clocks, term = jumping.clocks, await jumping.term()
        follower = next(member for member in jumping.processes.ports if member != jumping.leader)
        for ahead in (HOUR_S, 0, -HOUR_S, HOUR_S):
            clocks.set(follower, ahead)
            await jumping.ledger.grow(100)
        assert await jumping.term() == term
        assert jumping.ledger.refused == []
        for ahead in (HOUR_S, -HOUR_S):
            clocks.set(follower, ahead)
            await jumping.admin.transfer_leadership(jumping.processes.address(jumping.leader), follower)
            await jumping.ledger.grow(100)
            first = jumping.leader
            jumping.leader = follower
            await jumping.admin.transfer_leadership(jumping.processes.address(follower), first)
            jumping.leader = first
            await jumping.ledger.grow(100)


async def test_retention_counts_by_the_clock_of_its_member(tmp_path: Path) -> None:
    async with group(tmp_path) as jumping:
        for _ in range(12):  # more than one file of the log
            await jumping.producer.send(Message(LATER, os.urandom(1 << 20)))
        await jumping.ledger.end()
        await assert_whole(jumping.processes, jumping.ledger)
        jumping.ledger = Ledger(jumping.producer)
        processes, leader = jumping.processes, jumping.leader
        first = {member: processes.root(member) / "commitlog" / f"{0:020}" for member in processes.ports}
        assert len(list(first[leader].parent.iterdir())) > 1
        for file in first.values():
            assert file.exists()
        client = Client(processes.ports[leader])

        async def clean() -> None:
            assert (await client.call(RequestCode.DELETE_EXPIRED_COMMITLOG, {})).code == 0

        jumping.clocks.set(leader, -HOUR_S)
        await clean()
        assert first[leader].exists(), "segments are kept longer while the clock is behind"
        jumping.clocks.set(leader, HOUR_S)
        while first[leader].exists():  # when a checkpoint is written
            await clean()
            await asyncio.sleep(LOOK_S)
        await client.close()
        assert all(file.exists() for member, file in first.items() if member != leader)
