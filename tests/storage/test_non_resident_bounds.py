"""Bounds of queues are found on the event loop without waiting for the disk. After each retention, items must be read
that have not been read for days.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from raptormq.storage import MessageStore
from tests.storage.batch_stores import batch
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import Clock, message, open_store, put

PAGE = 64
MESSAGES = 1200
SETTINGS: dict[str, Any] = {
    "file_reserved_hours": 1,
    "delete_when": ";".join(map(str, range(24))),
    "delete_batch_max": 1000,
    "batch_queue_file_size": 46 * 20,
    "index_enabled": False,
    "resident_bytes": 0,
}


class ColdDisk(MemoryFileSystem):
    """A disk with small pages that are resident after a thread has loaded them."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.is_cold = False
        self.loaded: set[tuple[str, int]] = set()
        self.waits = 0
        """Reads for which the event loop had to wait."""
        self.before_load = threading.Event()
        self.before_load.set()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        return ColdFile(self, path, file._node)


class ColdFile(MemoryFile):
    _volume: ColdDisk

    def _is_missing(self, offset: int, size: int) -> bool:
        disk = self._volume
        pages = range(offset // PAGE, -(-(offset + size) // PAGE))
        return disk.is_cold and any((self._path, page) not in disk.loaded for page in pages)

    def read_at(self, offset: int, size: int) -> bytes:
        self._volume.waits += self._is_missing(offset, size)
        return super().read_at(offset, size)

    def read_cached(self, offset: int, size: int) -> bytes | None:
        return None if self._is_missing(offset, size) else super().read_at(offset, size)

    def load(self, offset: int, size: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self._volume.before_load.wait(30)
        self._volume.loaded |= {(self._path, page) for page in range(offset // PAGE, -(-(offset + size) // PAGE))}


class Types:
    """The topic table of a broker. Its file already has the contents."""

    def set(self, topic: str, *, is_batch: bool) -> None:
        """See :class:`~raptormq.storage.conversion.job.QueueTypes`."""

    async def saved(self) -> None:
        """See :class:`~raptormq.storage.conversion.job.QueueTypes`."""


def aged(*, is_batch: bool = False) -> tuple[ColdDisk, MessageStore]:
    """Return a queue of many files in a log of which all segments except the last have expired. Nothing is resident."""
    clock = Clock()
    disk = ColdDisk(clock)
    store = open_store(disk, clock, **SETTINGS)
    if is_batch:
        store.set_batch_topic("topic")
    for number in range(MESSAGES):
        clock.now += 1
        put(store, batch([str(number)], topic="topic") if is_batch else message(str(number)))
    store.close()
    clock.now += 3_600_000
    store = open_store(disk, clock, **SETTINGS)
    store._queues.files.close()
    disk.is_cold = True
    return disk, store


@pytest.mark.parametrize("is_batch", [False, True])
async def test_the_loop_never_waits_for_the_items_of_what_is_gone(is_batch: bool) -> None:
    disk, store = aged(is_batch=is_batch)
    store.set_loop(asyncio.get_running_loop())
    remove = store._retention.run(store._clock())
    assert remove is not None
    remove()
    low, high = await store.queue_bounds("topic", 0)
    assert MESSAGES - 40 < low < high == store.queue_end("topic", 0) == MESSAGES
    first = await store.queue_items("topic", 0, low, 1)
    assert first[0][0] - store.stats().min_offset < 200
    assert await store.queue_bounds("absent", 0) == (store.queue_end("absent", 0), 0) == (0, 0)
    assert disk.waits == 0
    store.close()


@pytest.mark.parametrize("is_batch", [False, True])
async def test_retention_never_lets_the_loop_wait(is_batch: bool) -> None:
    disk, store = aged(is_batch=is_batch)
    store.set_loop(asyncio.get_running_loop())
    folder = f"/store/{'batch' if is_batch else ''}consumequeue/topic/0"
    assert len(disk.names(folder)) == MESSAGES // 20
    await store.clean(any_hour=False)
    assert len(disk.names(folder)) == 1
    assert disk.waits == 0
    store.close()


async def test_a_search_by_time_never_lets_the_loop_wait() -> None:
    disk, store = aged()
    store.set_loop(asyncio.get_running_loop())
    begin = store._clock() - 3_600_000 - MESSAGES
    assert await store.offset_by_time("topic", 0, begin + 700) == 699
    assert len(disk.loaded) > 16
    assert disk.waits == 0
    store.close()


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_queue_that_is_deleted_while_its_items_are_fetched_has_no_bounds(comes_back: bool) -> None:
    disk, store = aged()
    store.set_loop(asyncio.get_running_loop())
    disk.before_load.clear()
    asked = asyncio.create_task(store.queue_bounds("topic", 0))
    cleaned = asyncio.create_task(store.clean(any_hour=False))
    await asyncio.sleep(0)
    store.delete_topic("topic")
    if comes_back:
        put(store, message("again"))
    disk.before_load.set()
    assert await asked == (0, int(comes_back))
    await cleaned
    assert disk.waits == 0
    store.close()


async def test_a_conversion_never_lets_the_loop_wait() -> None:
    disk, store = aged()
    store.set_loop(asyncio.get_running_loop())
    remove = store._retention.run(store._clock())
    assert remove is not None
    remove()
    await store.converter.order("topic", Types(), to_batch=True)
    assert await store.converter.convert("topic", Types())
    progress = store.converter.progress("topic")
    assert progress is not None
    assert (progress.phase, progress.remark, store.is_batch_topic("topic")) == ("done", "", True)
    assert disk.waits == 0
    store.close()
