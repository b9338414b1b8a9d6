"""Bits that flip outside of the bodies of records are found in a group, because its members compare their copies."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from raptormq.client import AdminClient
from tests.faults.dledger_processes import NAME_SERVER, DledgerProcesses, Host, dledger_group
from tests.faults.test_scrub import (
    BODY_BYTES,
    COUNT,
    EAGER,
    FIRST,
    SEGMENT_BYTES,
    body,
    describe,
    fill,
    read,
)

pytestmark = pytest.mark.timeout(240)
SMALL = f"mappedFileSizeCommitLog={SEGMENT_BYTES}\n"
IDLE = "scrubBytesPerSecond=0\n"
_BODY_AT = 88
"""Position of the body in a record with IPv4 hosts. Before it are the fields, behind it topic and properties."""
_FLAG_AT, _BORN_AT, _QUEUE_OFFSET_AT = 16, 40, 20


def place_of(segment: Path, number: int, part: str) -> int:
    """Return the position of a byte of the record of a message: in its header, its topic or its properties."""
    begin = segment.read_bytes().index(b"message %d " % number) - _BODY_AT
    topic = begin + _BODY_AT + BODY_BYTES + 1
    return {
        "flag": begin + _FLAG_AT + 3, "queue offset": begin + _QUEUE_OFFSET_AT + 7, "born": begin + _BORN_AT + 7,
        "topic": topic, "properties": topic + 3,
    }[part]  # fmt: skip


def flip(segment: Path, at: int) -> None:
    with segment.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def segments_of(processes: DledgerProcesses) -> dict[str, Path]:
    return {member: processes.root(member) / "commitlog" / FIRST for member in processes.ports}


async def above(processes: DledgerProcesses, member: str, metric: str, least: float = 0) -> None:
    """Wait until a metric of a member is above a value."""
    while await processes.metric(member, metric) <= least:
        await asyncio.sleep(0.02)


async def filled(processes: DledgerProcesses, admin: AdminClient) -> str:
    """Send the messages, and wait until all members have the first segment. Return the leader."""
    leader = await processes.leader(admin)
    await admin.create_topic("T", 1, 1)
    await fill(processes.name_server, "T")
    segments = segments_of(processes)
    intact = segments[leader].read_bytes()
    for segment in segments.values():
        while not segment.exists() or segment.read_bytes() != intact:
            await asyncio.sleep(0.02)
    return leader


async def remarked(processes: DledgerProcesses, member: str, text: str) -> None:
    """Wait until the remark of a member contains a text."""
    while text not in json.loads((await processes.probe(member, "/replication"))[1])["remark"]:
        await asyncio.sleep(0.02)


async def restarted(processes: DledgerProcesses, more: str) -> None:
    """Start all members again, with other settings."""
    for member in processes.ports:
        processes.configure(member, more)
        await processes.stop(member)
        await processes.start(member)


async def test_the_copy_that_two_members_contradict_is_repaired_on_a_follower_and_on_the_leader(
    tmp_path: Path,
) -> None:
    async with (
        dledger_group(tmp_path, EAGER + SMALL) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await filled(processes, admin)
        segments = segments_of(processes)
        intact = segments[leader].read_bytes()
        for member in processes.ports:
            await above(processes, member, "scrub_compared_bytes_total")
        follower, other = (member for member in processes.ports if member != leader)
        flips = [
            (follower, ["topic"]), (leader, ["properties"]), (other, ["queue offset", "born"]), (leader, ["flag"]),
        ]  # fmt: skip
        repaired = dict.fromkeys(processes.ports, 0)
        for number, (member, parts) in enumerate(flips, 5):
            for part in parts:
                flip(segments[member], place_of(segments[member], number, part))
            while segments[member].read_bytes() != intact:
                await asyncio.sleep(0.02)
            repaired[member] += 1
            await above(processes, member, "scrub_damage_repaired_total", repaired[member] - 1)
            assert "a majority of the group has another record" in processes.log(member)
            assert "are repaired from another copy" in processes.log(member)
        for member in processes.ports:
            assert await processes.metric(member, "scrub_damage_found_total") == repaired[member]
            assert await processes.metric(member, "scrub_damaged_bytes") == 0
            assert segments[member].read_bytes() == intact
        assert sorted(await read(processes.name_server, "T")) == sorted(map(body, range(COUNT)))
        assert await processes.leader(admin) == leader


async def test_of_two_copies_that_differ_both_are_named_and_none_is_changed(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, EAGER + SMALL) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await filled(processes, admin)
        segments = segments_of(processes)
        follower, stopped = (member for member in processes.ports if member != leader)
        await processes.stop(stopped)
        flip(segments[follower], place_of(segments[follower], 7, "topic"))
        stored = {member: segments[member].read_bytes() for member in (leader, follower)}
        assert stored[leader] != stored[follower]
        named = f"the copies of {', '.join(sorted((leader, follower)))} of"
        for member in (leader, follower):
            await above(processes, member, "scrub_differing_bytes", BODY_BYTES)
            await remarked(processes, member, named)
            assert named in processes.log(member)
        _, shown = await describe(processes)
        assert f"{leader}: {named}" in shown
        assert f"{follower}: {named}" in shown
        assert {member: segments[member].read_bytes() for member in (leader, follower)} == stored
        for member in (leader, follower):
            assert await processes.metric(member, "scrub_damage_found_total") == 0


@pytest.mark.crossing("damage", "dledger", "restart")
@pytest.mark.crossing("members", "dledger", "restart")
async def test_a_replaced_disk_does_not_vote_on_what_it_has_copied(tmp_path: Path) -> None:
    async with (
        dledger_group(tmp_path, IDLE + SMALL) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await filled(processes, admin)
        segments = segments_of(processes)
        good = segments[leader].read_bytes()
        replaced, other = (member for member in processes.ports if member != leader)
        flip(segments[leader], place_of(segments[leader], 7, "topic"))
        damaged = segments[leader].read_bytes()
        await processes.stop(replaced)
        processes.wipe(replaced)
        await processes.start(replaced)
        await processes.votes(admin, leader, replaced)
        while segments[replaced].read_bytes() != damaged:
            await asyncio.sleep(0.02)
        await restarted(processes, EAGER + SMALL)
        for member in processes.ports:
            await above(processes, member, "scrub_differing_bytes", BODY_BYTES)
            await remarked(processes, member, "the copies of n0, n1, n2 of")
            assert await processes.metric(member, "scrub_damage_found_total") == 0
        found = {member: segment.read_bytes() for member, segment in segments.items()}
        assert found == {leader: damaged, replaced: damaged, other: good}


_LIKE_0_2_0 = """\
import runpy, sys
from raptormq.broker.replication import copy_comparison, links
is_known = links.Inbox._range_response

async def without_comparison(self, request):
    for name in ("log", "digest"):
        request.ext_fields.pop(name, None)
    return await is_known(self, request)

async def no_comparison(self, begin, end, digest):
    return None

links.Inbox._range_response = without_comparison
copy_comparison.CopyComparison.is_equal = no_comparison
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


async def test_a_member_that_does_not_compare_copies_does_not_vote_and_serves(tmp_path: Path) -> None:
    old = Host(enter=(sys.executable, "-c", _LIKE_0_2_0))
    hosts = {NAME_SERVER: Host(), "n0": old, "n1": Host(), "n2": Host()}
    async with (
        dledger_group(tmp_path, EAGER + SMALL, hosts=hosts) as processes,
        AdminClient(client_config=processes.clients()) as admin,
    ):
        leader = await filled(processes, admin)
        segments = segments_of(processes)
        intact = segments[leader].read_bytes()
        flip(segments["n1"], place_of(segments["n1"], 7, "properties"))
        for member in ("n1", "n2"):
            await above(processes, member, "scrub_differing_bytes", BODY_BYTES)
            await remarked(processes, member, "the copies of n0, n1, n2 of")
        assert segments["n2"].read_bytes() == segments["n0"].read_bytes() == intact != segments["n1"].read_bytes()
        assert "refused a message" not in processes.log("n0")
        assert await processes.leader(admin) == leader
        assert len(await read(processes.name_server, "T")) == COUNT
