"""The process or the machine fails at each disk operation, and no acknowledged message is lost.

A scripted run of a store with SYNC_FLUSH ends at operation 1, 2, 3, …; a failed write has written nothing, a few bytes
or nearly everything. The remaining volume - after a kill, after a power failure, and after one that keeps any part of
the unsynced writes - is opened again and compared with the acknowledged messages.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest

from raptormq.errors import StorageError
from raptormq.protocol.record import BLANK_MAGIC, StoredMessage, decode_record
from raptormq.storage import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, Clock, bodies, message, open_sync_store, put, read_queue

QueueKey = tuple[str, int]


class Life:
    """The script, and the messages acknowledged so far."""

    def __init__(self, volume: FaultyFileSystem) -> None:
        self.volume = volume
        self.clock = Clock()
        self.acknowledged: list[str] = []
        self.appended: set[str] = set()
        self.committed = 0
        self.number = 0

    def send(self, store: MessageStore, count: int, queue_id: int = 0, size: int = 0) -> None:
        bodies = [f"{self.number + index}".ljust(size, ".") for index in range(count)]
        self.number += count
        self.appended.update(bodies)
        result = store.append([message(body, queue_id=queue_id) for body in bodies])
        self.clock.now += 2000

        def flushed(error: StorageError | None) -> None:
            if error is None:
                self.acknowledged.extend(bodies)

        store.on_confirmed(result.end_offset, flushed)
        store.flush()
        store.dispatch()

    def run(self) -> None:
        store = open_sync_store(self.volume, self.clock)
        self.send(store, 3)
        self.send(store, 2, queue_id=1, size=300)
        self.send(store, 8, size=200)
        store.consumer_offsets.commit("topic", "group", 0, 3)
        store.close()
        self.committed = 3
        store = open_sync_store(self.volume, self.clock)
        self.send(store, 12, size=150)
        self.send(store, 1, queue_id=1)
        store.close()
        store = open_sync_store(self.volume, self.clock)
        self.send(store, 6, queue_id=2)
        self.send(store, 3, queue_id=2, size=700)
        store.flush()


def log_records(volume: MemoryFileSystem) -> Iterator[StoredMessage]:
    """Scan the log using only the description of its format."""
    names = volume.names("/store/commitlog")
    for name in names:
        data = volume.open(f"/store/commitlog/{name}").read_at(0, SEGMENT_BYTES)
        at = 0
        while any(data[at : at + 8]):
            if data[at + 4 : at + 8] == BLANK_MAGIC.to_bytes(4, "big", signed=True):
                assert int.from_bytes(data[at : at + 4], "big") == SEGMENT_BYTES - at
                break
            record = decode_record(data, at)
            assert record.physical_offset == int(name) + at
            yield record
            at += record.total_size
        else:
            assert not any(data[at:]), "bytes after the last record"


def queues_of(records: Iterator[StoredMessage]) -> dict[QueueKey, list[tuple[int, bytes]]]:
    queues: dict[QueueKey, list[tuple[int, bytes]]] = defaultdict(list)
    for record in records:
        queues[record.topic, record.queue_id].append((record.queue_offset, record.body))
    return dict(queues)


def assert_recovered(volume: MemoryFileSystem, life: Life, where: str) -> None:
    store = open_sync_store(volume, life.clock)
    in_log = queues_of(log_records(volume))
    served = {
        (topic, queue_id): [(each.queue_offset, each.body) for each in read_queue(store, topic, queue_id)]
        for topic in store.topics()
        for queue_id in store.queue_ids(topic)
        if store.queue_end(topic, queue_id)
    }
    assert served == in_log, where
    bodies = [body.decode() for items in served.values() for _, body in items]
    assert len(bodies) == len(set(bodies)), where
    assert set(life.acknowledged) <= set(bodies) <= life.appended, where
    for items in served.values():
        assert [offset for offset, _ in items] == list(range(len(items))), where
    if life.committed:
        assert store.consumer_offsets.get("topic", "group", 0) == life.committed, where
    before = len(bodies)
    put(store, message("after"), message("after", queue_id=1))
    store.close()
    store = open_sync_store(volume, life.clock)
    assert sum(len(read_queue(store, "topic", each)) for each in store.queue_ids("topic")) == before + 2, where
    store.close()


def operations() -> list[str]:
    volume = FaultyFileSystem(MemoryFileSystem())
    Life(volume).run()
    return volume.operations


def live_until(nth: int, torn_bytes: int) -> tuple[MemoryFileSystem, Life]:
    disk = MemoryFileSystem()
    disk.clock = Clock()
    life = Life(FaultyFileSystem(disk, Fault(nth, torn_bytes=torn_bytes)))
    with pytest.raises(SimulatedCrash):
        life.run()
    return disk, life


SCRIPT = operations()


def test_the_script_has_all_kinds_of_operations() -> None:
    assert {line.split()[0] for line in SCRIPT} >= {
        "create", "allocate", "write", "sync", "sync_directory", "replace", "remove", "make_folders"
    }  # fmt: skip
    assert len(SCRIPT) > 80


@pytest.mark.parametrize("part", range(8))
def test_a_crash_at_every_operation(part: int) -> None:
    for nth in range(part + 1, len(SCRIPT) + 1, 8):
        for torn_bytes in (0, 1, 60, 400) if SCRIPT[nth - 1].startswith("write") else (0,):
            disk, life = live_until(nth, torn_bytes)
            where = f"operation {nth}, {SCRIPT[nth - 1]}, {torn_bytes} bytes written"
            assert_recovered(disk.after_kill(), life, f"{where}, kill")
            assert_recovered(disk.after_power_cut(), life, f"{where}, power cut")


@pytest.mark.parametrize("nth", [n for n, line in enumerate(SCRIPT, 1) if line.startswith("sync")])
def test_a_power_cut_that_lets_some_sectors_through(nth: int) -> None:
    disk, life = live_until(nth, 0)
    for seed in range(6):
        survivor = disk.after_power_cut(random.Random(nth * 100 + seed))
        store = open_sync_store(survivor, life.clock)
        served = {
            each.body.decode() for queue_id in store.queue_ids("topic") for each in read_queue(store, "topic", queue_id)
        }
        assert set(life.acknowledged) <= served <= life.appended, f"operation {nth}, {SCRIPT[nth - 1]}, seed {seed}"
        put(store, message("after"))
        assert read_queue(store)[-1].body == b"after"
        store.close()


def test_every_byte_of_a_torn_group() -> None:
    write = max(n for n, line in enumerate(SCRIPT, 1) if line.startswith("write /store/commitlog"))
    path = SCRIPT[write - 1].split()[1]
    before, life = live_until(write, 0)
    whole, _ = live_until(write, SEGMENT_BYTES)
    old, new = before.open(path).read_at(0, SEGMENT_BYTES), whole.open(path).read_at(0, SEGMENT_BYTES)
    start = len(new) - len(new.lstrip(b"\0")) if not any(old) else len(old.rstrip(b"\0")) + 1
    for torn_bytes in range(len(new.rstrip(b"\0")) - start + 1):
        volume = before.after_kill()
        volume.open(path).write_at(start, [new[start : start + torn_bytes]], torn_bytes)
        assert_recovered(volume, life, f"{torn_bytes} bytes")


RECOVERIES = [n for n, line in enumerate(SCRIPT, 1) if line.startswith(("write", "sync"))][::5]


@pytest.mark.parametrize("nth", RECOVERIES)
def test_a_crash_at_every_operation_of_the_recovery(nth: int) -> None:
    disk, life = live_until(nth, 60)
    for survivor in (disk.after_kill, disk.after_power_cut):
        counting = FaultyFileSystem(survivor())
        open_sync_store(counting, life.clock)
        for again in range(1, len(counting.operations) + 1):
            faulty = FaultyFileSystem(volume := survivor(), Fault(again, torn_bytes=60))
            with pytest.raises(SimulatedCrash):
                open_sync_store(faulty, life.clock)
            where = f"operation {nth}, then {again} of the recovery, {counting.operations[again - 1]}"
            assert_recovered(volume.after_kill(), life, f"{where}, kill")
            assert_recovered(volume.after_power_cut(), life, f"{where}, power cut")


def test_a_power_cut_in_a_recovery_that_removes_a_torn_segment() -> None:
    """The group before the first power failure spanned two segments, and only the head of a record in the second one
    was kept. It must not follow a segment that the recovery has truncated.
    """
    clock = Clock()
    disk = MemoryFileSystem()
    put(open_sync_store(disk, clock), message("kept"))
    torn = disk.open(f"/store/commitlog/{SEGMENT_BYTES:020d}", create=True)
    torn.allocate(SEGMENT_BYTES)
    torn.write_at(0, [b"torn"], 4)
    torn.sync()
    disk.sync_directory("/store/commitlog")
    disk = disk.after_power_cut()
    counting = FaultyFileSystem(disk.after_kill())
    open_sync_store(counting, clock)
    assert f"remove /store/commitlog/{SEGMENT_BYTES:020d}" in counting.operations
    for nth, operation in enumerate(counting.operations, 1):
        volume = disk.after_kill()
        with pytest.raises(SimulatedCrash):
            open_sync_store(FaultyFileSystem(volume, Fault(nth)), clock)
        assert bodies(read_queue(open_sync_store(volume.after_power_cut(), clock))) == ["kept"], operation
