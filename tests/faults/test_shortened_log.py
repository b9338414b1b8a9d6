"""Members of a group that begin later than the others, and members that wait for lost disks."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageQueue, Producer, PullConsumer
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.faults.broker_process import Client
from tests.faults.dledger_processes import BROKER, FAST_ELECTIONS, PATIENCE_S, DledgerProcesses, dledger_group
from tests.faults.test_dledger_group import command

pytestmark = pytest.mark.timeout(300)

QUEUE = MessageQueue("orders", BROKER, 0)
SEGMENT_BYTES = 1 << 20
SMALL_SEGMENTS = f"mappedFileSizeCommitLog={SEGMENT_BYTES}\n"
KEPT = "dLegerShortenedLogRenewal=0\n"
"""Logs that begin too late are kept."""
COUNT = 40


async def fill(processes: DledgerProcesses, admin: AdminClient) -> None:
    """Send messages of several segments to one queue, and wait until all members have them."""
    await admin.create_topic(QUEUE.topic, 1, 1)
    async with Producer("senders", client_config=processes.clients()) as producer:
        for number in range(COUNT):
            await producer.send(
                Message(QUEUE.topic, b"%d " % number + os.urandom(100_000)), queue=QUEUE, timeout=PATIENCE_S
            )
    ends: set[int] = set()
    while len(ends) != 1:
        states = [json.loads((await processes.probe(member, "/replication"))[1]) for member in processes.ports]
        ends = {state["confirmedOffset"] for state in states}
        await asyncio.sleep(0.02)


def delete_segments(processes: DledgerProcesses, member: str, count: int) -> int:
    """Delete the first segments of a stopped member, and return where its log begins."""
    segments = sorted((processes.root(member) / "commitlog").iterdir())
    for each in segments[:count]:
        each.unlink()
    return int(segments[count].name)


async def test_consumer_skips_no_message_after_a_member_has_lost_its_first_segments(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, SMALL_SEGMENTS + KEPT) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await processes.leader(admin)
        shortened, other = [member for member in processes.ports if member != leader]
        await fill(processes, admin)
        await processes.stop(shortened)
        start = delete_segments(processes, shortened, 2)
        assert start == 2 * SEGMENT_BYTES
        await processes.start(shortened)
        await processes.probed(shortened, "/replication/caught-up")
        while await processes.metric(shortened, "replication_shortened_bytes") != start:
            await asyncio.sleep(0.02)

        servers = ("-n", processes.name_server, "--timeout", str(PATIENCE_S))
        code, _, errors = await command("cluster", "transfer", BROKER, "--to", shortened, *servers)
        assert (code, errors.count("\n")) == (2, 1)
        assert f"the log of {shortened} begins at {start}, and that of the group at 0" in errors
        _, _, errors = await command("cluster", "describe", BROKER, *servers)
        assert f"{shortened}: the log of member {shortened} begins at {start}" in errors

        processes.kill(leader)
        assert await processes.leader(admin, other_than=leader) == other
        async with PullConsumer(client_config=processes.clients()) as consumer:
            pulled = await consumer.pull(QUEUE, 5)
            assert int(pulled.messages()[0].body.split()[0]) == 5


@pytest.mark.parametrize("killed", [False, True])
async def test_shortened_member_copies_the_log_anew_and_leads_with_all_messages(tmp_path: Path, killed: bool) -> None:
    more = f"{SMALL_SEGMENTS}dLegerShortenedLogRenewal=300\n"
    async with dledger_group(tmp_path, more) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        shortened = next(member for member in processes.ports if member != leader)
        await fill(processes, admin)
        await processes.stop(shortened)
        assert delete_segments(processes, shortened, 2) == 2 * SEGMENT_BYTES
        await processes.start(shortened)
        while f"drops its log, which begins at {2 * SEGMENT_BYTES}" not in processes.log(shortened):
            await asyncio.sleep(0.01)
        if killed:
            processes.kill(shortened)
            await processes.start(shortened)
        while not (processes.root(shortened) / "commitlog" / f"{0:020}").exists():
            await asyncio.sleep(0.02)
        servers = ("-n", processes.name_server, "--timeout", str(PATIENCE_S))
        while (await command("cluster", "transfer", BROKER, "--to", shortened, *servers))[0]:
            await asyncio.sleep(0.1)
        assert await processes.leader(admin, other_than=leader) == shortened
        async with PullConsumer(client_config=processes.clients()) as consumer:
            for number in (0, 5, COUNT - 1):
                pulled = await consumer.pull(QUEUE, number)
                assert int(pulled.messages()[0].body.split()[0]) == number
        assert await processes.metric(shortened, "replication_shortened_bytes") == 0


async def test_shortened_member_leads_alone_after_a_time_and_names_what_is_lost(tmp_path: Path) -> None:
    more = f"{SMALL_SEGMENTS}{KEPT}{FAST_ELECTIONS}dLegerShortenedLogWait=3000\n"
    async with dledger_group(tmp_path, more) as processes, AdminClient(client_config=processes.clients()) as admin:
        leader = await processes.leader(admin)
        await fill(processes, admin)
        others = [member for member in processes.ports if member != leader]
        for member in others:
            await processes.stop(member)
            start = delete_segments(processes, member, 2)
            await processes.start(member)
            await processes.probed(member, "/replication/caught-up")
        processes.kill(leader)
        new = await processes.leader(admin, other_than=leader)
        servers = ("-n", processes.name_server, "--timeout", str(PATIENCE_S))
        _, shown, errors = await command("cluster", "describe", BROKER, "-o", "json", *servers)
        assert json.loads(shown)["lost"] == {"begin": 0, "end": start}, errors
        assert f"{new}: messages are lost: offsets 0 to {start} of the log" in json.loads(shown)["remark"]
        assert f"messages are lost: offsets 0 to {start} of the log" in processes.log(new)
        assert await processes.metric(new, "replication_lost_bytes") == start


async def test_member_with_the_last_of_three_disks_says_for_whom_it_waits(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, FAST_ELECTIONS) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        kept = await processes.leader(admin)
        wiped = [member for member in processes.ports if member != kept]
        await admin.create_topic(QUEUE.topic, 1, 1)
        for member in list(processes.ports):
            processes.kill(member)
        for member in wiped:
            processes.wipe(member)
        for member in processes.ports:
            await processes.start(member)
        cause = (
            "the group has no leader: 1 of 3 voters answer, and 2 must; a new disk, which cannot vote, at"
            f" {', '.join(wiped)}: put a former disk back"
        )
        while cause not in processes.log(kept):
            await asyncio.sleep(0.05)
        (line,) = [line for line in processes.log(kept).splitlines() if cause in line]
        assert "WARNING" in line
        assert f"member {kept} waits since 20" in line
        servers = ("-n", processes.name_server, "--timeout", str(PATIENCE_S))
        code, _, errors = await command("cluster", "describe", BROKER, *servers)
        assert code == 0
        assert f"{kept}: waits since 20" in errors
        assert cause in errors
        for member in wiped:
            assert f"{member}: waits since 20" in errors
            assert f"the disk of {member} is new, and the group exists (answer of {kept})" in errors
        client = Client(processes.ports[kept])
        refused = await client.call(RequestCode.GET_MAX_OFFSET, {"topic": QUEUE.topic, "queueId": 0})
        await client.close()
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert cause in str(refused.remark)
