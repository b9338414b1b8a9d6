"""Keys on a full volume: they wait, writes are refused, and no key is lost."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import numpy as np
import pytest

from raptormq.errors import DiskFull, StoreReadOnly
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.index import key_index
from raptormq.storage.index.index_file import IndexFile
from raptormq.storage.store import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.keyed_stores import MINUTE, append, lost
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, all_of, checkpoint, small_config, until


def opened(volume: FileSystem, clock: Clock, **settings: Any) -> MessageStore:
    config = small_config(segment_size=1 << 20, index_slots=500, index_entries=1_001, **settings)
    store = MessageStore(config, fs=volume, clock=clock)
    store.open()
    return store


def full_after_the_first_file() -> tuple[MemoryFileSystem, FaultyFileSystem]:
    volume = MemoryFileSystem()
    return volume, FaultyFileSystem(volume, Fault(2, "create", "/index/", errno.ENOSPC, repeats=True))


async def test_keys_wait_for_room_and_writes_stop_meanwhile() -> None:
    volume, faulty = full_after_the_first_file()
    clock = Clock()
    store = opened(faulty, clock)
    append(store, range(800))
    append(store, range(800, 1_600))
    append(store, range(1_600, 2_400))
    with pytest.raises(DiskFull, match="cannot make a file of the index"):
        checkpoint(store)
    assert await lost(store, range(1_000)) == []
    with pytest.raises(DiskFull):
        append(store, range(1))
    faulty.faults.clear()
    checkpoint(store)
    clock.now += MINUTE
    append(store, range(2_400, 2_410))
    checkpoint(store)
    again = opened(volume.after_kill(), clock)
    assert await lost(store, range(2_410)) + await lost(again, range(2_410)) == []
    store.close()
    again.close()


async def test_a_checkpoint_says_nothing_about_keys_that_wait() -> None:
    volume, faulty = full_after_the_first_file()
    clock = Clock()
    store = opened(faulty, clock)
    append(store, range(2_000))
    clock.now += MINUTE
    with pytest.raises(DiskFull):
        checkpoint(store)
    again = opened(volume.after_kill(), clock)
    assert await lost(again, range(2_000)) == []
    again.close()


async def test_room_for_the_index_is_noticed_without_a_checkpoint() -> None:
    _, faulty = full_after_the_first_file()
    store = opened(faulty, Clock(), maintenance_interval_ms=1, checkpoint_interval_ms=1_000_000)
    append(store, range(2_000))
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: not store.stats().writable)
    faulty.faults.clear()
    await until(lambda: store.stats().writable)
    assert await lost(store, range(2_000)) == []
    store.close()


async def test_keys_that_are_too_many_to_wait_come_with_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_MAX_WAITING_KEYS", 3_000)
    volume, faulty = full_after_the_first_file()
    clock = Clock()
    store = opened(faulty, clock)
    for start in range(0, 6_000, 1_500):
        append(store, range(start, start + 1_500))
    faulty.faults.clear()
    append(store, range(6_000, 7_000))
    for _ in range(2):
        with pytest.raises(StoreReadOnly, match="too many keys"):
            checkpoint(store)
    again = opened(volume.after_kill(), clock)
    assert await lost(again, range(7_000)) == []
    again.close()


async def test_keys_wait_for_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(MemoryFileSystem(), Clock())
    create = IndexFile.create

    def fail(*_: object) -> IndexFile:
        raise MemoryError

    monkeypatch.setattr(IndexFile, "create", fail)
    append(store, range(2_000))
    monkeypatch.setattr(IndexFile, "create", create)
    checkpoint(store)
    assert await lost(store, range(2_000)) == []
    store.close()


def test_entries_that_find_no_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = IndexFile.create(MemoryFileSystem(), "/20231114000000000", 5, 80)
    hashes = np.array([3, 8, 3, 1], np.int32)
    argsort = np.argsort

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    for attempt in range(2):
        monkeypatch.setattr(np, "argsort", fail)
        with pytest.raises(MemoryError):
            file.put(hashes, np.arange(4) + 100 * attempt, np.full(4, 50_000))
        assert len(file) == 4 * attempt
        monkeypatch.setattr(np, "argsort", argsort)
        file.put(hashes, np.arange(4) + 100 * attempt, np.full(4, 50_000))
    assert all_of(file, 3, 0, 60_000) == [102, 100, 2, 0]
    assert all_of(file, 1, 0, 60_000) == [103, 3]
    assert file._used_slots == 2


def test_a_file_for_which_there_is_no_memory_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryFileSystem()

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "zeros", fail)
    with pytest.raises(MemoryError):
        IndexFile.create(volume, "/20231114000000000", 5, 80)
    assert volume.names("/") == []
