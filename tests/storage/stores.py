"""Small stores on an in-memory volume, and functions that read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from raptormq.protocol.record import StoredMessage, iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import FlushDiskType, GetStatus, MessageStore, PendingRecord, StoreConfig
from raptormq.storage.fs.filesystem import Buffer, FileSystem
from raptormq.storage.index.index_file import IndexFile
from raptormq.storage.index.search import FileSearch
from raptormq.storage.read.options import Boundary, ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem

ROOT = Path("/store")
SEGMENT_BYTES = 2048
QUEUE_FILE_BYTES = 20 * 20


class Clock:
    """A wall clock that moves only when a test sets it."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Inline:
    """Executes functions of the store's threads immediately."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args, **kwargs)


def small_config(**settings: Any) -> StoreConfig:
    """Return a configuration with segments of 2 KiB and queue files of 20 items, so that a few messages fill
    several.
    """
    defaults: dict[str, Any] = {"root_dir": ROOT, "segment_size": SEGMENT_BYTES, "queue_file_size": QUEUE_FILE_BYTES}
    return StoreConfig(**(defaults | settings))


def open_store(volume: FileSystem | None = None, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """Open a store. A test closes it, or drops it like a crash."""
    store = MessageStore(small_config(**settings), fs=volume or MemoryFileSystem(), clock=clock or Clock())
    store.open()
    return store


def open_sync_store(volume: FileSystem | None = None, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """Open a store with SYNC_FLUSH: messages are visible after `store.flush()`."""
    return open_store(volume, clock, flush_disk_type=FlushDiskType.SYNC_FLUSH, **settings)


def message(body: str, topic: str = "topic", queue_id: int = 0, tag: str = "", **fields: Any) -> PendingRecord:
    """Return a message as the broker appends it."""
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return PendingRecord(topic, queue_id, body.encode(), properties, tag_hash(tag), **fields)


def put(store: MessageStore, *records: PendingRecord) -> None:
    """Append one group and dispatch it."""
    store.append(records)
    if store.confirmed_offset < store.end_offset:
        store.flush()
    store.dispatch()


def queue_bounds(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """Return the minimum and the maximum offset of a queue."""
    return store._queue_bounds(topic, queue_id, wait=True)


def offset_by_time(
    store: MessageStore, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
) -> int:
    """Return the offset of the first message stored at or after a time, or of the last one stored at or before it."""
    return store._offset_by_time(topic, queue_id, timestamp_ms, boundary, wait=True)


def run_retention(store: MessageStore, now: int) -> None:
    """Delete what exceeds the limits of age and size at ``now`` (ms), like the timer of the store."""
    assert store._opened is not None
    maintenance = store._opened.maintenance
    maintenance = replace(maintenance, parts=replace(maintenance.parts, clock=lambda: now))
    asyncio.run(maintenance.clean(Inline(), any_hour=False))


def message_at(store: MessageStore, place: int) -> Buffer | None:
    """Return the record of the message at a log offset."""
    return store._lookup.message_at(place, wait=True)


def read_queue(store: MessageStore, topic: str = "topic", queue_id: int = 0, max_count: int = 7) -> list[StoredMessage]:
    """Return all messages of a queue, read from its minimum offset like a consumer."""
    messages: list[StoredMessage] = []
    offset, _ = queue_bounds(store, topic, queue_id)
    while True:
        result = store.get_messages(topic, queue_id, offset, ReadOptions(max_count, 1 << 20))
        messages += iter_records(b"".join(result.buffers))
        if result.status not in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
            return messages
        offset = result.next_offset


def bodies(messages: Iterable[StoredMessage]) -> list[str]:
    """Return the bodies as text."""
    return [each.body.decode() for each in messages]


def all_of(file: IndexFile, hashed: int, begin: int, end: int) -> list[int]:
    """Return the log offsets of a hash in a file of the index, without threads."""
    search, found = FileSearch(file, hashed, begin, end), []
    while not search.is_done:
        found += search.step(wait=True)
    return found


def write_header(file: IndexFile, volume: FileSystem) -> None:
    """Write the header of an index file, which a checkpoint does after the rest of the file."""
    header = file.header
    assert header is not None
    header.make_durable(volume)
    file.header_written(header)


def checkpoint(store: MessageStore) -> None:
    """Run a checkpoint, which makes everything durable."""
    assert store._opened is not None
    store._opened.maintenance.flush_all()


async def until(condition: Callable[[], object]) -> None:
    """Yield to the event loop until a condition is true. The time limit of the test bounds the wait."""
    while not condition():
        await asyncio.sleep(0.001)
