"""Retention: which files are deleted, when, and which are kept."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

import pytest

from raptormq.errors import ConfigError, DiskFull
from raptormq.storage import GetStatus, MessageStore
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.maintenance.retention import parse_hours
from raptormq.storage.queue.consume_queue import ConsumeQueue
from raptormq.storage.read.options import ReadOptions
from tests.storage.batch_stores import batch
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    SEGMENT_BYTES,
    Clock,
    Inline,
    bodies,
    checkpoint,
    message,
    message_at,
    offset_by_time,
    open_store,
    put,
    queue_bounds,
    read_queue,
    run_retention,
)

P = ParamSpec("P")
T = TypeVar("T")
HOUR_MS = 3_600_000
DELETING = f"deleting 5 segments of the log, up to offset {5 * SEGMENT_BYTES}; the disk is "


def at_hour(hour: int) -> int:
    """Return a time (ms) at this local hour."""
    day = time.localtime(1_700_000_000)
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, hour, 30, 0, 0, 0, -1))) * 1000


def filled(volume: MemoryFileSystem, clock: Clock, segments: int = 6) -> MessageStore:
    """Write segments of one message each, one hour apart, the first at 03:30."""
    clock.now = at_hour(3)
    store = open_store(volume, clock, file_reserved_hours=3, delete_when="12")
    for number in range(segments):
        put(store, message(f"{number}".ljust(1500, "."), queue_id=number % 2))
        clock.now += HOUR_MS
    checkpoint(store)
    return store


def first_segment(volume: MemoryFileSystem) -> int:
    return int(volume.names("/store/commitlog")[0]) // SEGMENT_BYTES


def test_below_75_percent_old_segments_go_at_the_hour() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    run_retention(store, at_hour(11))
    assert first_segment(volume) == 0
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 5, "written at 8:30; the last segment is always kept"


def test_the_only_segment_stays_where_the_log_ends_at_its_end() -> None:
    """Without it the assigned offsets would be unknown. A power failure leaves such a log between the filler of a
    segment and the first record of the next one.
    """
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    filled(volume, clock, 2).flush()
    volume.remove(f"/store/commitlog/{SEGMENT_BYTES:020d}")
    volume = volume.after_kill()
    store = open_store(volume, clock, file_reserved_hours=3, delete_when="12")
    assert store.end_offset == SEGMENT_BYTES
    checkpoint(store)
    run_retention(store, at_hour(12) + 24 * HOUR_MS)
    assert volume.names("/store/commitlog") == [f"{0:020d}"]
    assert len(bodies(read_queue(store))) == 1
    store.close()
    again = open_store(volume, clock)
    put(again, message("next"))
    assert [(each.queue_offset, each.physical_offset) for each in read_queue(again)] == [(0, 0), (1, SEGMENT_BYTES)]


def test_only_old_segments_go() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    store.config.file_reserved_hours = 7
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 2, "their fillers were written at 4:30 and 5:30"


@pytest.mark.parametrize(
    ("ratio", "hours", "expected"), [(0.70, 5, 0), (0.80, 5, 2), (0.80, 9, 0), (0.86, 99, 5), (0.95, 99, 5)]
)
def test_a_fuller_disk_deletes_more(ratio: float, hours: int, expected: int) -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    volume.capacity = int(volume.used() / ratio)
    store.config.file_reserved_hours = hours
    run_retention(store, at_hour(10))
    assert first_segment(volume) == expected


def test_segments_that_are_old_enough_go_before_younger_ones() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    store.config.file_reserved_hours = 5
    volume.capacity = int(volume.used() / 0.86)
    run_retention(store, at_hour(10))
    assert first_segment(volume) == 2, "the others are younger, and there is room again"
    run_retention(store, at_hour(10))
    assert first_segment(volume) == 2
    volume.capacity = int(volume.used() / 0.86)
    run_retention(store, at_hour(10))
    assert first_segment(volume) == 5, "none is old enough"


@pytest.mark.parametrize(
    ("ratio", "hour", "level", "line"),
    [
        (0.5, 12, "INFO", f"{DELETING}50% full"),
        (
            0.86,
            10,
            "WARNING",
            f"{DELETING}86% full: 5 of them are younger than 9 h (fileReservedTime)",
        ),
    ],
)
def test_a_run_that_deletes_says_what(
    ratio: float, hour: int, level: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    volume.capacity = int(volume.used() / ratio)
    store.config.file_reserved_hours = 9 if level == "WARNING" else 3
    caplog.set_level("INFO", "raptormq.storage.maintenance.retention")
    for _ in range(2):
        run_retention(store, at_hour(hour))
    said = [each for each in caplog.records if each.name == "raptormq.storage.maintenance.retention"]
    assert [(each.levelname, each.getMessage()) for each in said] == [(level, line)]
    assert store.stats().deleted_segments == 5


def test_how_full_the_disk_is_is_known_at_once() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    filled(volume, clock).close()
    volume.capacity = 2 * volume.used()
    assert open_store(volume, clock).stats().disk_used_ratio == pytest.approx(0.5, abs=0.2)


def test_at_most_a_batch_goes_at_once() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    store.config.delete_batch_max = 2
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 2
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 4


def test_what_is_not_durable_stays() -> None:
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, file_reserved_hours=0, delete_when="12")
    put(store, *(message("x" * 1500) for _ in range(4)))
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 0
    store.flush()
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 0, "the queue is not durable yet"
    checkpoint(store)
    run_retention(store, at_hour(12))
    assert first_segment(volume) == 3


def test_no_offset_is_given_out_twice_after_a_crash() -> None:
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, file_reserved_hours=0, delete_when="12")
    put(store, message("x" * 1500), *(message("y" * 1500, "other") for _ in range(3)))
    store.flush()
    run_retention(store, at_hour(12))
    store = open_store(volume.after_kill(), clock)
    assert store.queue_end("topic", 0) == 1


def test_queues_follow_the_log() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    run_retention(store, at_hour(12))
    assert queue_bounds(store, "topic", 0) == (3, 3)
    assert queue_bounds(store, "topic", 1) == (2, 3)
    gone = store.get_messages("topic", 0, 1, ReadOptions(32, 1 << 20))
    assert (gone.status, gone.next_offset, gone.min_offset) == (GetStatus.OFFSET_TOO_SMALL, 3, 3)
    assert store.get_messages("topic", 0, 3, ReadOptions(32, 1 << 20)).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert [body[0] for body in bodies(read_queue(store, queue_id=1))] == ["5"]
    assert offset_by_time(store, "topic", 1, 0) == 2
    assert message_at(store, 0) is None
    put(store, message("next"))
    assert queue_bounds(store, "topic", 0) == (3, 4)
    store.close()
    store = open_store(volume, clock)
    assert queue_bounds(store, "topic", 0) == (3, 4)
    assert bodies(read_queue(store)) == ["next"]


def test_queue_files_without_live_items_are_removed() -> None:
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, file_reserved_hours=1, delete_when="12")
    for number in range(70):
        put(store, message(str(number)))
    store.close()
    store = open_store(volume, clock, file_reserved_hours=1, delete_when="12")
    assert len(volume.names("/store/consumequeue/topic/0")) == 4
    run_retention(store, at_hour(12))
    low, high = queue_bounds(store, "topic", 0)
    assert (low, high) == (60, 70)
    assert volume.names("/store/consumequeue/topic/0") == [f"{1200:020d}"]
    assert bodies(read_queue(store)) == [str(number) for number in range(60, 70)]


@pytest.mark.parametrize("is_batch", [False, True])
def test_queue_files_are_removed_although_a_consumer_came_before_retention(is_batch: bool) -> None:
    """A reader detects that their records are deleted, and has no time for files."""
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, file_reserved_hours=1, delete_when="12", batch_queue_file_size=46 * 20)
    if is_batch:
        store.set_batch_topic("topic")
    for number in range(70):
        put(store, batch([str(number)], topic="topic") if is_batch else message(str(number)))
    checkpoint(store)
    folder = f"/store/{'batch' if is_batch else ''}consumequeue/topic/0"
    assert len(volume.names(folder)) == 4
    remove = store._retention.run(at_hour(12))
    assert remove is not None
    remove()
    low, _ = queue_bounds(store, "topic", 0)
    assert low >= 60
    assert len(volume.names(folder)) == 4
    retention = store._retention
    for queue in retention.unchecked_queues:
        retention.find_expired_files(queue, wait=False)
    for dead in retention.expired_files:
        retention.remove_expired_files(dead)
    assert len(volume.names(folder)) == 1


class Meanwhile(Inline):
    """A thread whose function takes so long that another event occurs before its end."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        self._happens()
        return result


def of_two_queues_with_dead_files(volume: FileSystem, clock: Clock) -> tuple[MessageStore, list[ConsumeQueue]]:
    store = open_store(volume, clock, file_reserved_hours=1, delete_when="12")
    for number in range(70):
        put(store, message(str(number), "a"), message(str(number), "b"))
    checkpoint(store)
    remove = store._retention.run(at_hour(12))
    assert remove is not None
    remove()
    return store, list(store._retention.unchecked_queues)


def queue_files(volume: MemoryFileSystem, queue: ConsumeQueue) -> int:
    return len(volume.names(f"/store/consumequeue/{queue.topic}/0"))


def test_queue_files_stay_until_a_checkpoint_that_began_later_says_where_the_queue_begins() -> None:
    clock = Clock(at_hour(3))
    volume = MemoryFileSystem(clock=clock)
    store, (first, second) = of_two_queues_with_dead_files(volume, clock)
    assert store._opened is not None
    maintenance, retention = store._opened.maintenance, store._retention
    retention.find_expired_files(first, wait=False)
    before = queue_files(volume, second)
    looked = partial(retention.find_expired_files, second, wait=False)
    asyncio.run(maintenance._remove_expired_files(Meanwhile(looked)))
    assert (queue_files(volume, first), queue_files(volume, second)) == (1, before)
    asyncio.run(maintenance._remove_expired_files(Inline()))
    assert (queue_files(volume, second), retention.expired_files) == (1, [])


def test_what_retention_could_not_remove_it_tries_to_remove_again() -> None:
    clock = Clock(at_hour(3))
    disk = MemoryFileSystem(clock=clock)
    volume = FaultyFileSystem(disk)
    store, queues = of_two_queues_with_dead_files(volume, clock)
    assert store._opened is not None
    maintenance = store._opened.maintenance
    for queue in queues:
        store._retention.find_expired_files(queue, wait=False)
    volume.faults.append(Fault(kind="remove", path=f"consumequeue/{queues[0].topic}", error=errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        asyncio.run(maintenance._remove_expired_files(Inline()))
    assert max(queue_files(disk, queue) for queue in queues) > 1
    asyncio.run(maintenance._remove_expired_files(Inline()))
    assert [queue_files(disk, queue) for queue in queues] == [1, 1]


def test_above_90_percent_writes_are_refused_until_there_is_room() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock, segments=1)
    volume.capacity = int(volume.used() / 0.95)
    run_retention(store, clock.now)
    with pytest.raises(DiskFull, match=r"95% full \(diskSpaceWarningLevelRatio\)"):
        store.append([message("a")])
    volume.capacity *= 2
    run_retention(store, clock.now)
    put(store, message("a"))
    assert store.stats().disk_used_ratio < 0.9


def test_delete_when_is_a_list_of_hours() -> None:
    assert parse_hours("04") == {4}
    assert parse_hours("2; 14;") == {2, 14}
    for text in ("", "24", "x", "-1", "4,5"):
        with pytest.raises(ConfigError, match="deleteWhen"):
            parse_hours(text)
