"""Flipped bits on the disk of a member are found and repaired from other members while the group serves."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, ProducerConfig, PullConsumer
from raptormq.protocol.codes import RequestCode
from tests.faults.broker_process import RAPTORMQ, Client, process
from tests.faults.dledger_processes import BROKER, PATIENCE_S, DledgerProcesses, dledger_group
from tests.faults.ha_processes import MASTER, SLAVE, ha_processes
from tests.ports import free_port

pytestmark = pytest.mark.timeout(120)
SEGMENT_BYTES = 256 << 10
FIRST = f"{0:020d}"
EAGER = "scrubBytesPerSecond=1G\nscrubIntervalHours=0\n"
"""Settings with which the whole log is checked continuously."""
COUNT = 300
BODY_BYTES = 3 << 10
"""Below the size from which producers compress bodies."""


def body(number: int) -> bytes:
    return (b"message %d " % number).ljust(BODY_BYTES, b".")


async def fill(name_server: str, topic: str) -> None:
    config = ProducerConfig(send_timeout=PATIENCE_S)
    async with Producer("senders", name_servers=name_server, config=config) as producer:
        queue = MessageQueue(topic, BROKER, 0)
        await asyncio.gather(*(producer.send(Message(topic, body(number)), queue=queue) for number in range(COUNT)))


async def read(name_server: str, topic: str) -> list[bytes]:
    async with PullConsumer(name_servers=name_server) as consumer:
        found: list[bytes] = []
        while len(found) < COUNT:
            result = await consumer.pull(MessageQueue(topic, BROKER, 0), len(found))
            found += [each.body for each in result.messages()]
        return found


def flip(segment: Path, number: int) -> None:
    """Flip a bit in the body of a message."""
    at = segment.read_bytes().index(b"message %d " % number)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"M")


async def describe(processes: DledgerProcesses, *options: str) -> tuple[str, str]:
    shown = await asyncio.create_subprocess_exec(
        RAPTORMQ, "cluster", "describe", BROKER, "-n", processes.name_server, *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await shown.communicate()
    assert shown.returncode == 0, errors
    return output.decode(), errors.decode()


async def test_a_flipped_byte_of_a_closed_segment_is_repaired_on_a_follower_and_on_the_leader(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, f"{EAGER}mappedFileSizeCommitLog={SEGMENT_BYTES}\n") as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        await admin.create_topic("T", 1, 1)
        await fill(processes.name_server, "T")
        segments = {member: processes.root(member) / "commitlog" / FIRST for member in processes.ports}
        follower, other = (member for member in processes.ports if member != leader)
        for member in processes.ports:
            while not await processes.metric(member, "scrub_passes_total"):
                await asyncio.sleep(0.02)
        intact = segments[leader].read_bytes()
        assert all(segment.read_bytes() == intact for segment in segments.values())

        for member, number in ((follower, 3), (leader, 7)):
            flip(segments[member], number)
            while segments[member].read_bytes() != intact:
                await asyncio.sleep(0.02)
            while not await processes.metric(member, "scrub_damage_repaired_total"):
                await asyncio.sleep(0.02)
            assert await processes.metric(member, "scrub_damage_found_total") == 1
            assert await processes.metric(member, "scrub_damaged_bytes") == 0
            assert "are repaired from another copy" in processes.log(member)
        assert not await processes.metric(other, "scrub_damage_found_total")
        assert sorted(await read(processes.name_server, "T")) == sorted(map(body, range(COUNT)))
        assert await processes.leader(admin) == leader
        assert "damaged" not in "".join(await describe(processes))


LAZY = "scrubBytesPerSecond=1G\nscrubIntervalHours=8760\n"
"""Settings with which the log is checked once."""


async def test_a_wiped_follower_gets_the_log_of_a_leader_whose_copy_was_damaged(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, f"{LAZY}mappedFileSizeCommitLog={SEGMENT_BYTES}\n") as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        await admin.create_topic("T", 1, 1)
        await fill(processes.name_server, "T")
        for member in processes.ports:  # each check asks another member, which would find the damage
            while not await processes.metric(member, "scrub_passes_total"):
                await asyncio.sleep(0.02)
        segment = processes.root(leader) / "commitlog" / FIRST
        intact = segment.read_bytes()
        wiped, _ = (member for member in processes.ports if member != leader)
        await processes.stop(wiped)
        processes.wipe(wiped)
        flip(segment, 7)
        await processes.start(wiped)
        await processes.probed(wiped, "/replication/caught-up")
        assert segment.read_bytes() == intact
        assert (processes.root(wiped) / "commitlog" / FIRST).read_bytes() == intact
        assert await processes.metric(leader, "scrub_damage_repaired_total") == 1
        assert "are repaired from another copy" in processes.log(leader)
        assert f"member {leader} has sent a damaged record at offset" in processes.log(wiped)
        assert "disk failed" not in processes.log(wiped)
        assert await processes.leader(admin) == leader
        assert sorted(await read(processes.name_server, "T")) == sorted(map(body, range(COUNT)))


async def test_a_follower_names_the_leader_whose_copy_no_member_can_repair(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, f"{LAZY}mappedFileSizeCommitLog={SEGMENT_BYTES}\n") as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        await admin.create_topic("T", 1, 1)
        await fill(processes.name_server, "T")
        for member in processes.ports:  # each check asks another member, which would find the damage
            while not await processes.metric(member, "scrub_passes_total"):
                await asyncio.sleep(0.02)
        wiped, other = (member for member in processes.ports if member != leader)
        await processes.stop(wiped)
        processes.wipe(wiped)
        for member in (leader, other):
            flip(processes.root(member) / "commitlog" / FIRST, 7)
        await processes.start(wiped)
        while not await processes.metric(leader, "scrub_damaged_everywhere_bytes"):
            await asyncio.sleep(0.02)
        remark = f"the copy of {leader} is damaged"
        while remark not in (await processes.probe(wiped, "/replication"))[1]:
            await asyncio.sleep(0.02)
        assert await processes.metric(wiped, "replication_waits_for_repair") == 1
        assert remark in processes.log(wiped)
        assert "disk failed" not in processes.log(wiped)
        assert await processes.metric(leader, "scrub_damaged_bytes") > len(body(7))


async def test_damage_that_no_copy_can_repair_is_reported(tmp_path: Path) -> None:
    more = f"{EAGER}mappedFileSizeCommitLog={SEGMENT_BYTES}\n"
    async with dledger_group(tmp_path, more) as processes, AdminClient(client_config=processes.clients()) as admin:
        await processes.leader(admin)
        await admin.create_topic("T", 1, 1)
        await fill(processes.name_server, "T")
        for member in processes.ports:
            while not await processes.metric(member, "scrub_passes_total"):
                await asyncio.sleep(0.02)
        for member in processes.ports:  # all are stopped, so that none repairs another one meanwhile
            processes.running[member].send_signal(signal.SIGSTOP)
        for member in processes.ports:
            flip(processes.root(member) / "commitlog" / FIRST, 5)
        for member in processes.ports:
            processes.running[member].send_signal(signal.SIGCONT)
        for member in processes.ports:
            while "are not repaired: no other member has sent this part of the log" not in processes.log(member):
                await asyncio.sleep(0.02)
        await processes.leader(admin)
        _, shown = await describe(processes)
        size = int(await processes.metric("n0", "scrub_damaged_bytes"))
        assert size > len(body(5))
        for member in processes.ports:
            line = f"the commit log of {member} is damaged and not repaired: {size} bytes at offset "
            assert line in shown
            assert "the body has a wrong CRC" in shown
        found = json.loads((await describe(processes, "-o", "json"))[0])["damaged"]
        assert sorted((each["member"], each["size"]) for each in found) == [("n0", size), ("n1", size), ("n2", size)]


async def test_a_broker_without_copies_reports_damage_and_changes_nothing(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    settings = {
        "mappedFileSizeCommitLog": "256K", "scrubBytesPerSecond": "1G", "scrubIntervalHours": "0",
        "metricsPort": str(metrics), "autoCreateTopicEnable": "true",
    }  # fmt: skip
    log = tmp_path / "log"
    async with process(tmp_path, port, settings, log=log):
        client = Client(port)
        for number in range(COUNT):
            fields = {
                "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
                "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "",
            }  # fmt: skip
            assert (await client.call(RequestCode.SEND_MESSAGE, fields, body(number))).code == 0
        segment = tmp_path / "store" / "commitlog" / FIRST
        flip(segment, 2)
        damaged = segment.read_bytes()
        while "the commit log is damaged" not in log.read_text(encoding="utf-8"):
            await asyncio.sleep(0.02)
        state = json.loads((await client.call(RequestCode.DESCRIBE_REPLICATION, {})).body)
        await client.close()
    assert [each["size"] > BODY_BYTES for each in state["damaged"]] == [True]
    assert segment.read_bytes() == damaged
    assert "this broker has no other copy" in log.read_text(encoding="utf-8")


async def test_a_slave_and_its_master_repair_each_other(tmp_path: Path) -> None:
    settings = {
        "brokerName": BROKER, "mappedFileSizeCommitLog": str(SEGMENT_BYTES), "scrubBytesPerSecond": "1G",
        "scrubIntervalHours": "0", "autoCreateTopicEnable": "true",
    }  # fmt: skip
    async with (
        ha_processes(tmp_path, settings) as processes,
        AdminClient(name_servers=processes.name_server) as admin,
    ):
        await processes.start(MASTER, "SYNC_MASTER")
        await processes.start(SLAVE, "SLAVE", 1)
        await admin.create_topic("T", 1, 1)
        await fill(processes.name_server, "T")
        await processes.caught_up(admin)
        segments = {name: processes.root(name) / "commitlog" / FIRST for name in (MASTER, SLAVE)}
        intact = segments[MASTER].read_bytes()
        assert segments[SLAVE].read_bytes() == intact
        for number, name in enumerate((SLAVE, MASTER), 3):
            flip(segments[name], number)
            while segments[name].read_bytes() != intact:
                await asyncio.sleep(0.02)
            while "are repaired from another copy" not in processes.log(name):
                await asyncio.sleep(0.02)
        assert sorted(await read(processes.name_server, "T")) == sorted(map(body, range(COUNT)))


async def test_a_log_that_has_diverged_repairs_nothing(tmp_path: Path) -> None:
    settings = {
        "brokerName": BROKER, "mappedFileSizeCommitLog": str(SEGMENT_BYTES), "scrubBytesPerSecond": "1G",
        "scrubIntervalHours": "0", "autoCreateTopicEnable": "true",
    }  # fmt: skip
    async with (
        ha_processes(tmp_path, settings) as processes,
        AdminClient(name_servers=processes.name_server) as admin,
    ):
        for name in (SLAVE, MASTER):  # each broker has written its own log
            await processes.start(name, "ASYNC_MASTER", more={"haMasterMayStartBehind": "true"})
            await admin.create_topic("T", 1, 1)
            await fill(processes.name_server, "T")
            await processes.stop(name)
        await processes.start(MASTER, "ASYNC_MASTER")
        await processes.start(SLAVE, "SLAVE", 1)
        segment = processes.root(SLAVE) / "commitlog" / FIRST
        flip(segment, 3)
        damaged = segment.read_bytes()
        while "its log is another one" not in processes.log(SLAVE):
            await asyncio.sleep(0.02)
        assert segment.read_bytes() == damaged
