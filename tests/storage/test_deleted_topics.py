"""A deleted topic stays deleted after crashes and after the loss of queue files."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from raptormq.errors import StorageError
from raptormq.files import read_file
from raptormq.json_file import JsonFile
from raptormq.storage import MessageStore, PendingRecord
from raptormq.storage.conversion.job import ConversionJob, ConversionRunner, QueueTypes
from raptormq.storage.queue.consumer_offsets import Snapshot
from tests.storage import conversions
from tests.storage.batch_stores import SMALL, batch
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    Inline,
    bodies,
    checkpoint,
    message,
    open_store,
    put,
    queue_bounds,
    read_queue,
    small_config,
    until,
)

PATH = "/store/config/deletedTopics.json"
SURVIVORS = pytest.mark.parametrize("survivor", ["after_kill", "after_power_cut"])


def deleted(
    volume: MemoryFileSystem, store: MessageStore, *then: PendingRecord, survivor: str = "after_kill"
) -> MemoryFileSystem:
    """Delete the topic like the broker before its response, recreate it with messages, and crash."""

    async def run() -> MemoryFileSystem:
        store.set_loop(asyncio.get_running_loop())
        try:
            store.delete_topic("topic")
            await store.save_deletions()
            if then:
                put(store, *then)
                store.flush()
            left: Callable[[], MemoryFileSystem] = getattr(volume, survivor)
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
        store._opened.maintenance.flush_all()
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


def stopped_after_deletion(*then: PendingRecord) -> MemoryFileSystem:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(f"old {number}") for number in range(50)))
    deleted(volume, store, *then)  # which then closes it
    return volume


def test_a_log_of_deleted_topics_alone_is_not_walked_at_every_start() -> None:
    volume = stopped_after_deletion()
    for _ in range(2):
        store = MessageStore(small_config(), fs=volume, clock=Clock())
        report = store.open()
        assert (report.clean, report.records, store.topics()) == (True, 0, [])
        store.close()
    store = open_store(volume)
    put(store, message("new"))
    store = open_store(volume.after_kill())
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"new")]


def test_queues_that_are_lost_are_built_again_though_all_other_messages_are_of_deleted_topics() -> None:
    volume = without_queues(stopped_after_deletion(message("new")))
    store = MessageStore(small_config(), fs=volume, clock=Clock())
    assert store.open().rebuilt
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"new")]


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
        await store.save_deletions()
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
    noted = JsonFile(PATH, volume).load(dict)
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
    volume.now.files["/store/consumequeue/topic/0/00000000000000000000"] = old  # RocketMQ uses the older ones
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


@pytest.mark.parametrize("is_batch", [True, False])
async def test_only_who_takes_dead_messages_gets_them(is_batch: bool) -> None:
    store = open_store(MemoryFileSystem(), **SMALL)
    if is_batch:
        store.set_batch_topic("topic")
    put(store, batch(["old", "older"], "topic") if is_batch else message("old"))
    put(store, message("kept", "other"))
    store.delete_topic("topic")
    for place in (0, 2) if is_batch else (0,):
        assert await store.message_at(place) is None
        assert await store.message_at(place, include_deleted=True) is not None
    assert await store.store_timestamp_at(0) is not None, "the log nevertheless begins there"
    kept = await store.message_at(read_queue(store, "other")[0].physical_offset)
    assert kept is not None
    store.close()


async def test_a_deletion_that_could_not_be_noted_is_noted_later() -> None:
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk)
    store = open_store(volume, offsets_interval_ms=1, flush_interval_ms=1)
    put(store, *(message(f"old {number}", queue_id=number % 2) for number in range(4)))
    store.set_loop(asyncio.get_running_loop())
    volume.faults.append(Fault(kind="write", path="deletedTopics", error=errno.ENOSPC, repeats=True))
    store.delete_topic("topic")
    with pytest.raises(StorageError):
        await store.save_deletions()
    volume.faults.clear()
    assert store._opened is not None
    ledger = store._parts.deletions
    await until(lambda: ledger.is_saved)
    put(store, message("new"))
    store.flush()
    left = disk.after_kill()
    store.close()
    again = open_store(without_queues(left))
    assert again.queue_ids("topic") == [0]
    assert bodies(read_queue(again)) == ["new"]


class DeletesAnother(Inline):
    """The thread that saves offsets while another topic is deleted."""

    def __init__(self, store: MessageStore, *topics: str) -> None:
        self._store = store
        self._topics = list(topics)

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = await super().run(work, *args, **kwargs)
        if self._topics and args and isinstance(args[0], Snapshot):
            self._store.delete_topic(self._topics.pop())
        return result


async def test_what_is_deleted_while_another_deletion_is_saved_is_saved_too() -> None:
    """The next saved topic table has neither of them."""
    volume = MemoryFileSystem()
    store = open_store(volume)
    for topic in ("first", "second", "third"):
        put(store, message("x", topic))
        store.consumer_offsets.commit(topic, "group", 0, 1)
    store.flush()
    store.delete_topic("first")
    assert store._opened is not None
    await store._opened.save_deletions(DeletesAnother(store, "third", "second"))
    assert open_store(volume.after_kill()).topics() == []
    assert store._parts.deletions.is_saved


def recreated(volume: MemoryFileSystem, store: MessageStore, *, is_batch: bool) -> list[str]:
    """Delete and recreate the topic like the broker, without saving the changes of the deletion."""
    store.delete_topic(conversions.TOPIC)
    conversions.declare(volume, is_batch=is_batch)
    if is_batch:
        store.set_batch_topic(conversions.TOPIC)
        put(store, batch(["one", "two"], conversions.TOPIC))
    else:
        put(store, conversions.one("one"), conversions.one("two"))
    return bodies(read_queue(store, conversions.TOPIC))


@pytest.mark.parametrize("again_as_batch", [True, False])
@pytest.mark.parametrize("to_batch", [True, False])
@pytest.mark.parametrize("how", ["close", "after_kill", "after_power_cut"])
def test_no_conversion_of_a_deleted_topic_outlives_it(to_batch: bool, again_as_batch: bool, how: str) -> None:
    """Its ledger was not saved, because the disk was full or the broker was killed."""
    volume = MemoryFileSystem()
    store = conversions.filled(volume, is_batch=not to_batch)
    asyncio.run(conversions.order(store, to_batch=to_batch))
    found = recreated(volume, store, is_batch=again_as_batch)
    assert found == ["one", "two"]
    if how == "close":
        store.close()
    else:
        store.flush()
        assert store._opened is not None
        store._parts.deletions.save_now()
        volume = getattr(volume, how)()
    for _ in range(2):
        store = conversions.open_store(volume)
        assert store.converter.types() == {}
        assert store.is_batch_topic(conversions.TOPIC) is again_as_batch
        assert bodies(read_queue(store, conversions.TOPIC)) == found
        volume = volume.after_kill()


async def unwritable(_: ConversionRunner, __: ConversionJob, ___: QueueTypes) -> None:
    raise StorageError("no")


@pytest.mark.parametrize("to_batch", [True, False])
def test_a_topic_made_again_before_its_deletion_was_noted_can_hold_its_batches(to_batch: bool) -> None:
    volume = MemoryFileSystem()
    store = conversions.filled(volume, is_batch=not to_batch, count=4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ConversionRunner, "finish", unwritable)

        async def run() -> None:
            await conversions.order(store, to_batch=to_batch)
            if not to_batch:
                table = conversions.Table(volume, is_batch=True)
                assert not await store.converter.convert(conversions.TOPIC, table)

        asyncio.run(run())
    assert store.converter.types() == {conversions.TOPIC: False}
    assert recreated(volume, store, is_batch=True) == ["one", "two"]
    store.flush()
    store = conversions.open_store(volume.after_kill())
    assert store.is_batch_topic(conversions.TOPIC)
    assert bodies(read_queue(store, conversions.TOPIC))[-2:] == ["one", "two"]


def test_the_conversion_of_a_topic_that_was_made_again_survives() -> None:
    volume = MemoryFileSystem()
    store = conversions.filled(volume, is_batch=False, count=4)
    found = recreated(volume, store, is_batch=False)
    asyncio.run(conversions.order(store, to_batch=True))
    checkpoint(store)
    store = conversions.open_store(volume.after_kill())
    assert store.converter.types() == {conversions.TOPIC: False}
    assert bodies(read_queue(store, conversions.TOPIC)) == found
