"""Queries by key: the results equal those of a scan of the chain, in bounded steps."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pytest

from raptormq.errors import StorageError
from raptormq.protocol.record import decode_record
from raptormq.storage.fs.filesystem import Buffer
from raptormq.storage.fs.page_cache import PagesMissing
from raptormq.storage.index.index_file import IndexFile
from raptormq.storage.index.search import MAX_LINKS, FileSearch
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.read.message_lookup import KeyQuery, MessageLookup
from raptormq.storage.store import MessageStore
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import Clock, small_config

P = ParamSpec("P")
T = TypeVar("T")
HOT = 7
START = 1_700_000_000_000


class Elsewhere:
    """Replacement for a thread that records its calls."""

    def __init__(self) -> None:
        self.works: list[str] = []

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.works.append(getattr(work, "__qualname__", ""))
        await asyncio.sleep(0)
        return work(*args, **kwargs)


def plain(file: IndexFile, hashed: int, begin: int, end: int) -> list[int]:
    """Follow the chain to its end."""
    found, number = [], file.newest(hashed, wait=True)
    while number:
        at_place, offset, seconds, older = file.entry(number, wait=True)
        stored = file.begin_timestamp + seconds * 1000
        if stored + 999 < begin:
            break
        if at_place == hashed and stored <= end:
            found.append(offset)
        number = older
    return found


def filled(volume: MemoryFileSystem, chance: random.Random, count: int) -> IndexFile:
    """Return a file of few slots, partly written. A third of its entries have one hash."""
    file = IndexFile.create(volume, "/20231114000000000", 50, 100_000)
    offset, time, done = 0, START, 0
    while done < count:
        size = chance.choice([1, 100, 3_000])
        hashes = [HOT if chance.random() < 0.3 else chance.randrange(1 << 31) for _ in range(size)]
        offsets = [offset := offset + chance.randrange(3) for _ in range(size)]
        times = [time := time + chance.randrange(20) for _ in range(size)]
        file.put(np.array(hashes, np.int32), np.array(offsets), np.array(times))
        done += size
        if chance.random() < 0.2:
            file.flush(chance.choice([1, 4, 1_000]))
    return file


@pytest.mark.parametrize("seed", range(12))
def test_a_search_finds_what_a_plain_walk_finds(seed: int) -> None:
    chance, volume = random.Random(seed), MemoryFileSystem()
    file = filled(volume, chance, chance.choice([10, 3_000, 60_000]))
    last = file.end_timestamp
    for _ in range(6):
        begin, end = sorted(chance.randrange(START - 3_000, last + 3_000) for _ in range(2))
        begin, end = chance.choice([begin, 0]), chance.choice([end, 1 << 62])
        hashed = chance.choice([HOT, HOT, HOT + 50, file.entry(len(file), wait=True)[0]])
        expected = plain(file, hashed, begin, end)
        search, found = FileSearch(file, hashed, begin, end), []
        while not search.is_done:
            if search.needs_thread:
                found += search.scan(volume)
                continue
            volume.non_resident = chance.choice([None, None, "/"])
            try:
                found += search.step(wait=False)
            except PagesMissing:
                volume.non_resident = None
                found += search.step(wait=False)
            if chance.random() < 0.05:
                file.flush(2)
                file.put(np.array([HOT], np.int32), np.array([file.end_offset]), np.array([file.end_timestamp]))
        assert found == expected


def opened(volume: MemoryFileSystem, clock: Clock) -> MessageStore:
    store = MessageStore(
        small_config(segment_size=1 << 23, index_slots=50, index_entries=50_000), fs=volume, clock=clock
    )
    store.open()
    return store


def hot_store(volume: MemoryFileSystem, clock: Clock, count: int) -> MessageStore:
    """Store one message with a key, and very many a minute later."""
    store = opened(volume, clock)
    store.append([PendingRecord("t", 0, b"first", b"KEYS\x01hot\x02")])
    clock.now += 60_000
    for _ in range(count // 1_000):
        store.append([PendingRecord("t", 0, b"more", b"KEYS\x01hot\x02")] * 1_000)
    store.dispatch()
    return store


@pytest.mark.parametrize("cold", [None, "/"])
@pytest.mark.parametrize("is_written", [True, False])
async def test_a_frequent_key_costs_the_loop_little_at_once(
    monkeypatch: pytest.MonkeyPatch, cold: str | None, is_written: bool
) -> None:
    volume, clock, executor = MemoryFileSystem(), Clock(), Elsewhere()
    store = hot_store(volume, clock, 40_000)
    assert store._opened is not None
    assert store._key_queries is not None
    if is_written:
        store._opened.maintenance.flush_all()
    links, in_turn = 0, 0
    entry = IndexFile.entry

    def counted(self: IndexFile, *args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
        nonlocal links
        links += 1
        return entry(self, *args, **kwargs)

    read_cached = MemoryFile.read_cached
    fetched: set[tuple[str, int]] = set()

    def cold_once(self: MemoryFile, offset: int, size: int) -> bytes | None:
        page = (self._path, offset // 4096)
        if cold and page not in fetched:
            fetched.add(page)
            return None
        return read_cached(self, offset, size)

    async def others() -> None:
        nonlocal in_turn, links
        before = 0
        while True:
            await asyncio.sleep(0)
            in_turn, before = max(in_turn, links - before), links

    monkeypatch.setattr(IndexFile, "entry", counted)
    monkeypatch.setattr(MemoryFile, "read_cached", cold_once)
    clients = asyncio.create_task(others())
    found = await store._key_queries.find(KeyQuery("t", "hot", 0, clock.now - 30_000), 9, executor)
    clients.cancel()
    assert [decode_record(each).body for each in found] == [b"first"]
    assert links < 3 * MAX_LINKS
    assert in_turn <= MAX_LINKS
    assert ("FileSearch.scan" in executor.works) == is_written
    store.close()


async def test_a_key_that_many_messages_have_is_read_no_further_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = hot_store(volume, clock, 5_000)
    entry, links = IndexFile.entry, 0

    def counted(self: IndexFile, *args: Any, **kwargs: Any) -> tuple[int, int, int, int]:
        nonlocal links
        links += 1
        return entry(self, *args, **kwargs)

    monkeypatch.setattr(IndexFile, "entry", counted)
    assert len(await store.find_by_key("t", "hot", 0, 1 << 62, 3)) == 3
    assert links <= 64
    assert len(await store.find_by_key("t", "hot", 0, 1 << 62, 4_000)) == 4_000
    store.close()


async def test_messages_of_other_keys_with_the_same_hash_are_read_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    store.append([PendingRecord("t", 0, b"one", b"KEYS\x01AaAa\x02")])
    store.append([PendingRecord("t", 0, b"other", b"KEYS\x01BBBB\x02")] * 3_000)
    store.dispatch()
    sizes: list[int] = []
    find_by_key = MessageLookup.find_by_key

    def measured(self: MessageLookup, offsets: list[int], *args: Any, **kwargs: Any) -> list[Buffer]:
        sizes.append(len(offsets))
        return find_by_key(self, offsets, *args, **kwargs)

    monkeypatch.setattr(MessageLookup, "find_by_key", measured)
    found = await store.find_by_key("t", "AaAa", 0, 1 << 62, 9)
    assert [decode_record(each).body for each in found] == [b"one"]
    assert max(sizes) <= 16
    store.close()


async def test_a_file_that_retention_takes_during_a_query_ends_the_search_in_it(tmp_path: Path) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = hot_store(volume, clock, 60_000)
    assert store._index is not None
    assert store._opened is not None
    store._opened.maintenance.flush_all()
    searches = store._index.searches("t", "hot", 0, 1 << 62)
    followed, looked_through = searches[-1], FileSearch(store._index._files[0], HOT, 0, 1 << 62)
    assert len(followed.step(wait=False)) == 64
    looked_through._number, looked_through._links = 40_000, MAX_LINKS
    for path in store._index.drop_before(store.end_offset):
        volume.remove(path)
    assert looked_through.scan(volume) == followed.step(wait=False) == []
    assert looked_through.is_done
    assert followed.is_done
    store.close()


async def test_a_disk_that_cannot_read_the_index_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    store = hot_store(MemoryFileSystem(), Clock(), 2_000)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(FileSearch, "step", fail)
    with pytest.raises(StorageError, match=r"^cannot read /store/index/\d{17}: Input/output error$"):
        await store.find_by_key("t", "hot", 0, 1 << 62, 9)
    monkeypatch.undo()
    assert len(await store.find_by_key("t", "hot", 0, 1 << 62, 9)) == 9
    store.close()
