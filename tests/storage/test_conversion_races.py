"""Conversions and deletions that are requested while the converter waits: the queues in use keep their files."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import pytest

from raptormq.errors import StorageError
from raptormq.storage import MessageStore
from raptormq.storage.background import Executor
from raptormq.storage.conversion import job as conversion_run
from raptormq.storage.queue.topic_state import ConversionLedger, declared_topics
from tests.storage.batch_stores import batch
from tests.storage.conversions import (
    BATCH,
    SIMPLE,
    TOPIC,
    Table,
    contents,
    declare,
    filled,
    finish,
    one,
    open_store,
    order,
    queue_bytes,
)
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import checkpoint, put

pytestmark = pytest.mark.usefixtures("small_slices")

T = TypeVar("T")


def make_again(store: MessageStore, *, is_batch: bool) -> None:
    """Delete the topic, and recreate it with one message."""
    store.delete_topic(TOPIC)
    if is_batch:
        store.set_batch_topic(TOPIC)
    put(store, one("again"))
    store._queues.flush(10)


def test_what_is_stopped_before_it_begins_is_left_alone() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)
    checkpoint(store)
    before, files = contents(store), queue_bytes(volume, SIMPLE)
    table = Table(volume, is_batch=False)

    async def run() -> None:
        await order(store, to_batch=True)
        await store.converter.stop(TOPIC)
        assert await store.converter.convert(TOPIC, table)

    asyncio.run(run())
    progress = store.converter.progress(TOPIC)
    assert progress is not None
    assert progress.phase == "stopped"
    assert (table.is_batch, store.is_batch_topic(TOPIC)) == (False, False)
    assert queue_bytes(volume, SIMPLE) == files != {}
    store.close()
    assert contents(open_store(volume)) == before


def test_the_topic_table_is_right_again_when_a_switch_is_given_up() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)

    class Late(Table):
        """Its first save takes long."""

        def __init__(self) -> None:
            super().__init__(volume, is_batch=True)
            self.is_on_disk = asyncio.Event()

        async def saved(self) -> None:
            if not self.is_batch:
                await self.is_on_disk.wait()
            await super().saved()

    async def run() -> None:
        table = Late()
        converter = store.converter
        await order(store, to_batch=False)
        working = asyncio.ensure_future(finish(store, table))
        while table.is_batch:
            await asyncio.sleep(0)
        await converter.stop(TOPIC)
        await converter.order(TOPIC, table, to_batch=True)
        table.is_on_disk.set()
        await working
        assert converter.types() == {}
        assert table.is_batch

    asyncio.run(run())
    assert store.is_batch_topic(TOPIC)
    assert declared_topics(volume, store.config.paths).batch == {TOPIC}


def test_the_topic_table_on_the_disk_is_right_before_a_conversion_is_forgotten() -> None:
    """The broker was killed after it had changed the table for the switch."""
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)
    asyncio.run(order(store, to_batch=False))
    asyncio.run(store.converter.stop(TOPIC))
    declare(volume, is_batch=False)
    volume = volume.after_kill()
    store = open_store(volume)
    asyncio.run(order(store, to_batch=True))
    assert store.converter.types() == {}
    assert declared_topics(volume, store.config.paths).batch == {TOPIC}


def test_a_topic_that_is_made_again_after_its_conversion_was_given_up_keeps_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def with_pauses(items: Iterable[T]) -> AsyncIterator[T]:
        for item in items:
            yield item
            for _ in range(20):
                await asyncio.sleep(0)

    monkeypatch.setattr(conversion_run, "cooperatively", with_pauses)
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False, count=600)

    async def run() -> None:
        await order(store, to_batch=True)
        working = asyncio.ensure_future(finish(store, Table(volume, is_batch=False)))
        while (progress := store.converter.progress(TOPIC)) is None or progress.phase == "waiting":
            await asyncio.sleep(0)
        await store.converter.stop(TOPIC)
        await working
        store._queues.flush(10)
        assert queue_bytes(volume, BATCH)
        giving_up = asyncio.ensure_future(order(store, to_batch=False))
        while store.converter.progress(TOPIC) is not None:
            await asyncio.sleep(0)
        assert not giving_up.done()
        make_again(store, is_batch=True)
        files = queue_bytes(volume, BATCH)
        await giving_up
        assert queue_bytes(volume, BATCH) == files != {}

    asyncio.run(run())


def test_a_topic_that_is_made_again_after_its_conversion_was_refused_and_given_up_keeps_its_files() -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=True)
    put(store, batch(["not for", "SimpleCQ"], TOPIC))

    class Slow(Table):
        """Saves nothing until the conversion is cancelled and the topic recreated."""

        async def saved(self) -> None:
            await super().saved()
            if store.converter.types() and not giving_up:
                giving_up.append(TOPIC)
                await store.converter.stop(TOPIC)
                await store.converter.order(TOPIC, self, to_batch=True)
                make_again(store, is_batch=False)

    giving_up: list[str] = []

    async def run() -> None:
        await order(store, to_batch=False)
        await finish(store, Slow(volume, is_batch=True))

    asyncio.run(run())
    assert giving_up
    assert queue_bytes(volume, SIMPLE)
    assert contents(store) == {0: [(0, "again")]}


def test_a_topic_that_is_made_again_after_the_switch_keeps_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryFileSystem()
    store = filled(volume, is_batch=False)
    table = Table(volume, is_batch=False)
    rewrite = ConversionLedger.rewrite

    async def then_made_again(self: ConversionLedger, background: Executor) -> None:
        await rewrite(self, background)
        if table.is_batch:  # the switch is complete
            make_again(store, is_batch=False)
            table.is_batch = False

    async def run() -> None:
        await order(store, to_batch=True)
        monkeypatch.setattr(ConversionLedger, "rewrite", then_made_again)
        assert await finish(store, table) is None

    asyncio.run(run())
    assert table.history == [True]
    assert table.is_batch is False
    assert queue_bytes(volume, SIMPLE)


@pytest.mark.parametrize("was_stopped", [True, False])
def test_an_order_that_could_not_be_saved_does_not_count(was_stopped: bool) -> None:
    disk = MemoryFileSystem()
    filled(disk, is_batch=False).close()
    volume = FaultyFileSystem(disk)
    store = open_store(volume)

    async def run() -> None:
        if was_stopped:
            await order(store, to_batch=True)
            await store.converter.stop(TOPIC)
        volume.faults.append(Fault(kind="write", path="queueConversions", error=errno.ENOSPC))
        with pytest.raises(StorageError, match="cannot save"):
            await order(store, to_batch=True)
        assert store.converter.next_topic() is None
        await order(store, to_batch=True)
        ended = await finish(store, Table(disk, is_batch=False))
        assert ended is not None
        assert ended.phase == "done"

    asyncio.run(run())
