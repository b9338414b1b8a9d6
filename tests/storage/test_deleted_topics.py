"""A topic that was deleted stays deleted, whatever happens to the broker and to the files of its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from raptormq.storage import MessageStore, PendingRecord
from raptormq.storage.filesystem import read_file
from raptormq.storage.json_file import JsonFile
from tests.storage import conversions
from tests.storage.batch_stores import SMALL, batch
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import bodies, checkpoint, message, open_store, put, queue_bounds, read_queue

PATH = "/store/config/deletedTopics.json"
SURVIVORS = pytest.mark.parametrize("survivor", ["after_kill", "after_power_cut"])


def deleted(
    volume: MemoryFileSystem, store: MessageStore, *then: PendingRecord, survivor: str = "after_kill"
) -> MemoryFileSystem:
    """Delete the topic as the broker does before it answers, make it again with messages, and crash."""

    async def run() -> MemoryFileSystem:
        store.set_loop(asyncio.get_running_loop())
        store.delete_topic("topic")
        await store.deletions_saved()
        if then:
            put(store, *then)
            store.flush()
        left: Callable[[], MemoryFileSystem] = getattr(volume, survivor)
        try:
            return left()
        finally:
            store.close()

    return asyncio.run(run())


def without_queues(volume: MemoryFileSystem) -> MemoryFileSystem:
    volume.remove_tree("/store/consumequeue")
    volume.remove_tree("/store/batchconsumequeue")
    return volume


@SURVIVORS
@pytest.mark.parametrize("flushed", [True, False])
def test_a_deleted_topic_does_not_come_back(survivor: str, flushed: bool) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("old 0"), message("old 1"), message("kept", "other"))
    store.consumer_offsets.commit("topic", "group", 0, 2)
    if flushed:
        assert store._opened is not None
        store._opened.housekeeping.settle()
    store.flush()
    store = open_store(deleted(volume, store, survivor=survivor))
    assert store.topics() == ["other"]
    assert store.consumer_offsets.get("topic", "group", 0) is None
    put(store, message("new"))
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"new")]


@SURVIVORS
def test_a_topic_made_again_has_its_own_messages_alone_whatever_is_built_again(survivor: str) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(f"old {number}") for number in range(5)))
    volume = deleted(volume, store, message("new 0"), message("new 1"), survivor=survivor)
    for _ in range(2):
        store = open_store(without_queues(volume))
        assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"new 0"), (1, b"new 1")]
        assert queue_bounds(store, "topic", 0) == (0, 2)
        store.close()


@pytest.mark.parametrize("became_batch", [True, False])
def test_a_topic_may_be_of_the_other_type_when_it_is_made_again(became_batch: bool) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, **SMALL)
    if not became_batch:
        store.set_batch_topic("topic")
    old, new = message("old"), message("new")
    put(store, *([old] if became_batch else [batch(["old", "old"], "topic")]))
    store = open_store(deleted(volume, store), **SMALL)
    assert (store.topics(), store.is_batch_topic("topic")) == ([], False)
    if became_batch:
        store.set_batch_topic("topic")
        new = batch(["new"], "topic")
    put(store, new)
    assert bodies(read_queue(store)) == ["new"]
    assert queue_bounds(store, "topic", 0) == (0, 1)


@pytest.mark.parametrize("again_as_batch", [True, False])
@pytest.mark.parametrize("to_batch", [True, False])
def test_a_topic_that_was_deleted_during_its_conversion_does_not_come_back(
    to_batch: bool, again_as_batch: bool
) -> None:
    volume = MemoryFileSystem()
    store = conversions.filled(volume, is_batch=not to_batch, count=300)

    async def run() -> MemoryFileSystem:
        store.set_loop(asyncio.get_running_loop())
        await conversions.order(store, to_batch=to_batch)
        working = asyncio.ensure_future(conversions.finish(store, conversions.Table(volume, is_batch=not to_batch)))
        while not (progress := store.converter.progress(conversions.TOPIC)) or progress.phase == "waiting":
            await asyncio.sleep(0)
        store.delete_topic(conversions.TOPIC)
        await store.deletions_saved()
        left = volume.after_kill()
        assert await working is None
        store.close()
        return left

    volume = asyncio.run(run())
    conversions.declare(volume, is_batch=False)
    store = conversions.open_store(volume)
    assert (store.topics(), store.converter.types()) == (["other"], {})
    if again_as_batch:
        store.set_batch_topic(conversions.TOPIC)
    put(store, conversions.one("again"))
    assert conversions.contents(store) == {0: [(0, "again")]}


def test_what_comes_where_a_power_cut_has_shortened_the_log_is_alive() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, flush_interval_ms=3_600_000)
    put(store, message("old"))
    store.flush()
    put(store, *(message("lost with the power" * 5) for _ in range(5)))
    volume = deleted(volume, store, survivor="after_power_cut")
    store = open_store(volume)
    put(store, message("new"))
    store.flush()
    volume = volume.after_power_cut()
    assert bodies(read_queue(open_store(without_queues(volume)))) == ["new"]


def test_no_place_behind_the_end_of_the_log_is_noted_as_dead() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, flush_interval_ms=3_600_000)
    put(store, message("not durable yet"))
    volume = deleted(volume, store, survivor="after_power_cut")
    noted = JsonFile(PATH, volume).load()
    assert noted is not None
    assert noted["deletedTopics"]["topic"] <= open_store(volume).end_offset


def test_what_another_program_has_brought_back_goes_again() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(f"old {number}") for number in range(5)))
    checkpoint(store)
    old = volume.after_kill().now.files["/store/consumequeue/topic/0/00000000000000000000"]
    later = message("new 0"), message("new 1"), message("later", "other")
    deleted(volume, store, *later)
    volume.now.files["/store/consumequeue/topic/0/00000000000000000000"] = old  # RocketMQ lets the older ones win
    volume.remove("/store/queueEnds")
    for _ in range(2):
        store = open_store(volume)
        assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"new 0"), (1, b"new 1")]
        store.close()


def test_what_a_clean_stop_has_to_write_is_written() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("old"))
    store.delete_topic("topic")
    store.close()
    assert open_store(without_queues(volume)).topics() == []


def test_an_entry_goes_with_the_log() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("old"))
    volume = deleted(volume, store)
    assert b'"topic"' in read_file(volume, PATH)
    volume.remove_tree("/store/commitlog")
    open_store(volume).close()
    assert b'"topic"' not in read_file(volume, PATH)
