"""Messages that the broker writes are visible, counted and, with SYNC_FLUSH, on disk before the caller continues."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.internal_writer import InternalWriter
from raptormq.broker.metrics.counters import Counters
from raptormq.broker.reput import ReputService
from raptormq.errors import DiskFull, StorageError
from raptormq.storage.config import FlushDiskType, StoreConfig
from raptormq.storage.queue.append_batches import Arrival, PendingRecord
from raptormq.storage.store import MessageStore


def parts(folder: Path, flush: FlushDiskType) -> tuple[MessageStore, InternalWriter, Counters, list[Arrival]]:
    store = MessageStore(StoreConfig(folder, segment_size=1 << 20, flush_disk_type=flush))
    store.open()
    seen: list[Arrival] = []
    reput, counters = ReputService(store), Counters()
    reput.listen(seen.extend)
    store.set_loop(asyncio.get_running_loop(), reput.schedule)
    return store, InternalWriter(store, reput, counters), counters, seen


async def test_a_message_of_the_broker_is_counted_and_becomes_visible(tmp_path: Path) -> None:
    store, writer, counters, seen = parts(tmp_path, FlushDiskType.ASYNC_FLUSH)
    result = await writer.write_confirmed([PendingRecord("t", 0, b"1"), PendingRecord("t", 0, b"2")])
    assert result.queue_offsets == [0, 1]
    await asyncio.sleep(0)
    assert seen == [("t", 0, 1, 0), ("t", 0, 2, 0)]
    assert (counters.messages_in, counters.bytes_in) == (2, result.end_offset)
    store.close()


async def test_under_sync_flush_it_is_on_disk_when_the_writer_goes_on(tmp_path: Path) -> None:
    store, writer, _, _ = parts(tmp_path, FlushDiskType.SYNC_FLUSH)
    result = await writer.write_confirmed([PendingRecord("t", 0, b"1")])
    assert store.flushed_offset >= result.end_offset
    store.close()


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_a_full_disk_is_raised_and_nothing_counted(
    tmp_path: Path, flush: FlushDiskType, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writer, counters, _ = parts(tmp_path, flush)

    def fail(_: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(store, "append", fail)
    with pytest.raises(StorageError):
        await writer.write_confirmed([PendingRecord("t", 0, b"1")])
    assert counters.messages_in == 0
    store.close()
