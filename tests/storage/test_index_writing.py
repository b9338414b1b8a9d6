"""A thread writes entries of the key index while the event loop and checkpoints run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import pytest

from raptormq.storage.fs.filesystem import Buffer
from raptormq.storage.index.index_file import Entries
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import Clock, open_store, put

P = ParamSpec("P")
T = TypeVar("T")


class HeldRunner:
    """A thread that waits until it may start."""

    def __init__(self) -> None:
        self.may_begin = asyncio.Event()
        self.works: list[str] = []

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.works.append(getattr(work, "__qualname__", ""))
        await self.may_begin.wait()
        return work(*args, **kwargs)


def store_with_entries(volume: MemoryFileSystem) -> MessageStore:
    store = open_store(volume, segment_size=1 << 20)
    put(store, *(PendingRecord("topic", 0, b"%d" % number, b"KEYS\x01k%d\x02" % number) for number in range(5_000)))
    return store


def test_entries_are_written_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    volume, sizes = MemoryFileSystem(), []
    write_at = MemoryFile.write_at

    def measured(self: MemoryFile, offset: int, parts: Sequence[Buffer], size: int) -> None:
        sizes.append(size)
        write_at(self, offset, parts, size)

    monkeypatch.setattr(MemoryFile, "write_at", measured)
    data = bytes(range(256)) * 2_000
    volume.open("/20231114000000000", create=True)
    assert Entries("/20231114000000000", 1, 80, data).write(volume)
    assert max(sizes) <= 128 << 10
    assert volume.open("/20231114000000000").read_at(80, len(data) + 1) == data


async def test_a_checkpoint_waits_for_entries_that_are_being_written() -> None:
    store, executor = store_with_entries(MemoryFileSystem()), HeldRunner()
    assert store._opened is not None
    maintenance = store._opened.maintenance
    entries = asyncio.create_task(maintenance.checkpointer.write_index_entries(executor))
    await asyncio.sleep(0)
    checkpoint = asyncio.create_task(maintenance.checkpointer.checkpoint(executor, force=True))
    for _ in range(100):
        await asyncio.sleep(0)
    assert executor.works == ["Entries.write"]
    executor.may_begin.set()
    await entries
    await checkpoint
    store.close()


async def test_no_entries_are_written_during_a_checkpoint() -> None:
    store, executor = store_with_entries(MemoryFileSystem()), HeldRunner()
    assert store._opened is not None
    maintenance = store._opened.maintenance
    checkpoint = asyncio.create_task(maintenance.checkpointer.checkpoint(executor, force=True))
    while not executor.works:
        await asyncio.sleep(0)
    put(store, *(PendingRecord("topic", 0, b"x", b"KEYS\x01key\x02") for _ in range(5_000)))
    await maintenance.checkpointer.write_index_entries(executor)
    assert len(executor.works) == 1
    executor.may_begin.set()
    await checkpoint
    store.close()


async def test_files_of_the_index_are_removed_by_a_thread() -> None:
    removed: list[tuple[str, int]] = []

    class Observed(MemoryFileSystem):
        def remove(self, path: str) -> None:
            removed.append((path, threading.get_ident()))
            super().remove(path)

    volume, clock = Observed(), Clock()
    store = open_store(volume, clock, segment_size=1 << 16, index_entries=1_000)
    for _ in range(4):
        put(store, *(PendingRecord("topic", 0, b"x", b"KEYS\x01key\x02") for _ in range(900)))
    store.flush()
    clock.now += 100 * 3_600_000
    store.set_loop(asyncio.get_running_loop())
    before = volume.names("/store/index")
    await store.clean(any_hour=True)
    assert len(before) > len(volume.names("/store/index")) >= 1
    threads = {thread for path, thread in removed if "/index/" in path}
    assert threads
    assert threading.get_ident() not in threads
    store.close()


async def test_entries_of_a_file_that_was_deleted_are_found_as_long_as_the_broker_runs() -> None:
    volume, executor = MemoryFileSystem(), HeldRunner()
    store = store_with_entries(volume)
    assert store._opened is not None
    assert store._index is not None
    volume.remove(store._index._files[0].path)
    executor.may_begin.set()
    await store._opened.maintenance.checkpointer.write_index_entries(executor)
    assert store._index._files[0].unwritten_bytes
    assert len(await store.find_by_key("topic", "k7", 0, 1 << 62, 9)) == 1
    store.close()
