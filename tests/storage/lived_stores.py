"""Stores with a history: a log of many segments, queues of several files, idle and active queues."""

from __future__ import annotations

from typing import Any

from raptormq.json_file import JsonFile
from raptormq.protocol.record import StoredMessage
from raptormq.storage import MessageStore, RecoveryReport
from raptormq.storage.fs.filesystem import FileSystem
from tests.storage.batch_stores import BATCH_FILE_BYTES, batch
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, checkpoint, message, put, read_queue, small_config

SIMPLE = ("idle", "busy")
BATCHES = ("idle-batches", "busy-batches")
TOPICS = SIMPLE + BATCHES
SETTINGS: dict[str, Any] = {"batch_queue_file_size": BATCH_FILE_BYTES, "index_enabled": False}


def opened(volume: FileSystem, clock: Clock | None = None) -> tuple[MessageStore, RecoveryReport]:
    store = MessageStore(small_config(**SETTINGS), fs=volume, clock=clock or Clock())
    return store, store.open()


def declare(volume: FileSystem, *topics: str) -> None:
    """Write these topics to the broker's topic table."""
    types = {topic: {"queue.type": "BatchCQ"} if topic in BATCHES else {} for topic in topics}
    table = {topic: {"topicName": topic, "attributes": attributes} for topic, attributes in types.items()}
    volume.make_folders("/store/config")
    JsonFile("/store/config/topics.json", volume).save({"topicConfigTable": table})


def send(store: MessageStore, clock: Clock, numbers: range, *topics: str) -> None:
    for number in numbers:
        for topic in topics:
            put(store, batch([f"{number}a", f"{number}b"], topic) if topic in BATCHES else message(str(number), topic))
        clock.now += 100


def lived(clock: Clock, *, clean: bool) -> MemoryFileSystem:
    """Return a store with a log of many segments, queues of several files, two idle topics and a checkpoint."""
    volume = MemoryFileSystem()
    declare(volume, *TOPICS)
    store, _ = opened(volume, clock)
    send(store, clock, range(50), *TOPICS)
    checkpoint(store)
    send(store, clock, range(50, 110), "busy", "busy-batches")
    checkpoint(store)
    send(store, clock, range(110, 113), "busy", "busy-batches")
    if clean:
        store.close()
        return volume
    return volume.after_kill()


def folder(topic: str) -> str:
    return f"/store/{'batchconsumequeue' if topic in BATCHES else 'consumequeue'}/{topic}"


def everything(store: MessageStore) -> dict[str, list[tuple[int, str]]]:
    """Return offset and body of every message that a consumer receives."""

    def of(messages: list[StoredMessage]) -> list[tuple[int, str]]:
        return [(each.queue_offset, each.body.decode()) for each in messages]

    return {topic: of(read_queue(store, topic)) for topic in TOPICS}


def expected() -> dict[str, list[tuple[int, str]]]:
    counts = dict(zip(TOPICS, (50, 113, 50, 113), strict=True))
    found = {}
    for topic, count in counts.items():
        names = [f"{number}{half}" for number in range(count) for half in (("a", "b") if topic in BATCHES else ("",))]
        found[topic] = list(enumerate(names))
    return found
