"""SYNC_FLUSH and ASYNC_FLUSH with the flush thread: one flush calls all waiting callbacks on the event loop."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from raptormq.errors import StorageError, StoreReadOnly
from raptormq.storage import FlushDiskType, MessageStore, StoreConfig
from raptormq.storage.fs.filesystem import File
from raptormq.storage.fs.page_checksum import PAGE_BYTES
from raptormq.storage.log import flush as flush_service
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.flush import FlushService
from raptormq.storage.log.write_gate import WriteGate
from raptormq.storage.recovery.checkpoint_file import decode_checkpoint
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFile, MemoryFileSystem
from tests.storage.stores import Clock, Inline, bodies, message, open_store, open_sync_store, read_queue


class SlowSync(MemoryFileSystem):
    """Flushes of the log wait until the test permits them, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.syncs = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if "/commitlog/" in path:
            sync = file.sync

            def slow_sync() -> None:
                self.syncs += 1
                self.begun.release()
                self.allowed.acquire()
                sync()

            file.sync = slow_sync  # type: ignore[method-assign]
        return file


async def acknowledged(store: MessageStore, *bodies: str) -> StorageError | None:
    future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
    store.on_confirmed(store.append([message(body) for body in bodies]).end_offset, future.set_result)
    return await future


async def test_one_flush_answers_all_who_came_before_it_began() -> None:
    volume = SlowSync()
    store = open_sync_store(volume, segment_size=1 << 16)
    confirmed: list[int] = []
    store.set_loop(asyncio.get_running_loop(), lambda: confirmed.append(len(store.dispatch())))
    first = asyncio.create_task(acknowledged(store, "first"))
    await asyncio.to_thread(volume.begun.acquire)
    others = [asyncio.create_task(acknowledged(store, str(number))) for number in range(20)]
    await asyncio.sleep(0)
    assert store.dispatch() == []
    assert await store.queue_bounds("topic", 0) == (0, 0)
    volume.allowed.release()
    assert await first is None
    assert confirmed == [1]
    assert not any(other.done() for other in others)
    volume.allowed.release()
    assert await asyncio.gather(*others) == [None] * 20
    assert volume.syncs == 2
    assert confirmed == [1, 20]
    volume.allowed.release(100)
    store.close()


async def test_a_checkpoint_does_not_count_what_came_while_the_log_was_flushed() -> None:
    volume, clock = SlowSync(), Clock()
    store = open_store(volume, clock, flush_interval_ms=1, segment_size=1 << 16)
    store.set_loop(asyncio.get_running_loop())
    durable = clock.now
    end = store.append([message("before")]).end_offset
    await asyncio.to_thread(volume.begun.acquire)
    clock.now += 60_000
    store.append([message("meanwhile")])
    store.dispatch()
    volume.allowed.release()
    await store.wait_flushed(end)
    assert store._opened is not None
    await store._opened.maintenance.checkpointer.checkpoint(Inline())
    saved = volume.after_power_cut().open("/store/checkpoint").read_at(0, PAGE_BYTES)
    assert decode_checkpoint(saved).log_timestamp == durable
    volume.allowed.release(100)
    store.close()


async def test_a_flush_waits_for_as_much_as_the_last_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_service, "GROUP_COMMIT_WAIT_S", 3600.0)
    volume = SlowSync()
    volume.allowed.release(100)
    store = open_sync_store(volume, segment_size=1 << 16)
    store.set_loop(asyncio.get_running_loop(), lambda: None)
    assert await acknowledged(store, *"abcd") is None
    some = asyncio.create_task(acknowledged(store, *"ef"))
    await asyncio.sleep(0)
    assert not some.done()
    assert await asyncio.gather(some, *(acknowledged(store, body) for body in "gh")) == [None] * 3
    assert volume.syncs == 2
    last = asyncio.create_task(acknowledged(store, "i"))
    await asyncio.sleep(0)
    store.close()
    assert await last is None


async def test_what_is_durable_already_is_answered_at_once() -> None:
    store = open_sync_store()
    result = store.append([message("a")])
    store.flush()
    answers: list[StorageError | None] = []
    store.on_confirmed(result.end_offset, answers.append)
    assert answers == [None]


async def test_a_failed_flush_answers_everybody_with_the_error() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "sync", "commitlog/0", errno.EIO))
    store = open_sync_store(volume)
    store.set_loop(asyncio.get_running_loop())
    answers = await asyncio.gather(*(acknowledged(store, str(number)) for number in range(3)))
    assert {type(each) for each in answers} == {StoreReadOnly}
    assert bodies(read_queue(store)) == []


@pytest.mark.parametrize("opened", [open_store, open_sync_store])
async def test_a_flush_that_fails_as_nobody_expects_ends_the_writes(
    opened: Callable[..., MessageStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flush(log: CommitLog) -> int:
        raise ValueError("an unnecessary flush")

    store = opened(flush_interval_ms=1)
    monkeypatch.setattr(CommitLog, "flush", flush)
    store.set_loop(asyncio.get_running_loop())
    with pytest.raises(StoreReadOnly, match="could not be flushed: ValueError: an unnecessary flush"):
        await store.wait_flushed(store.append([message("a")]).end_offset)
    with pytest.raises(StoreReadOnly):
        store.append([message("b")])
    assert not store.stats().writable
    assert "the flush thread of the commit log failed" in caplog.text
    with pytest.raises(StoreReadOnly):
        store.close()


async def test_a_flush_in_another_thread_calls_back_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Futures of asyncio and the lists of callbacks belong to the thread of the loop."""
    monkeypatch.setattr(FlushService, "_run", lambda _: None)  # nothing else flushes
    called_in: list[int] = []

    def note(*_: object) -> None:
        called_in.append(threading.get_ident())

    store = open_sync_store()
    store.set_loop(asyncio.get_running_loop(), note)
    end = store.append([message("a")]).end_offset
    store.on_confirmed(end, note)
    waiting = asyncio.create_task(store.wait_flushed(end))
    await asyncio.sleep(0)
    await asyncio.to_thread(store.flush)
    await asyncio.wait_for(waiting, 10)
    assert called_in == [threading.get_ident()] * 2
    store.close()


async def test_async_flush_makes_durable_by_itself() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, flush_interval_ms=1)
    store.set_loop(asyncio.get_running_loop())
    result = store.append([message("a")])
    assert [queue_id for _, queue_id, _, _ in store.dispatch()] == [0]
    await store.wait_flushed(result.end_offset)
    assert store.flushed_offset == store.end_offset
    assert bodies(read_queue(open_store(volume.after_power_cut()))) == ["a"]


async def test_64_senders_on_a_real_disk(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path, segment_size=1 << 20, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store = MessageStore(config)
    store.open()
    store.set_loop(asyncio.get_running_loop(), store.dispatch)

    async def sender(number: int) -> None:
        for turn in range(10):
            assert await acknowledged(store, f"{number} {turn}") is None
            assert store.flushed_offset > 0

    await asyncio.gather(*(sender(number) for number in range(64)))
    assert await store.queue_bounds("topic", 0) == (0, 640)
    store.close()
    store = MessageStore(config)
    assert store.open().clean
    assert len(read_queue(store)) == 640
    store.close()


async def test_the_file_type_of_the_test_is_the_one_of_the_seam() -> None:
    file: File = SlowSync().open("/commitlog", create=True)
    assert file.size() == 0


class GrowingLog:
    """A log that grows before each flush."""

    def __init__(self) -> None:
        self.flushes = threading.Semaphore(0)
        self.end_offset = self.flushed_offset = 0

    def flush(self) -> None:
        self.end_offset += 1
        self.flushed_offset = self.end_offset
        self.flushes.release()


def test_a_loop_that_is_closed_before_the_store_does_not_end_the_thread() -> None:
    log, gate, loop = GrowingLog(), WriteGate(), asyncio.new_event_loop()
    log_of_service = cast("CommitLog", log)
    service = FlushService(
        log_of_service, gate, sync=False, interval_ms=1, last_timestamp=lambda: 0, flushed=lambda _: None
    )
    loop.close()
    service.start(loop)
    for _ in range(3):
        assert log.flushes.acquire(timeout=30)
    service.stop()
    gate.check()
