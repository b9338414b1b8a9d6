"""A store that refuses writes for lack of a resource accepts them within a second after it is available, without a
restart. The test advances the timers.
"""

from __future__ import annotations

import errno
import time
from typing import Any

import pytest

from raptormq.errors import DiskFull, OutOfResources, StorageError
from raptormq.storage import MessageStore
from raptormq.storage.queue.append_batches import PendingRecord
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.held_timers import HeldTimers
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, bodies, message, open_store, put, read_queue

LARGE = "x" * 1500
A_SECOND_MS = 1_000
LONGEST_MS = 10_000
"""The longest interval between two runs of the same function."""

WANTS = {
    "no room": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "descriptors of the process": errno.EMFILE,
    "descriptors of the machine": errno.ENFILE,
    "memory": errno.ENOMEM,
}
PLACES = {
    "queue": ("write", "consumequeue"),
    "new queue": ("create", "consumequeue"),
    "checkpoint": ("write", "/checkpoint"),
    "offsets": ("write", "consumerOffset"),
    "index": ("write", "/index/"),
    "segment": ("allocate", "commitlog"),
    "new segment": ("create", "commitlog"),
    "log": ("write", "commitlog"),
}


def keyed(body: str) -> PendingRecord:
    """Append a message that changes every file of a store."""
    return PendingRecord("topic", 0, body.encode(), b"KEYS\x01key\x02")


def refusal(store: MessageStore) -> StorageError | None:
    """Return the error for a message of almost the size of a segment; None if it was stored."""
    try:
        put(store, keyed(LARGE))
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("want", WANTS)
async def test_whatever_is_used_up_is_waited_for_and_no_longer_than_a_second(want: str, place: str) -> None:
    volume = FaultyFileSystem(MemoryFileSystem())
    store = open_store(volume, index_slots=10, index_entries=10)
    timers = HeldTimers(store)
    put(store, keyed("a"))
    await timers.advance(LONGEST_MS)
    kind, path = PLACES[place]
    volume.faults.append(Fault(kind=kind, path=path, error=WANTS[want], repeats=True))
    store.consumer_offsets.commit("topic", "group", 0, 1)
    taken = 1
    if place == "new queue":
        put(store, message("b", queue_id=1))
    while (error := refusal(store)) is None:
        taken += 1
        await timers.advance(LONGEST_MS + 1)
    assert type(error) is (DiskFull if want in ("no room", "quota") else OutOfResources)
    assert not store.stats().writable
    await timers.advance(10 * LONGEST_MS + 1)
    assert type(refusal(store)) is type(error), "for lack of the same resource"
    volume.faults.clear()
    await timers.advance(A_SECOND_MS)
    assert refusal(store) is None
    assert store.stats().writable
    store.close()
    again = open_store(volume, index_slots=10, index_entries=10)
    assert [len(each) for each in bodies(read_queue(again))] == [1, *[1500] * taken]


async def test_a_disk_that_was_too_full_is_looked_at_again_within_a_second() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, disk_full_ratio=0.5)
    timers = HeldTimers(store)
    put(store, message("a"))
    capacity, volume.capacity = volume.capacity, volume.used() * 3 // 2
    await timers.advance(LONGEST_MS)
    with pytest.raises(DiskFull, match="diskSpaceWarningLevelRatio"):
        store.append([message("b")])
    volume.capacity = capacity
    await timers.advance(A_SECOND_MS)
    put(store, message("b"))
    assert bodies(read_queue(store)) == ["a", "b"]


@pytest.mark.parametrize("age_hours", [71, 72], ids=["young", "expired"])
async def test_what_is_expired_makes_room_within_a_second_and_what_is_young_never_sooner(age_hours: int) -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    never: dict[str, Any] = {"disk_max_used_ratio": 2.0, "disk_clean_ratio": 2.0, "disk_full_ratio": 2.0}
    later = clock.now + age_hours * 3_600_000
    another_hour = (time.localtime(later / 1000).tm_hour + 12) % 24
    store = open_store(volume, clock, delete_when=str(another_hour), **never)
    timers = HeldTimers(store)
    put(store, *(message(LARGE) for _ in range(3)))
    store.flush()
    await timers.advance(LONGEST_MS)
    clock.now = later
    volume.capacity = volume.used()
    before = store.stats().min_offset
    while True:
        try:
            put(store, message(LARGE))
        except DiskFull:
            break
    await timers.advance(A_SECOND_MS)
    if age_hours == 72:
        put(store, message(LARGE))
        assert store.stats().min_offset > before
    else:
        with pytest.raises(DiskFull):
            store.append([message(LARGE)])
        assert store.stats().min_offset == before
