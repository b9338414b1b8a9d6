"""Members compare their copies of the log: the copy that a majority contradicts is repaired, others are only named."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from raptormq.broker.config import StorageSettings
from raptormq.broker.replication.copy_comparison import CopyComparison
from raptormq.broker.replication.links import RANGE_BYTES, LogRange
from raptormq.broker.roles import unreplicated
from raptormq.broker.scrubber import Scrubber
from raptormq.errors import NoValidCopy, RaptorMQError, RequestTimeout, StorageError, StoreReadOnly
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.storage.maintenance import ClosedSegments, Copy
from raptormq.storage.maintenance.differing_ranges import AGAIN_MS
from raptormq.storage.maintenance.scrub_schedule import RETRY_MS
from tests.broker.replication.group import Group, Member, inline
from tests.storage.stores import SEGMENT_BYTES, Clock, message

COUNT = 12
_ROUNDS = 10
"""Least number of steps of a check. Each step compares one of the ranges that differ, and there are fewer."""
_MINUTE_MS = 60_000


class DirectLinks:
    """The links of a member that call the other members."""

    def __init__(self, copies: Copies, own: str) -> None:
        self._copies = copies
        self._own = own

    def is_connected(self, member: str) -> bool:
        return member not in self._copies.silent

    def _other(self, member: str) -> CopyComparison:
        if member in self._copies.silent:
            raise RequestTimeout(f"{member} does not respond")
        return self._copies.comparisons[member]

    async def digest(self, member: str, place: LogRange, digest: str) -> str:
        self._copies.compared.append((self._own, member))
        return "" if member in self._copies.old else await self._other(member).digest(place, digest)

    async def read_copy(self, member: str, place: LogRange) -> Copy:
        other = self._other(member)
        data = await other.read_range(place.begin, place.limit, RANGE_BYTES)
        copied = other.copied(place, len(data))
        return Copy(data, None if member in self._copies.old or copied is None else copied.ranges)


class Copies:
    """The comparisons and the scrubs of the members of a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.clock = Clock()
        self.silent: set[str] = set()
        self.old: set[str] = set()
        """Members of version 0.2.0."""
        self.compared: list[tuple[str, str]] = []
        self.handed_over: list[str] = []
        self.comparisons: dict[str, CopyComparison] = {}
        self.scrubs: dict[str, Scrubber] = {}
        for each in group.members.values():
            self._create(each)

    def _create(self, each: Member) -> None:
        links: Any = DirectLinks(self, each.id)
        member = member_of(each)

        async def hand_over() -> None:
            self.handed_over.append(each.id)

        def found_damage(offset: int, size: int) -> None:
            self.scrubs[each.id].suspect(offset, size)

        comparison = CopyComparison(member, links, each.store, inline, found_damage, lambda _: None)

        async def fetch(begin: int, limit: int) -> bytes:
            for other in sorted(self.comparisons.keys() - {each.id} - self.silent):
                data = await self.comparisons[other].read_range(begin, limit, RANGE_BYTES)
                noting = asyncio.ensure_future(member.note_copied(begin, begin + len(data)))
                while not noting.done():
                    each.store.flush()
                    await asyncio.sleep(0)
                return data
            raise StorageError("no other copy")

        settings = StorageSettings(root_dir="/store", scrub_rate=1 << 30, scrub_hours=0)
        scrub = Scrubber(each.store, settings, fetch, self.clock, hand_over, comparison)
        comparison.suspect = scrub.copies_differ
        self.comparisons[each.id], self.scrubs[each.id] = comparison, scrub

    async def check(self, *members: str, passes: int = 1) -> None:
        """Complete passes of the checks of these members, or of all that respond, and the comparisons that were due."""
        checked = members or sorted(self.scrubs.keys() - self.silent)
        before = {member: self.figure(member, "passes_total") for member in checked}
        rounds = 0
        while rounds < _ROUNDS or any(self.figure(each, "passes_total") < before[each] + passes for each in checked):
            for member in checked:
                await self.scrubs[member].step()
            self.clock.now += 1
            rounds += 1

    def figure(self, member: str, name: str) -> float:
        return self.scrubs[member].gauges()[f"scrub_{name}"][1]

    def figures(self, name: str) -> dict[str, float]:
        return {member: self.figure(member, name) for member in self.scrubs}

    def state(self, member: str) -> ReplicationState:
        return self.scrubs[member].report(unreplicated("b", self.group.members[member].store, ""))


def member_of(each: Member) -> Any:
    assert each.member is not None
    return each.member


def copied(each: Member, begin: int, end: int) -> tuple[tuple[int, int], ...]:
    found: tuple[tuple[int, int], ...] = member_of(each).copied(begin, end).ranges
    return found


def log_of(each: Member) -> bytes:
    end = each.store.closed_segments().end
    return b"".join(map(bytes, each.store.read_log(0, end, wait=True)))


def logs(group: Group) -> list[bytes]:
    return [log_of(each) for each in group.members.values()]


def flip(each: Member, offset: int, bit: int = 0) -> None:
    base = offset - offset % SEGMENT_BYTES
    byte = log_of(each)[offset]
    each.volume.open(f"/store/commitlog/{base:020d}").write_at(offset - base, [bytes([byte ^ (1 << bit)])], 1)


async def fill(group: Group) -> list[tuple[int, int]]:
    """Append messages of several segments. Return the offsets and sizes of those in closed segments."""
    assert group.leader is not None
    places = []
    for number in range(COUNT):
        appended = group.leader.store.append([message(f"{number}".ljust(500, "."))])
        places.append((appended.physical_offsets[0], appended.sizes[0]))
        await group.pass_time(1)
    await group.calm(group.is_whole)
    for each in group.members.values():
        each.store.flush()
    end = min(each.store.closed_segments().end for each in group.members.values())
    return [(offset, size) for offset, size in places if offset + size <= end]


async def formed(seed: int = 1, size: int = 3) -> tuple[Group, list[tuple[int, int]]]:
    group = Group(seed, size)
    group.start()
    await group.calm(group.is_whole)
    places = await fill(group)
    assert len(places) > COUNT // 2
    return group, places


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize("damaged", ["n0", "n1", "n2"])
def test_a_flipped_bit_at_any_position_of_a_record_is_repaired(damaged: str) -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        await copies.check()
        assert set(copies.compared) == {("n0", "n1"), ("n1", "n2"), ("n2", "n0")}
        intact = log_of(group.members[damaged])
        offset, size = places[3]
        for number, position in enumerate(range(offset, offset + size, 7), 1):
            flip(group.members[damaged], position, number % 8)
            await copies.check()
            assert logs(group) == [intact] * 3, position - offset
            assert copies.figure(damaged, "damage_repaired_total") == number
        assert sum(copies.figures("damage_found_total").values()) == number
        copies.clock.now += AGAIN_MS
        await copies.check()
        assert set(copies.figures("differing_bytes").values()) == {0}
        assert set(copies.figures("damaged_bytes").values()) == {0}

    run(scenario())


def test_of_two_copies_that_differ_both_are_named_until_the_third_decides(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        intact = log_of(group.members["n0"])
        copies.silent = {"n2"}
        offset, size = places[3]
        flip(group.members["n1"], offset + 16)
        found = logs(group)
        await copies.check(passes=2)
        copies.clock.now += AGAIN_MS
        await copies.check()
        assert logs(group) == found
        for member in ("n0", "n1"):
            assert copies.figure(member, "differing_bytes") == size
            text = (
                f"the copies of n0, n1 of {size} bytes of the commit log at offset {offset} differ, and no majority of"
                " the group has equal originals: none is changed"
            )
            assert copies.state(member).remark == text
            assert copies.state(member).damaged == ()
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [text] * 2
        copies.silent = set()
        copies.clock.now += AGAIN_MS
        await copies.check()
        assert logs(group) == [intact] * 3
        assert copies.figures("damage_repaired_total") == {"n0": 0, "n1": 1, "n2": 0}
        copies.clock.now += AGAIN_MS
        await copies.check()
        assert set(copies.figures("differing_bytes").values()) == {0}
        assert {copies.state(member).remark for member in group.members} == {""}

    run(scenario())


def test_a_member_whose_disk_was_replaced_does_not_vote_on_what_it_has_copied() -> None:
    async def scenario() -> None:
        group, places = await formed()
        leader = group.leader
        assert leader is not None
        flip(leader, places[3][0] + 16)
        replaced, other = (each for each in group.members.values() if each is not leader)
        replaced.kill()
        replaced.volume = type(replaced.volume)()
        replaced.saved_topics.clear()
        replaced.start()
        await group.calm(group.is_whole)
        new = (await fill(group))[-1]
        assert group.leader is leader
        assert log_of(replaced)[: places[-1][0]] == log_of(leader)[: places[-1][0]]
        found = logs(group)
        copies = Copies(group)
        await copies.check(passes=2)
        assert logs(group) == found
        assert set(copies.figures("differing_bytes").values()) == {places[3][1]}
        for each in (leader, replaced, other):  # it votes on what it has received since
            flip(each, new[0] + 16)
            copies.clock.now += AGAIN_MS
            await copies.check(passes=2)
            assert logs(group) == found, each.id

    run(scenario())


def test_a_member_that_was_down_does_not_vote_on_what_it_has_received_late(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        group, _ = await formed()
        leader = group.leader
        assert leader is not None
        late, _ = (each for each in group.members.values() if each is not leader)
        await member_of(late).stop()
        late.kill()
        begin = leader.store.end_offset
        for _ in range(COUNT):
            leader.store.append([message("." * 500)])
            await group.pass_time(1)
        leader.store.flush()
        place = begin - begin % SEGMENT_BYTES + SEGMENT_BYTES
        flip(leader, place + 16)
        late.start()
        monkeypatch.setattr(late.store, "_clock", Clock(Clock().now + _MINUTE_MS + 1))
        await group.calm(group.is_whole)
        for each in group.members.values():
            each.store.flush()
        assert copied(late, place, place + 100)
        assert not copied(late, 0, begin - begin % SEGMENT_BYTES)
        copies = Copies(group)
        found = logs(group)
        await copies.check(passes=2)
        assert logs(group) == found
        assert min(copies.figures("differing_bytes").values()) > 0

    run(scenario())


def test_a_range_that_was_repaired_from_one_other_copy_does_not_vote() -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        offset, size = places[3]
        repaired = group.members["n1"]
        flip(repaired, offset + 88)
        await copies.check()
        assert copies.figure("n1", "damage_repaired_total") == 1
        assert copied(repaired, 0, 1 << 20) == ((offset, offset + size),)
        await member_of(repaired).stop()
        repaired.kill()
        repaired.start()
        assert copied(repaired, 0, 1 << 20) == ((offset, offset + size),)

    run(scenario())


def test_a_member_of_0_2_0_does_not_vote_and_is_only_named() -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        copies.old = {"n1"}
        flip(group.members["n2"], places[3][0] + 16)
        found = logs(group)
        await copies.check("n0", "n2", passes=2)
        assert ("n0", "n2") in copies.compared, "the member behind the one that cannot compare is asked"
        assert logs(group) == found
        assert copies.figures("differing_bytes") == {"n0": places[3][1], "n1": 0, "n2": places[3][1]}
        assert "the copies of n0, n1, n2 of" in copies.state("n0").remark

    run(scenario())


def test_what_two_members_of_five_contradict_needs_a_majority_of_the_group() -> None:
    async def scenario() -> None:
        group, places = await formed(size=5)
        copies = Copies(group)
        copies.silent = {"n3", "n4"}
        flip(group.members["n0"], places[3][0] + 16)
        found = logs(group)
        await copies.check(passes=2)
        assert logs(group) == found
        copies.silent = {"n4"}
        copies.clock.now += AGAIN_MS
        await copies.check(passes=2)
        assert logs(group) == [found[1]] * 5

    run(scenario())


def test_the_progress_of_a_release_that_does_not_know_copied_ranges_leaves_all_of_them_unknown() -> None:
    async def scenario() -> None:
        group, _ = await formed()
        each = group.members["n1"]
        assert not copied(each, 0, each.store.end_offset)
        await member_of(each).stop()
        each.kill()
        files = each.files()
        files.save_progress(files.load_progress()._replace(copied=None))
        each.start()
        assert copied(each, 0, each.store.end_offset) == ((0, each.store.end_offset),)

    run(scenario())


def test_damage_that_others_contradict_is_known_until_the_disk_takes_the_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        offset, size = places[3]
        intact = log_of(group.members["n0"])
        flip(group.members["n0"], offset + 16)

        def refuse(*_: object) -> int:
            raise StoreReadOnly("the disk returns other bytes")

        with monkeypatch.context() as patched:
            patched.setattr(ClosedSegments, "repair", refuse)
            await copies.check(passes=3)
        assert copies.handed_over == ["n0"]
        assert [(each.offset, each.size) for each in copies.state("n0").damaged] == [(offset, size)]
        assert copies.figure("n0", "damage_found_total") == 1
        place = copies.comparisons["n0"]
        with pytest.raises(NoValidCopy, match="this copy of the log is damaged"):
            await place.read_range(offset, offset + size, RANGE_BYTES)
        assert await place.read_range(*(places[2][0], offset), RANGE_BYTES) == intact[places[2][0] : offset]
        copies.clock.now += RETRY_MS
        await copies.check()
        assert logs(group) == [intact] * 3
        assert copies.state("n0").damaged == ()

    run(scenario())


def test_only_closed_ranges_of_the_same_log_are_compared() -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        comparison, member = copies.comparisons["n1"], member_of(group.members["n1"])
        closed, end = group.members["n1"].store.closed_segments(), group.members["n1"].store.end_offset
        same = member.log_identity(closed.end)
        assert same == member_of(group.members["n0"]).log_identity(closed.end)
        result = closed.check(0, closed.end)
        assert await comparison.digest(LogRange(0, closed.end, same), result.digest) == result.digest
        refused = [
            LogRange(0, closed.end, "1:1:1"),
            LogRange(closed.end, end, member.log_identity(end)),
            LogRange(0, 0, member.log_identity(0)),
            LogRange(0, (32 << 20) + 1, member.log_identity((32 << 20) + 1)),
        ]
        for place in refused:
            with pytest.raises(StorageError):
                await comparison.digest(place, result.digest)
        assert comparison.copied(LogRange(0, closed.end, same), 1) is not None
        assert comparison.copied(LogRange(0, closed.end, "1:1:1"), 1) is None
        flip(group.members["n1"], places[3][0] + 88)
        with pytest.raises(NoValidCopy):
            await comparison.digest(LogRange(0, closed.end, same), result.digest)

    run(scenario())


def test_a_member_that_has_a_conflict_or_no_leader_does_not_take_part() -> None:
    async def scenario() -> None:
        group, places = await formed()
        copies = Copies(group)
        comparison, member = copies.comparisons["n1"], member_of(group.members["n1"])
        end = places[3][0]
        assert await comparison.is_equal(0, end, "") is False
        member.conflict = "another process has the same id"
        assert await comparison.is_equal(0, end, "") is None
        with pytest.raises(RaptorMQError, match="does not take part"):
            await comparison.differences(0, end)
        assert comparison.copied(LogRange(0, end, member.log_identity(end)), end) is None

    run(scenario())
