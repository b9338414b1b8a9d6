"""Small stores on an in-memory volume, and helpers that read them."""

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
    """A time of day that moves when told."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Inline:
    """Does at once what the store's threads would do."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args, **kwargs)


def small_config(**settings: Any) -> StoreConfig:
    """Segments of 2 KiB and queue files of 20 items, so that a few messages fill several."""
    defaults: dict[str, Any] = {"root_dir": ROOT, "segment_size": SEGMENT_BYTES, "queue_file_size": QUEUE_FILE_BYTES}
    return StoreConfig(**(defaults | settings))


def open_store(volume: FileSystem | None = None, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """An open store; close it, or leave it to the garbage like a crash would."""
    store = MessageStore(small_config(**settings), fs=volume or MemoryFileSystem(), clock=clock or Clock())
    store.open()
    return store


def open_sync_store(volume: FileSystem | None = None, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """The same under SYNC_FLUSH: messages are visible after `store.flush()`."""
    return open_store(volume, clock, flush_disk_type=FlushDiskType.SYNC_FLUSH, **settings)


def message(body: str, topic: str = "topic", queue_id: int = 0, tag: str = "", **fields: Any) -> PendingRecord:
    """A message as the broker would pass it."""
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return PendingRecord(topic, queue_id, body.encode(), properties, tag_hash(tag), **fields)


def put(store: MessageStore, *records: PendingRecord) -> None:
    """Append one group and make it visible."""
    store.append(records)
    if store.confirmed_offset < store.end_offset:
        store.flush()
    store.dispatch()


def queue_bounds(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """The first offset of a queue that is still there, and the one after the last."""
    return store._queue_bounds(topic, queue_id, wait=True)


def offset_by_time(
    store: MessageStore, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
) -> int:
    """The offset of the first message stored at or after a time, or of the last one at or before it."""
    return store._offset_by_time(topic, queue_id, timestamp_ms, boundary, wait=True)


def run_retention(store: MessageStore, now: int) -> None:
    """Delete what is too old at ``now`` (ms) or too much, as the timer of the store does."""
    assert store._opened is not None
    maintenance = store._opened.maintenance
    maintenance = replace(maintenance, parts=replace(maintenance.parts, clock=lambda: now))
    asyncio.run(maintenance.clean(Inline(), any_hour=False))


def message_at(store: MessageStore, place: int) -> Buffer | None:
    """The record of the message at a log offset."""
    return store._lookup.message_at(place, wait=True)


def read_queue(store: MessageStore, topic: str = "topic", queue_id: int = 0, max_count: int = 7) -> list[StoredMessage]:
    """All messages of a queue, read from its minimum on as a consumer would."""
    messages: list[StoredMessage] = []
    offset, _ = queue_bounds(store, topic, queue_id)
    while True:
        result = store.get_messages(topic, queue_id, offset, ReadOptions(max_count, 1 << 20))
        messages += iter_records(b"".join(result.buffers))
        if result.status not in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
            return messages
        offset = result.next_offset


def bodies(messages: Iterable[StoredMessage]) -> list[str]:
    """The bodies as text."""
    return [each.body.decode() for each in messages]


def all_of(file: IndexFile, hashed: int, begin: int, end: int) -> list[int]:
    """The log offsets that a file of the index has under a hash, as far as no thread is needed."""
    search, found = FileSearch(file, hashed, begin, end), []
    while not search.is_done:
        found += search.step(wait=True)
    return found


def write_header(file: IndexFile, volume: FileSystem) -> None:
    """What a checkpoint does after the rest of a file of the index is written."""
    header = file.header
    assert header is not None
    header.make_durable(volume)
    file.header_written(header)


def checkpoint(store: MessageStore) -> None:
    """Make everything durable, as the background does every now and then."""
    assert store._opened is not None
    store._opened.maintenance.flush_all()


async def until(condition: Callable[[], object]) -> None:
    """Turn the loop until something has happened; the time limit of the test ends it otherwise."""
    while not condition():
        await asyncio.sleep(0.001)
