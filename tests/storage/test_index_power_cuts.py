"""The key index after a power failure that kept any part of the writes."""

from __future__ import annotations

import contextlib
import random

import pytest

from raptormq.storage.queue.append_batches import PendingRecord
from raptormq.storage.store import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.keyed_stores import MINUTE, opened, written_after_checkpoints
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, checkpoint


def append(store: MessageStore, numbers: range) -> None:
    store.append(
        [PendingRecord("t", 0, b"x", b"KEYS\x01k%d\x02UNIQ_KEY\x01u%d\x02" % (number, number)) for number in numbers]
    )
    store.flush()
    store.dispatch()


async def lost(store: MessageStore, numbers: range) -> list[str]:
    keys = [f"{letter}{number}" for number in numbers[::2] for letter in "ku"]
    return [key for key in keys if len(await store.find_by_key("t", key, 0, 1 << 62, 9)) != 1]


@pytest.mark.parametrize("entries", [20_000, 1_500])
@pytest.mark.parametrize("seed", range(15))
async def test_a_power_cut_between_two_checkpoints_costs_no_key(seed: int, entries: int) -> None:
    chance, volume, clock = random.Random(seed), MemoryFileSystem(), Clock()
    store = opened(volume, clock, entries)
    written_after_checkpoints(store, clock, 1_000, 990, put=append)
    assert store._index is not None
    store._index.begin_flush()
    for _ in range(chance.randrange(40)):
        store._index.flush(1)
    volume = volume.after_power_cut(chance)
    again = opened(volume, clock, entries)
    append(again, range(2_000, 2_400))
    assert await lost(again, range(2_400)) == []
    again.close()


@pytest.mark.parametrize("seed", range(25))
async def test_a_power_cut_within_a_checkpoint_costs_no_key(seed: int) -> None:
    """Three runs that each end at some operation of a checkpoint. Files of the index become full."""
    chance, volume, clock = random.Random(seed), MemoryFileSystem(), Clock()
    count = 0
    for _ in range(3):
        faulty = FaultyFileSystem(volume)
        store = opened(faulty, clock, 1_500)
        assert await lost(store, range(count)) == []
        for _ in range(2):
            append(store, range(count, count + 400))
            count += 400
            clock.now += MINUTE
            checkpoint(store)
        append(store, range(count, count + 500))
        count += 500
        faulty.faults.append(Fault(chance.randrange(1, 40)))
        with contextlib.suppress(SimulatedCrash):
            checkpoint(store)
        volume = volume.after_power_cut(chance)
    again = opened(volume, clock, 1_500)
    assert await lost(again, range(count)) == []
    again.close()


def between_two_checkpoints() -> tuple[MemoryFileSystem, FaultyFileSystem, MessageStore]:
    disk, clock = MemoryFileSystem(), Clock()
    faulty = FaultyFileSystem(disk)
    store = opened(faulty, clock, 1_500)
    for first in (0, 400):
        append(store, range(first, first + 400))
        clock.now += MINUTE
        if not first:
            checkpoint(store)
    return disk, faulty, store


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_a_header_never_counts_what_a_power_cut_took(nth: int) -> None:
    """The test stops at each sync of an index file. The header may be durable before the entries that it counts."""
    disk, faulty, store = between_two_checkpoints()
    faulty.faults.append(Fault(nth, "sync", "/index/"))
    with pytest.raises(SimulatedCrash):
        checkpoint(store)
    for seed in range(12):
        again = opened(disk.after_power_cut(random.Random(seed)), Clock(), 1_500)
        assert await lost(again, range(800)) == [], seed
        again.close()
