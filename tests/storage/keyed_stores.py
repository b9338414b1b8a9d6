"""Stores with small index files, and functions that list messages that a query does not find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore
from tests.storage.stores import Clock, checkpoint, small_config

MINUTE = 60_000


def opened(volume: FileSystem, clock: Clock, entries: int = 20_000, **settings: Any) -> MessageStore:
    config = small_config(segment_size=1 << 20, index_slots=5_000, index_entries=entries, **settings)
    store = MessageStore(config, fs=volume, clock=clock)
    store.open()
    return store


def append(store: MessageStore, numbers: range) -> None:
    store.append([PendingRecord("t", 0, b"%d" % number, b"KEYS\x01k%d\x02" % number) for number in numbers])
    store.dispatch()


def flush(store: MessageStore, calls: int) -> None:
    assert store._index is not None
    for _ in range(calls):
        store._index.flush(1)


async def lost(store: MessageStore, numbers: range) -> list[int]:
    return [number for number in numbers[::3] if len(await store.find_by_key("t", f"k{number}", 0, 1 << 62, 9)) != 1]


def written_after_checkpoints(
    store: MessageStore, clock: Clock, settled: int, more: int, put: Callable[[MessageStore, range], None] = append
) -> None:
    """Store messages 0 to `settled` before a checkpoint, ten before another one a minute later, and `more`
    without one.
    """
    put(store, range(settled))
    checkpoint(store)
    clock.now += MINUTE
    put(store, range(settled, settled + 10))
    checkpoint(store)
    put(store, range(settled + 10, settled + 10 + more))
