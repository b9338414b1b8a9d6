"""The key index after a stop, a kill, a full disk or a power failure during its writes."""

from __future__ import annotations

import errno
import random
import struct

import numpy as np
import pytest

from raptormq.errors import DiskFull
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.index.index_file import Entries, IndexFile
from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.keyed_stores import MINUTE, append, flush, lost, opened, written_after_checkpoints
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, all_of, checkpoint, write_header


def given_up_round(volume: FileSystem, clock: Clock, calls: int) -> MessageStore:
    """Return a store with messages 0 to 3,999. The last thousand were added after an interrupted write."""
    store = opened(volume, clock)
    append(store, range(3_000))
    flush(store, calls)
    append(store, range(3_000, 4_000))
    return store


@pytest.mark.parametrize("calls", [1, 5, 17])
async def test_a_stop_in_the_middle_of_a_round_leaves_nothing_out(calls: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    given_up_round(volume, clock, calls).close()
    again = opened(volume, clock)
    assert await lost(again, range(4_000)) == []
    again.close()


@pytest.mark.parametrize("calls", [1, 5, 17])
async def test_a_checkpoint_after_a_round_that_was_given_up_says_the_truth(calls: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = given_up_round(volume, clock, calls)
    clock.now += MINUTE
    append(store, range(4_000, 4_010))
    checkpoint(store)
    again = opened(volume.after_kill(), clock)
    assert await lost(again, range(4_010)) == []
    again.close()


@pytest.mark.parametrize("nth", range(1, 8))
async def test_whatever_found_no_room_is_written_later(nth: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    fault = Fault(nth=nth, kind="write", path="/index/", error=errno.ENOSPC)
    store = opened(FaultyFileSystem(volume, fault), clock)
    append(store, range(1_500))
    with pytest.raises(DiskFull) as kept:  # a stored exception must not keep the mapped index from growing
        checkpoint(store)
    checkpoint(store)
    assert kept.value.__traceback__ is not None
    append(store, range(1_500, 3_000))
    clock.now += MINUTE
    append(store, range(3_000, 3_010))
    checkpoint(store)
    again = opened(volume.after_kill(), clock)
    assert await lost(again, range(3_010)) == []
    again.close()


def test_an_error_that_is_kept_does_not_keep_the_index_from_growing() -> None:
    fault = Fault(kind="write", error=errno.ENOSPC)
    file = IndexFile.create(FaultyFileSystem(MemoryFileSystem(), fault), "/20231114000000000", 5, 80)
    hashes = np.arange(10, dtype=np.int32)
    file.put(hashes, hashes.astype(np.int64), np.full(10, 50_000))
    with pytest.raises(OSError, match="space") as kept:
        file.flush(1)
    file.put(hashes, hashes.astype(np.int64) + 100, np.full(10, 50_000))
    assert file.flush(1)
    assert kept.value.errno == errno.ENOSPC
    assert all_of(file, 3, 0, 60_000) == [103, 3]


@pytest.mark.parametrize("calls", range(0, 40, 3))
async def test_a_kill_while_two_files_are_to_be_written(calls: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries=2_000)
    written_after_checkpoints(store, clock, 1_500, 3_000)
    flush(store, calls)
    survivor = volume.after_kill()
    for _ in range(2):
        again = opened(survivor, clock, entries=2_000)
        assert await lost(again, range(4_510)) == []
        again.close()


@pytest.mark.parametrize("pages", [1, 3, 64])
async def test_a_file_that_is_full_in_the_middle_of_its_round_comes_before_the_next(pages: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries=2_000)
    append(store, range(1_200))
    flush(store, 2)
    append(store, range(1_200, 2_400))
    assert store._index is not None
    done, turns = False, 0
    while not done:
        done = store._index.flush(pages)
        turns += 1
        if turns % 4 == 1 or done:
            again = opened(volume.after_kill(), clock, entries=2_000)
            assert await lost(again, range(2_400)) == []
            again.close()


async def test_the_newest_file_is_known_although_the_time_of_day_went_back() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries=2_000)
    append(store, range(1_500))
    clock.now -= MINUTE
    append(store, range(1_500, 2_600))
    checkpoint(store)
    append(store, range(2_600, 3_000))
    flush(store, 4)
    again = opened(volume.after_kill(), clock, entries=2_000)
    assert await lost(again, range(3_000)) == []
    again.close()


@pytest.mark.parametrize("seed", range(6))
async def test_a_kill_while_a_thread_writes_entries_between_rounds(seed: int) -> None:
    """Parts are taken, written and recorded in any order, with appends, runs and new files between."""
    chance = random.Random(seed)
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries=2_000)
    index = store._index
    assert index is not None
    under_way: Entries | None = None
    count = written = 0
    for step in range(100):
        match chance.randrange(5):
            case 0:
                append(store, range(count, count + 150))
                count += 150
            case 1 | 2 if under_way is None:
                assert index.end  # pending keys are added
                under_way = index.unwritten_entries(20, chance.choice([20, 2_000, 20_000]))
            case 1 | 2 if under_way is not None:
                assert under_way.write(volume)
                index.entries_written(under_way)
                under_way, written = None, written + 1
            case 3:
                index.flush(chance.choice([1, 4]))
            case 4:
                clock.now += MINUTE
                checkpoint(store)
        if step % 6 == 0:
            again = opened(volume.after_kill(), clock, entries=2_000)
            assert await lost(again, range(count)) == []
            again.close()
    assert written > 3
    store.close()


def test_entries_of_a_file_that_is_gone_are_not_written() -> None:
    volume = MemoryFileSystem()
    entries = Entries("/index/20231114000000000", 1, 80, bytes(20))
    assert not entries.write(volume)
    assert not volume.exists(entries.path)


@pytest.mark.parametrize("damage", [(36, 0x7FFFFFFF), (36, -5), (40, 0x7FFFFFF0), (44, 20_000)])
async def test_a_damaged_number_costs_no_start(damage: tuple[int, int]) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    append(store, range(10))
    checkpoint(store)
    survivor = volume.after_kill()
    path = f"/store/index/{survivor.names('/store/index')[0]}"
    survivor.open(path).write_at(damage[0], [struct.pack(">i", damage[1])], 4)
    again = opened(survivor, clock)
    append(again, range(10, 20))
    assert await lost(again, range(10, 20)) == []
    again.close()


async def test_a_new_file_is_durable_with_its_name() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    append(store, range(100))
    clock.now += MINUTE
    append(store, range(100, 110))
    checkpoint(store)
    again = opened(volume.after_power_cut(), clock)
    assert await lost(again, range(110)) == []
    again.close()


async def test_messages_in_the_place_of_lost_ones_are_found() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    append(store, range(10))
    checkpoint(store)
    append(store, range(10, 500))
    flush(store, 100)
    index = f"/store/index/{volume.names('/store/index')[0]}"
    volume.open(index).sync()  # like the kernel, which may write them before the log
    again = opened(volume.after_power_cut(), clock)
    append(again, range(1_000, 1_600))
    assert await lost(again, range(10)) + await lost(again, range(1_000, 1_600)) == []
    again.close()


@pytest.mark.parametrize("calls", range(11, 15))
async def test_a_crash_then_a_run_without_the_index_costs_no_key_from_before_the_checkpoint(calls: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    written_after_checkpoints(store, clock, 1_000, 1_990)
    assert store._index is not None
    store._index.begin_flush()
    flush(store, calls)
    volume = volume.after_kill()
    opened(volume, clock, index_enabled=False).close()
    again = opened(volume, clock)
    append(again, range(3_000, 4_000))
    assert await lost(again, range(1_010)) + await lost(again, range(3_000, 4_000)) == []
    again.close()


async def test_the_last_message_before_a_crash_is_found_by_all_of_its_keys() -> None:
    """An index with more keys than a file can hold: they are in two files, and only one is written."""
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries=50)
    words = [f"w{number}" for number in range(80)]
    store.append([PendingRecord("t", 0, b"", f"KEYS\x01{' '.join(words)}\x02".encode())])
    store.dispatch()
    assert store._index is not None
    store._index.begin_flush()
    for file in store._index._files[:-1]:
        while not file.flush(1):
            pass
        write_header(file, volume)
    again = opened(volume.after_kill(), clock, entries=50)
    assert [word for word in words if len(await again.find_by_key("t", word, 0, 1 << 62, 9)) != 1] == []
    again.close()


def test_slots_are_loaded_by_the_start_not_by_the_first_message() -> None:
    volume, clock = MemoryFileSystem(), Clock()
    store = opened(volume, clock)
    append(store, range(10))
    store.close()
    again = opened(volume, clock)
    assert again._index is not None
    assert again._index._files[-1]._slots is not None
    again.close()
