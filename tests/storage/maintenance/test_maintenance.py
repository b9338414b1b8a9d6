"""The timers: tails, checkpoints, offsets, retention and the preallocated segment."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from raptormq.errors import StorageError
from raptormq.storage import GetStatus, MessageStore
from raptormq.storage.fs.page_cache import Extent, load_pages
from raptormq.storage.index.index_file import ENTRY_BYTES, HEADER_BYTES
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.read.options import ReadOptions
from raptormq.storage.recovery.checkpoint_file import decode_checkpoint
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    Inline,
    bodies,
    message,
    message_at,
    open_store,
    put,
    read_queue,
    small_config,
    until,
)

FAST: dict[str, Any] = {
    "flush_interval_ms": 1,
    "maintenance_interval_ms": 1,
    "queue_flush_interval_ms": 1,
    "checkpoint_interval_ms": 1,
    "offsets_interval_ms": 1,
    "retention_interval_ms": 1,
}


async def test_everything_becomes_durable_without_a_call() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock, **FAST)
    store.set_loop(asyncio.get_running_loop())
    put(store, *(message(str(number), queue_id=number) for number in range(5)))
    store.consumer_offsets.commit("topic", "group", 0, 1)
    end = store.end_offset

    def checkpoint() -> int:
        return decode_checkpoint(volume.open("/store/checkpoint").read_at(0, 4096)).queue_timestamp

    await until(lambda: checkpoint() == clock.now and store.flushed_offset == end)
    await until(lambda: volume.exists("/store/config/consumerOffset.json"))
    survivor = MessageStore(small_config(), fs=volume.after_power_cut(), clock=clock)
    report = survivor.open()
    assert (report.clean, report.end_offset) == (False, end)
    assert [bodies(read_queue(survivor, queue_id=number)) for number in range(5)] == [[str(n)] for n in range(5)]
    assert survivor.consumer_offsets.get("topic", "group", 0) == 1
    store.close()


async def test_offsets_are_saved_only_once_the_log_is_durable() -> None:
    """Consumer offsets depend on the log. Here a retry was stored, after which the group continues after the
    message.
    """
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock)
    put(store, message("failed"))
    put(store, message("failed", topic="%RETRY%group"))
    store.consumer_offsets.commit("topic", "group", 0, 1)
    assert store._opened is not None
    saving = asyncio.ensure_future(store._opened.maintenance.save_offsets(Inline()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not volume.exists("/store/config/consumerOffset.json")
    store.flush()
    await saving
    survivor = open_store(volume.after_power_cut(), clock)
    assert survivor.consumer_offsets.get("topic", "group", 0) == 1
    assert bodies(read_queue(survivor, topic="%RETRY%group")) == ["failed"]


async def test_offsets_are_not_saved_when_the_log_cannot_be_flushed() -> None:
    """Offsets are saved neither while the store runs nor at its end."""
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(kind="sync", path="/commitlog/", error=errno.EIO, repeats=True))
    store = open_store(volume)
    put(store, message("failed"))
    store.consumer_offsets.commit("topic", "group", 0, 1)
    assert store._opened is not None
    saving = asyncio.ensure_future(store._opened.maintenance.save_offsets(Inline()))
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="commit log could not be flushed"):
        store.flush()
    with pytest.raises(StorageError, match="commit log could not be flushed"):
        await saving
    with pytest.raises(StorageError, match="commit log could not be flushed"):
        store._opened.maintenance.flush_all()
    assert not volume.exists("/store/config/consumerOffset.json")


def test_an_idle_store_writes_nothing() -> None:
    volume = FaultyFileSystem(MemoryFileSystem())
    store = open_store(volume)
    put(store, message("a"))
    assert store._opened is not None
    store._opened.maintenance.flush_all()
    before = len(volume.operations)
    store._opened.maintenance.flush_all()
    assert volume.operations[before:] == []


async def test_the_next_segment_is_made_ahead() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, **FAST)
    store.set_loop(asyncio.get_running_loop())
    put(store, message("x" * 500))
    assert volume.names("/store/commitlog") == ["0" * 20]
    put(store, message("x" * 500))
    await until(lambda: len(volume.names("/store/commitlog")) == 2)
    put(store, message("x" * 1500))
    assert store.stats().segments == 2
    store.close()
    assert len(read_queue(open_store(volume))) == 3


async def test_retention_runs_by_itself() -> None:
    clock = Clock()
    volume = MemoryFileSystem(clock=clock)
    store = open_store(volume, clock, file_reserved_hours=1, delete_when=";".join(map(str, range(24))), **FAST)
    put(store, *(message("x" * 1500) for _ in range(4)))
    store.flush()
    store.set_loop(asyncio.get_running_loop())
    clock.now += 3_600_000
    await until(lambda: volume.names("/store/commitlog")[0] == f"{3 * 2048:020d}")
    assert await store.queue_bounds("topic", 0) == (3, 4)
    store.close()


@pytest.mark.parametrize("cold", ["/", "/commitlog/", "/consumequeue/"])
async def test_cold_reads_fetch_in_a_thread_and_answer(cold: str) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, *(message(str(number)) for number in range(30)))
    store.close()
    store = open_store(volume)
    store.set_loop(asyncio.get_running_loop())
    volume.non_resident = cold
    result = store.get_messages("topic", 0, 3, ReadOptions(4, 1 << 20))
    assert (result.status, result.non_resident, result.next_offset, result.buffers) == (GetStatus.FOUND, True, 3, [])
    result = await store.load_messages("topic", 0, 3, ReadOptions(4, 1 << 20))
    assert (result.status, result.non_resident, result.message_count) == (GetStatus.FOUND, False, 4)
    assert await store.offset_by_time("topic", 0, 0) == 0
    record = await store.message_at(0)
    assert record == message_at(store, 0)
    store.close()


async def test_new_messages_are_never_cold() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    volume.non_resident = "/"
    put(store, *(message(str(number)) for number in range(5)))
    assert bodies(read_queue(store)) == list("01234")


def test_fetching_what_is_gone_is_no_error() -> None:
    volume = MemoryFileSystem()
    volume.open("/there", create=True)
    load_pages(volume, [Extent("/there", 0, 3 << 20), Extent("/gone", 0, 10)])
    assert volume.names("/") == ["there"]


async def test_trouble_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "write", "consumequeue", errno.ENOSPC, repeats=True))
    store = open_store(volume, **FAST)
    put(store, message("a"))
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: sum("write /store/consumequeue" in line for line in volume.operations) > 5)
    said = [each.name for each in caplog.records if "consume queues in /store/consumequeue: No space" in each.message]
    assert said.count("raptormq.storage.log.write_gate") == 1
    assert len(said) <= 3
    volume.faults.clear()
    await until(lambda: store.stats().writable)
    store.close()
    assert bodies(read_queue(open_store(volume))) == ["a"]


def test_a_close_writes_all_queues_although_a_topic_was_deleted_before() -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("gone", "gone"))
    store.delete_topic("gone")
    put(store, message("kept"))
    store.close()

    assert volume.names("/store/consumequeue/topic/0")
    assert bodies(read_queue(open_store(volume))) == ["kept"]


async def test_the_files_of_a_deleted_topic_are_removed_by_a_thread() -> None:
    volume = FaultyFileSystem(MemoryFileSystem())
    store = open_store(volume, **FAST)
    put(store, *(message("a", queue_id=number) for number in range(3)))
    store._queues.flush(3)
    before = len(volume.operations)
    store.delete_topic("topic")
    assert sum("remove" in line for line in volume.operations[before:]) == 0
    put(store, message("again"))
    assert volume.names("/store/deleted") == ["0"]
    store.delete_topic("topic")
    put(store, message("and again"))
    store._queues.flush(1)
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: not volume.names("/store/deleted"))
    assert volume.names("/store/consumequeue/topic") == ["0"]
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"and again")]
    store.close()


@pytest.mark.parametrize("survivor", ["after_kill", "after_power_cut"])
async def test_what_a_crash_has_left_of_deleted_topics_is_removed(survivor: str) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume)
    put(store, message("gone", "gone"), message("kept"))
    assert store._opened is not None
    store._opened.maintenance.flush_all()
    store.delete_topic("gone")
    put(store, message("kept"))
    store._opened.maintenance.flush_all()
    left = getattr(volume, survivor)()
    assert left.names("/store/consumequeue") == ["topic"]
    store = open_store(left, **FAST)
    assert bodies(read_queue(store)) == ["kept", "kept"]
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: not left.names("/store/deleted"))
    store.close()


def test_a_folder_that_cannot_be_renamed_is_removed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    store = open_store(FaultyFileSystem(disk, Fault(kind="replace", path="/deleted/", error=errno.ENOSPC)))
    put(store, message("gone"))
    store._queues.flush(1)
    store.delete_topic("topic")
    assert disk.names("/store/consumequeue") == []
    assert "cannot be renamed" in caplog.text


async def test_entries_of_the_key_index_are_written_long_before_a_checkpoint() -> None:
    fault = Fault(kind="write", path="/index/", error=errno.ENOSPC)
    volume = FaultyFileSystem(MemoryFileSystem(), fault)
    store = open_store(volume, **FAST | {"checkpoint_interval_ms": 1_000_000, "segment_size": 1 << 20})
    put(store, *(PendingRecord("topic", 0, b"x", b"KEYS\x01key\x02") for _ in range(5_000)))
    assert store._index is not None
    (file,) = store._index._files
    assert file.unwritten_bytes == 5_000 * ENTRY_BYTES
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: file.unwritten_bytes == 0)
    assert fault.nth < 0  # the fault occurred, and was handled
    assert volume.open(file.path).read_at(0, HEADER_BYTES) == bytes(HEADER_BYTES)  # no further run was necessary
    store.close()
