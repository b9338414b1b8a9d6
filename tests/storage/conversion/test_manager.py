"""Conversions of queues: start, stop, reversal, resumption after a restart, and removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from raptormq.errors import ConversionRefused, StoreDamaged
from raptormq.files import write_file
from raptormq.storage import MessageStore
from raptormq.storage.queue.topic_state import declared_topics
from tests.storage.batch_stores import batch
from tests.storage.conversions import (
    BATCH,
    SIMPLE,
    TOPIC,
    Table,
    contents,
    convert,
    declare,
    filled,
    finish,
    one,
    open_store,
    order,
    queue_bytes,
)
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, Inline, bodies, message, put, read_queue

pytestmark = pytest.mark.usefixtures("small_slices")


def test_a_topic_of_the_wanted_type_is_left_alone() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)

    asyncio.run(order(store, to_batch=False))
    assert store.converter.next_topic() is None
    assert store.converter.progress(TOPIC) is None


def test_stopped_and_gone_on_with_and_given_up() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=600)
    table = Table(volume, is_batch=False)
    before = contents(store)

    async def run() -> None:
        converter = store.converter
        await order(store, to_batch=True)
        working = asyncio.ensure_future(finish(store, table))
        while (progress := converter.progress(TOPIC)) is None or progress.phase == "waiting":
            await asyncio.sleep(0)
        with pytest.raises(ConversionRefused, match="to the other type"):
            await order(store, to_batch=False)
        await converter.stop(TOPIC)
        ended = await working
        assert ended is not None
        assert ended.phase == "stopped"
        store._queues.flush(10)  # like the timer
        assert queue_bytes(volume, BATCH)
        put(store, one("later"))
        await order(store, to_batch=False)
        assert queue_bytes(volume, BATCH) == {}
        assert converter.next_topic() is None
        await order(store, to_batch=True)
        await converter.stop(TOPIC)
        assert converter.next_topic() is None
        await order(store, to_batch=True)
        ended = await finish(store, table)
        assert ended is not None
        assert ended.phase == "done"

    asyncio.run(run())
    before[0].append((300, "later"))
    assert contents(store) == before


def test_a_topic_that_is_deleted_meanwhile_is_forgotten() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=300)

    async def run() -> None:
        await order(store, to_batch=True)
        working = asyncio.ensure_future(finish(store, Table(volume, is_batch=False)))
        while not (progress := store.converter.progress(TOPIC)) or progress.phase == "waiting":
            await asyncio.sleep(0)
        store.delete_topic(TOPIC)
        assert await working is None

    asyncio.run(run())
    assert not any(TOPIC in path for path in volume.now.files if "consumequeue" in path)
    put(store, one("again"))
    assert contents(store) == {0: [(0, "again")]}
    store.close()
    reopened = open_store(volume)
    assert reopened.converter.types() == {}
    assert contents(reopened) == {0: [(0, "again")]}


def test_nothing_is_left_of_a_topic_that_had_its_first_message_after_the_switch_and_is_deleted() -> None:
    volume = MemoryFileSystem()
    declare(volume, is_batch=False)
    store = open_store(volume)

    class Busy(Table):
        async def saved(self) -> None:
            put(store, one("first and last"))
            store.delete_topic(TOPIC)

    async def run() -> None:
        await order(store, to_batch=True)
        assert await finish(store, Busy(volume, is_batch=False)) is None

    asyncio.run(run())
    store._queues.flush(10)  # like the timer
    assert queue_bytes(volume, BATCH) == {}
    put(store, one("again"))
    assert contents(store) == {0: [(0, "again")]}


@pytest.mark.parametrize("again_as_batch", [True, False])
def test_a_topic_that_is_made_again_while_old_queues_are_removed_keeps_its_own(again_as_batch: bool) -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)

    class Slow(Inline):
        async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if "remove" in getattr(work, "__name__", ""):
                store.delete_topic(TOPIC)
                if again_as_batch:
                    store.set_batch_topic(TOPIC)
                put(store, one("again"))
                store._queues.flush(10)
            return await super().run(work, *args, **kwargs)

    async def run() -> None:
        assert store._opened is not None
        store.converter.start(Slow(), store._opened.maintenance.checkpointer)
        await order(store, to_batch=True)
        assert await finish(store, Table(volume, is_batch=False)) is None

    asyncio.run(run())
    assert queue_bytes(volume, BATCH if again_as_batch else SIMPLE)
    assert not queue_bytes(volume, SIMPLE if again_as_batch else BATCH)


def test_a_topic_that_is_deleted_while_its_conversion_is_given_up_is_forgotten() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)

    async def run() -> None:
        await order(store, to_batch=True)
        await store.converter.stop(TOPIC)
        giving_up = asyncio.ensure_future(order(store, to_batch=False))
        await asyncio.sleep(0)  # it waits for the disk
        store.delete_topic(TOPIC)
        await giving_up
        assert await finish(store, Table(volume, is_batch=False)) is None

    asyncio.run(run())
    assert (store.topics(), store.converter.types()) == (["other"], {})
    assert queue_bytes(volume, SIMPLE) == {}


def test_the_topic_table_is_right_again_when_a_refused_conversion_is_forgotten() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)

    class Late(Table):
        async def saved(self) -> None:
            if not self.is_batch:
                put(store, batch(["came", "in between"], TOPIC))
            await super().saved()

    async def run() -> None:
        await order(store, to_batch=False)
        ended = await finish(store, Late(volume, is_batch=True))
        assert ended is not None
        assert ended.phase == "refused"

    asyncio.run(run())
    assert store.converter.types() == {}
    assert declared_topics(volume, store.config.paths).batch == {TOPIC}


async def until_half(store: MessageStore, volume: MemoryFileSystem) -> None:
    """Convert the first half of a topic of 600 messages to BatchCQ."""
    await order(store, to_batch=True)
    working = asyncio.ensure_future(finish(store, Table(volume, is_batch=False)))
    while (progress := store.converter.progress(TOPIC)) is None or progress.done < 300:
        await asyncio.sleep(0)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    store._queues.flush(10)


@pytest.mark.parametrize("crash", [True, False])
def test_a_start_goes_on_with_what_there_is(crash: bool) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = filled(volume, is_batch=False, count=600, clock=clock)
    before = contents(store)

    asyncio.run(until_half(store, volume))
    if crash:
        clock.now += 60_000
        put(store, message("later", topic="other"))
        volume = volume.after_kill()
    else:
        store.close()
    store = open_store(volume, clock)
    assert contents(store) == before
    assert store.converter.types() == {TOPIC: False}
    progress = store.converter.progress(TOPIC)
    assert progress is not None
    assert progress.phase == "waiting"
    assert (progress.done >= 300) is not crash  # after a crash only the state of a checkpoint is used
    ended = asyncio.run(finish(store, Table(volume, is_batch=False)))
    assert ended is not None
    assert ended.phase == "done"
    assert contents(store) == before


def test_a_start_without_the_ledger_builds_the_queues_of_the_type_that_was_declared() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=600)
    before = contents(store)
    asyncio.run(until_half(store, volume))
    store.close()
    ledger = "/store/config/queueConversions.json"
    for path in ledger, f"{ledger}.bak":
        write_file(volume, path, b"damaged")
    with pytest.raises(StoreDamaged, match=r"or remove .*has to be started again"):
        open_store(volume)

    for path in ledger, f"{ledger}.bak":
        volume.remove(path)
    store = open_store(volume)
    assert contents(store) == before
    assert not store.is_batch_topic(TOPIC)
    assert queue_bytes(volume, BATCH) == {}
    assert convert(store, volume, to_batch=True).phase == "done"
    assert contents(store) == before


def test_two_topics_are_converted_one_after_the_other() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)
    before = contents(store)

    class Tables(Table):
        def set(self, topic: str, *, is_batch: bool) -> None:
            self.history.append(is_batch)

    async def run() -> None:
        tables = Tables(volume, is_batch=False)
        await store.converter.order(TOPIC, tables, to_batch=True)
        await store.converter.order("other", tables, to_batch=True)
        await finish(store, tables)

    asyncio.run(run())
    assert store.is_batch_topic(TOPIC)
    assert store.is_batch_topic("other")
    assert contents(store) == before
    assert bodies(read_queue(store, "other")) == ["other"] * 70


def test_a_topic_without_messages() -> None:
    volume = MemoryFileSystem()
    declare(volume, is_batch=False)
    store = open_store(volume)
    assert convert(store, volume, to_batch=True).phase == "done"
    put(store, one("first"))
    assert store.is_batch_topic(TOPIC)
    assert contents(store) == {0: [(0, "first")]}
    assert queue_bytes(volume, SIMPLE) == {}
