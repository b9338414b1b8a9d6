"""A store evicts pages of its log from the page cache."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from raptormq.storage import MessageStore, StoreConfig
from raptormq.storage.maintenance.page_eviction import WATERMARKS_PER_KEPT, PageEvictor
from raptormq.storage.read.options import ReadOptions
from tests.storage.page_cache_state import Here, Volume, leaves_memory, pages_in_memory
from tests.storage.stores import message, put, small_config

KEPT = 8000
SEGMENT = 1 << 14
MIB = 1 << 20


class Timers(Here):
    """Replacement for the background of a store. A test calls the functions of the timers."""

    def __init__(self, _: asyncio.AbstractEventLoop) -> None:
        self.works: list[Callable[[], object]] = []

    def every(self, interval_ms: int, work: Callable[[], object]) -> None:
        self.works.append(work)

    async def ring(self) -> None:
        for work in self.works:
            if asyncio.iscoroutine(result := work()):
                await result

    def stop(self) -> None:
        """See `Background`."""


async def test_the_timers_of_a_store_release_pages_and_its_warmer_spares_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raptormq.storage.store.Background", Timers)
    volume = Volume()
    store = MessageStore(small_config(segment_size=SEGMENT, resident_bytes=1000, kept_page_bytes=KEPT), fs=volume)
    store.open()
    store.set_loop(asyncio.get_running_loop())
    timers = cast("Timers", store._background)
    for _ in range(4):
        put(store, *(message("x" * 400) for _ in range(20)))
        store.consumer_offsets.commit("topic", "group", 0, store.queue_end("topic", 0))
        store._flusher.flush()
        await timers.ring()
    ahead = store._page_warmer._skip_until - store.end_offset
    assert 0 < ahead <= sum(end - begin for begin, end in volume.unloaded)
    store.close()


async def test_the_pages_leave_the_memory_and_what_they_held_is_read_from_the_disk(tmp_path: Path) -> None:
    store = MessageStore(StoreConfig(tmp_path, segment_size=1 << 22, resident_bytes=1 << 18))
    store.open()
    store.set_loop(asyncio.get_running_loop())
    releaser = PageEvictor(store._fs, store._log, store._dispatcher, store._queues, store.consumer_offsets, MIB)
    for number in range(3000):
        put(store, message(f"{number:01000d}"))
        assert not store.get_messages("topic", 0, number, ReadOptions(1, MIB)).non_resident  # maps the page
        store.consumer_offsets.commit("topic", "group", 0, number + 1)
        if number % 100 == 99:
            store._flusher.flush()
            store._log.release_mappings()
            await releaser.run(Here())
    pages = pages_in_memory(Path(store._log.segments[0].path))
    released, newest = pages[: releaser._begin // mmap.PAGESIZE], pages[(store.end_offset - MIB) // mmap.PAGESIZE :]
    assert len(released) >= 300
    assert sum(released) <= WATERMARKS_PER_KEPT * 3 or not leaves_memory(tmp_path)  # where two ranges share a page
    assert all(newest[: MIB // mmap.PAGESIZE])
    result = await store.load_messages("topic", 0, 5, ReadOptions(1, MIB))
    assert f"{5:01000d}".encode() in bytes(result.buffers[0])
    store.close()
