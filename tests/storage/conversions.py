"""Conversions of queues in stores on an in-memory volume, run as in the broker but without threads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from raptormq.errors import StorageError
from raptormq.json_file import JsonFile
from raptormq.storage import MessageStore, PendingRecord
from raptormq.storage.conversion.job import ConversionProgress
from raptormq.storage.fs.filesystem import FileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, Inline, message, put, read_queue, small_config

SIMPLE, BATCH = "consumequeue", "batchconsumequeue"
TOPIC = "converted"
SETTINGS: dict[str, Any] = {"segment_size": 1 << 13, "batch_queue_file_size": 46 * 20, "index_enabled": False}
"""Queue files of 20 items of both types, several segments, and no index."""


class Table:
    """The broker's topic table with one topic. Its file already has the attributes of a new topic."""

    def __init__(self, volume: FileSystem, *, is_batch: bool | None = None) -> None:
        self._volume = volume
        self.is_batch = is_batch
        self.history: list[bool] = []

    def set(self, topic: str, *, is_batch: bool) -> None:
        assert topic == TOPIC
        if self.is_batch is not is_batch:
            self.history.append(is_batch)
        self.is_batch = is_batch

    async def saved(self) -> None:
        await asyncio.sleep(0)
        assert self.is_batch is not None
        declare(self._volume, is_batch=self.is_batch)


def declare(volume: FileSystem, *, is_batch: bool) -> None:
    """Write the broker's topic table."""
    if not volume.exists("/store/config"):
        volume.make_folders("/store/config")
        volume.sync_directory("/")
        volume.sync_directory("/store")
    attributes = {"queue.type": "BatchCQ" if is_batch else "SimpleCQ"}
    table = {TOPIC: {"topicName": TOPIC, "attributes": attributes}}
    JsonFile("/store/config/topics.json", volume).save({"topicConfigTable": table})


def open_store(volume: FileSystem, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """Open a store whose converter can be used."""
    merged: dict[str, Any] = SETTINGS | settings
    store = MessageStore(small_config(**merged), fs=volume, clock=clock or Clock())
    store.open()
    assert store._opened is not None
    store.converter.start(Inline(), store._opened.maintenance.checkpointer)
    return store


async def order(store: MessageStore, *, to_batch: bool) -> None:
    """Order a conversion with the topic table as the source of queue types."""
    table = Table(store._fs, is_batch=store.is_batch_topic(TOPIC))
    await store.converter.order(TOPIC, table, to_batch=to_batch)


async def finish(store: MessageStore, table: Table) -> ConversionProgress | None:
    """Run the converter until it is idle. Return the final state of the conversion."""
    while (topic := store.converter.next_topic()) is not None:
        await store.converter.convert(topic, table)
    with contextlib.suppress(StorageError):
        await store.converter.save_ledger()
    return store.converter.progress(TOPIC)


def convert(store: MessageStore, volume: FileSystem, *, to_batch: bool) -> ConversionProgress:
    """Convert the queues of the topic completely."""

    async def run() -> ConversionProgress | None:
        await order(store, to_batch=to_batch)
        return await finish(store, Table(volume, is_batch=not to_batch))

    progress = asyncio.run(run())
    assert progress is not None
    return progress


def queue_bytes(volume: MemoryFileSystem, folder: str) -> dict[str, bytes]:
    """Return all files of the topic's queues of one type."""
    root = f"/store/{folder}/{TOPIC}"
    return {path: bytes(node.data) for path, node in volume.now.files.items() if path.startswith(f"{root}/")}


def one(body: str, queue_id: int = 0) -> PendingRecord:
    return message(body, topic=TOPIC, queue_id=queue_id, tag="ABC"[len(body) % 3])


def filled(volume: MemoryFileSystem, *, is_batch: bool, count: int = 70, clock: Clock | None = None) -> MessageStore:
    """Open a store with two queues of the topic and messages of another topic between theirs."""
    declare(volume, is_batch=is_batch)
    store = open_store(volume, clock)
    for number in range(count):
        if clock is not None:
            clock.now += 10
        put(store, one(f"m{number}", number % 2), message("other", topic="other"))
    return store


def contents(store: MessageStore) -> dict[int, list[tuple[int, str]]]:
    return {
        queue_id: [(each.queue_offset, each.body.decode()) for each in read_queue(store, TOPIC, queue_id)]
        for queue_id in store.queue_ids(TOPIC)
    }
