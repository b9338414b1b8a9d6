"""A broker checks its log for damage, repairs it from other copies, and reports unrepaired damage."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from raptormq.broker.config import StorageSettings
from raptormq.broker.roles import unreplicated
from raptormq.broker.scrubber import Scrubber
from raptormq.errors import NoValidCopy, RecordsDamaged, StorageError, StoreReadOnly
from raptormq.storage import MessageStore
from raptormq.storage.maintenance import ClosedSegments
from raptormq.storage.maintenance.scrub_schedule import RETRY_MS
from raptormq.storage.read import GetStatus, ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, Clock, message, open_store, read_queue

COUNT = 20
BODY = "x" * 400
RECORD_AT = 2 * 500
"""An offset in a record that is not the first one."""


def filled(volume: MemoryFileSystem) -> MessageStore:
    store = open_store(volume)
    for _ in range(COUNT):
        store.append([message(BODY)])
    store.dispatch()
    store.flush()
    return store


def flip(volume: MemoryFileSystem) -> None:
    file = volume.open(f"/store/commitlog/{0:020d}")
    file.write_at(RECORD_AT, [b"?"], 1)


def settings(rate: int = 1 << 30) -> StorageSettings:
    return StorageSettings(root_dir="/store", scrub_rate=rate, scrub_hours=0)


async def scrubbed(scrubber: Scrubber, clock: Clock, passes: int = 2) -> None:
    while scrubber.gauges()["scrub_passes_total"][1] < passes:
        await scrubber.step()
        clock.now += 1


def source(copy: MessageStore) -> Callable[[int, int], Awaitable[bytes]]:
    async def fetch(begin: int, limit: int) -> bytes:
        return copy.closed_segments().read_valid(begin, limit, 1)

    return fetch


def figures(scrubber: Scrubber) -> dict[str, float]:
    return {name.removeprefix("scrub_"): value for name, (_, value) in scrubber.gauges().items()}


async def test_damage_is_repaired_from_another_copy(caplog: pytest.LogCaptureFixture) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store, copy = filled(volume), filled(MemoryFileSystem())
    flip(volume)
    scrubber = Scrubber(store, settings(), source(copy), clock)
    with caplog.at_level(logging.WARNING):
        await scrubbed(scrubber, clock)
    end = store.closed_segments().end
    assert store.read_log(0, end, wait=True) == copy.read_log(0, end, wait=True)
    found = figures(scrubber)
    assert (found["damage_found_total"], found["damage_repaired_total"], found["damaged_bytes"]) == (1, 1, 0)
    assert found["checked_bytes_total"] >= 2 * end
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert scrubber.report(unreplicated("b", store, "")).damaged == ()


async def test_what_nobody_can_repair_is_reported_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store, copy = filled(volume), filled(MemoryFileSystem())
    flip(volume)
    asked: list[int] = []

    async def fetch(begin: int, limit: int) -> bytes:
        asked.append(limit - begin)
        if len(asked) == 1:
            raise StorageError("n1 does not answer")
        if len(asked) == 2:
            return b"?" * (limit - begin)
        return await source(copy)(begin, limit)

    scrubber = Scrubber(store, settings(), fetch, clock)
    with caplog.at_level(logging.ERROR):
        await scrubbed(scrubber, clock, 3)
    [damage] = scrubber.damaged
    assert damage.offset <= RECORD_AT < damage.offset + damage.size < SEGMENT_BYTES
    assert asked == [damage.size]
    [reported] = scrubber.report(unreplicated("b", store, "")).damaged
    assert (reported.offset, reported.size, reported.reason) == damage
    assert figures(scrubber)["damaged_bytes"] == damage.size
    assert "are not repaired: n1 does not answer" in caplog.text
    for _ in range(2):
        clock.now += RETRY_MS
        await scrubber.step()
    assert len(asked) == 3
    assert "no record begins" in caplog.text
    assert scrubber.damaged == []


async def test_a_broker_without_copies_only_reports_and_one_without_a_rate_does_nothing() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = filled(volume)
    flip(volume)
    before = store.read_log(0, SEGMENT_BYTES, wait=True)
    idle = Scrubber(store, settings(0), None, clock)
    assert not await idle.step()
    alone = Scrubber(store, settings(), None, clock)
    await scrubbed(alone, clock)
    assert [each.offset <= RECORD_AT for each in alone.damaged] == [True]
    assert store.read_log(0, SEGMENT_BYTES, wait=True) == before


async def test_a_place_that_others_suspect_is_checked_at_once_without_a_rate_and_repaired() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store, copy = filled(volume), filled(MemoryFileSystem())
    scrubber = Scrubber(store, settings(0), source(copy), clock)
    flip(volume)
    await scrubber.step()
    assert scrubber.damaged == []
    for offset in (RECORD_AT, RECORD_AT, store.end_offset, -1):
        scrubber.suspect(offset, 1 << 40)
    await scrubber.step()
    assert figures(scrubber)["damage_repaired_total"] == 1
    assert store.read_log(0, SEGMENT_BYTES, wait=True) == copy.read_log(0, SEGMENT_BYTES, wait=True)


async def test_a_read_of_damage_fails_until_it_is_repaired_and_skips_it_if_no_copy_is_valid() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    filled(volume).close()
    store, copy = open_store(volume), filled(MemoryFileSystem())  # reopened, so that reads check what is on the disk
    failures: list[Exception] = [StorageError("n1 does not respond"), NoValidCopy("all are damaged")]

    async def fetch(begin: int, limit: int) -> bytes:
        if failures:
            raise failures.pop(0)
        return await source(copy)(begin, limit)

    scrubber = Scrubber(store, settings(0), fetch, clock)
    flip(volume)
    readable = store.get_messages("topic", 0, 0, ReadOptions(COUNT, 1 << 20))
    damaged = readable.next_offset
    assert (readable.status, readable.message_count) == (GetStatus.FOUND, damaged)
    assert 0 < damaged < COUNT
    for _ in range(2):  # not checked yet, and not repaired
        with pytest.raises(RecordsDamaged, match="is damaged, and is being repaired from another copy: retry"):
            store.get_messages("topic", 0, damaged, ReadOptions(1, 1))
        await scrubber.step()
    [damage] = scrubber.damaged
    assert figures(scrubber)["damaged_everywhere_bytes"] == 0
    clock.now += RETRY_MS
    await scrubber.step()
    assert figures(scrubber)["damaged_everywhere_bytes"] == damage.size
    assert [each.queue_offset for each in read_queue(store)] == [*range(damaged), *range(damaged + 1, COUNT)]
    clock.now += RETRY_MS
    await scrubber.step()
    assert figures(scrubber)["damaged_everywhere_bytes"] == figures(scrubber)["damaged_bytes"] == 0
    assert [each.queue_offset for each in read_queue(store)] == list(range(COUNT))


async def test_a_broker_whose_disk_cannot_be_repaired_hands_leadership_to_the_valid_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store, copy = filled(volume), filled(MemoryFileSystem())
    flip(volume)
    handed_over: list[int] = []

    async def hand_over() -> None:
        handed_over.append(clock.now)

    def refuse(*_: object) -> int:
        raise StoreReadOnly("the disk returns other bytes")

    scrubber = Scrubber(store, settings(), source(copy), clock, hand_over)
    monkeypatch.setattr(ClosedSegments, "repair", refuse)
    await scrubbed(scrubber, clock)
    assert len(handed_over) == 1
    assert figures(scrubber)["damaged_everywhere_bytes"] == 0
    monkeypatch.undo()
    clock.now += RETRY_MS
    await scrubber.step()
    assert scrubber.damaged == []
    assert len(handed_over) == 1
