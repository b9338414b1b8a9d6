"""Queues of BatchCQ topics after restarts, crashes at every operation, lost files, retention and deletion."""

from __future__ import annotations

import random

import pytest

from raptormq.errors import StorageError, StoreDamaged
from raptormq.json_file import JsonFile
from raptormq.protocol.properties import INNER_BASE, find_property
from raptormq.storage import FlushDiskType, MessageStore, PendingRecord
from raptormq.storage.fs.filesystem import FileSystem
from tests.storage.batch_stores import BATCH_FILE_BYTES, SMALL, batch, open_batch_store, read_batches
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    Clock,
    bodies,
    checkpoint,
    message,
    put,
    queue_bounds,
    read_queue,
    run_retention,
    small_config,
)

FOLDER = "/store/batchconsumequeue/batches/0"


def declare(volume: FileSystem, topic: str = "batches", queue_type: str = "BatchCQ") -> None:
    """Write the queue type of the topic to the broker's table."""
    volume.make_folders("/store/config")
    table = {topic: {"topicName": topic, "attributes": {"queue.type": queue_type}}}
    JsonFile("/store/config/topics.json", volume).save({"topicConfigTable": table})


def reopened(volume: FileSystem, clock: Clock | None = None, **settings: object) -> MessageStore:
    """Open a store like a broker: only the files contain the topic."""
    settings = SMALL | settings
    store = MessageStore(small_config(**settings), fs=volume, clock=clock or Clock())
    store.open()
    return store


def filled(volume: MemoryFileSystem, batches: int = 12) -> list[str]:
    """Store batches of 1 to 4 messages in three queue files. Return the bodies."""
    store = open_batch_store(volume)
    sent: list[str] = []
    for number in range(batches):
        names = [f"{number}-{each}" for each in range(number % 4 + 1)]
        put(store, batch(names))
        sent += names
    store.close()
    return sent


def test_a_restart_finds_all_messages_and_goes_on() -> None:
    volume = MemoryFileSystem()
    sent = filled(volume)

    store = reopened(volume)
    assert queue_bounds(store, "batches", 0) == (0, len(sent))
    assert bodies(read_batches(store)) == sent
    put(store, batch(["x", "y"]))
    assert queue_bounds(store, "batches", 0) == (0, len(sent) + 2)
    store.close()
    assert bodies(read_batches(reopened(volume), offset=len(sent) - 1)) == [sent[-1], "x", "y"]


def test_a_kill_loses_nothing() -> None:
    volume = MemoryFileSystem()
    sent = filled(volume)
    store = reopened(volume)
    put(store, batch(["x", "y"]))

    store = reopened(volume.after_kill())

    assert bodies(read_batches(store)) == [*sent, "x", "y"]


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_lost_queue_files_are_built_again(lost: int | None) -> None:
    volume = MemoryFileSystem()
    sent = filled(volume)
    if lost is None:
        declare(volume)
        volume.remove_tree("/store/batchconsumequeue")
    else:
        volume.remove(f"{FOLDER}/{volume.names(FOLDER)[lost]}")
        put_marker(volume)

    store = reopened(volume)

    assert bodies(read_batches(store)) == sent
    assert volume.names("/store/consumequeue") == []


def put_marker(volume: MemoryFileSystem) -> None:
    """Make the next start one after a crash without a checkpoint."""
    volume.open("/store/abort", create=True)
    volume.remove("/store/checkpoint")


def test_without_the_table_the_log_itself_tells_the_type() -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume)
    put(store, batch(["a", "b"]), batch(["c"]))

    survivor = volume.after_kill()
    survivor.remove_tree("/store/batchconsumequeue")

    assert bodies(read_batches(reopened(survivor))) == ["a", "b", "c"]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("old_table", [False, True])
def test_the_log_tells_the_type_of_topics_that_do_not_begin_with_a_batch(old_table: bool, crash: bool) -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume)
    store.set_batch_topic("others")
    put(store, message("a", "batches"), message("x", "others"))
    for _ in range(11):  # more than the scan processes together
        put(store, *(message("s", "single") for _ in range(100)))
    put(store, batch(["b", "c"]), batch(["y", "z"], "others"), message("d", "batches"))
    if not crash:
        store.close()
    survivor = volume.after_kill()
    survivor.remove_tree("/store/batchconsumequeue")
    if old_table:
        declare(survivor, "batches", queue_type="SimpleCQ")

    store = reopened(survivor)

    assert queue_bounds(store, "batches", 0) == (0, 4)
    assert bodies(read_batches(store)) == ["a", "b", "c", "d"]
    assert queue_bounds(store, "others", 0) == (0, 3)
    assert survivor.names("/store/consumequeue") == ["single"]


def test_queues_of_the_wrong_type_are_built_again() -> None:
    volume = MemoryFileSystem()
    store = reopened(volume)
    put(store, message("a", "batches"), message("b", "batches"))
    store.close()
    declare(volume)

    store = reopened(volume)

    assert bodies(read_batches(store)) == ["a", "b"]
    assert volume.names("/store/consumequeue/batches") == []
    assert bodies(read_queue(store, "batches")) == ["a", "b"]


def test_a_topic_made_again_begins_at_0_also_when_built_again() -> None:
    volume = MemoryFileSystem()
    filled(volume)
    store = reopened(volume)
    store.delete_topic("batches")
    assert volume.names("/store/batchconsumequeue") == []
    assert queue_bounds(store, "batches", 0) == (0, 0)
    store.set_batch_topic("batches")
    put(store, batch(["new", "newer"]))
    declare(volume)

    survivor = volume.after_kill()
    survivor.remove_tree("/store/batchconsumequeue")
    put_marker(survivor)

    assert bodies(read_batches(reopened(survivor))) == ["new", "newer"]


def test_a_topic_made_again_as_simple_is_simple() -> None:
    volume = MemoryFileSystem()
    filled(volume)
    store = reopened(volume)
    store.delete_topic("batches")
    put(store, message("plain", "batches"))
    store.close()

    store = reopened(volume)

    assert volume.names("/store/consumequeue") == ["batches"]
    assert bodies(read_queue(store, "batches")) == ["plain"]


def test_a_torn_batch_leaves_no_item() -> None:
    volume = MemoryFileSystem()
    sent = filled(volume, 3)
    store = reopened(volume)
    end = store.end_offset
    put(store, batch(["x", "y"]))
    survivor = volume.after_kill()
    survivor.open(f"/store/commitlog/{0:020d}").write_at(end + 95, [b"\xff"], 1)

    store = reopened(survivor)
    put(store, batch(["z"]))

    assert bodies(read_batches(store)) == [*sent, "z"]


def test_retention_moves_the_minimum_to_a_live_batch_and_deletes_dead_files() -> None:
    volume = MemoryFileSystem()
    store = open_batch_store(volume, segment_size=2048)
    for number in range(30):
        put(store, batch([f"{number}-{each}".ljust(100, ".") for each in range(3)]))
    checkpoint(store)
    store.config.disk_clean_ratio = 0.0
    store.config.delete_batch_max = 7

    run_retention(store, 0)

    low, high = queue_bounds(store, "batches", 0)
    first = read_batches(store, whole=True)[0]
    assert (low % 3, low > 0, high) == (0, True, 90)
    assert first.queue_offset == low == int(find_property(first.properties, INNER_BASE) or "")
    assert first.physical_offset - store.stats().min_offset < 2048
    assert next(int(name) for name in volume.names(FOLDER)) == low // 3 // 5 * BATCH_FILE_BYTES
    store.close()
    store = reopened(volume, segment_size=2048)
    assert queue_bounds(store, "batches", 0) == (low, 90)
    put(store, batch(["after"]))
    assert bodies(read_batches(store))[-1] == "after"


@pytest.mark.parametrize("damage", [bytes(46), b"\xff" * 46, b"\x7f" * 46], ids=["zeros", "ones", "large"])
@pytest.mark.parametrize("item", range(12))
def test_a_damaged_item_costs_nothing(item: int, damage: bytes) -> None:
    volume = MemoryFileSystem()
    filled(volume)
    store = reopened(volume)
    sent = [(each.queue_offset, each.body) for each in read_batches(store)]
    first = sum(number % 4 + 1 for number in range(item))
    name = f"{FOLDER}/{item // 5 * BATCH_FILE_BYTES:020d}"
    volume.open(name).write_at(item % 5 * 46, [damage], 46)
    if damage[0] == 0x7F:  # valid, but far away
        volume.open(name).write_at(item % 5 * 46 + 28, [(5).to_bytes(8, "big")], 8)

    for offset in (0, first, len(sent) - 1):
        found = [(each.queue_offset, each.body) for each in read_batches(store, offset=offset)]
        assert found == [each for each in sent if each[0] >= offset]


def test_a_damaged_item_is_built_again_at_the_next_start() -> None:
    volume = MemoryFileSystem()
    sent = filled(volume)
    volume.open(f"{FOLDER}/{2 * BATCH_FILE_BYTES:020d}").write_at(0, [bytes(46)], 46)

    assert bodies(read_batches(reopened(volume))) == sent


def test_files_of_another_size_stop_the_start() -> None:
    volume = MemoryFileSystem()
    filled(volume)
    with pytest.raises(StoreDamaged, match="mapperFileSizeBatchConsumeQueue=92"):
        reopened(volume, batch_queue_file_size=92)


class Life:
    """A scripted run with SYNC_FLUSH that ends at some operation."""

    def __init__(self, volume: FaultyFileSystem) -> None:
        self.volume = volume
        self.clock = Clock()
        self.number = 0
        self.acknowledged: list[str] = []
        self.appended: set[str] = set()

    def open(self) -> MessageStore:
        return reopened(self.volume, self.clock, segment_size=2048, flush_disk_type=FlushDiskType.SYNC_FLUSH)

    def send(self, store: MessageStore, *counts: int) -> None:
        names: list[str] = []
        records: list[PendingRecord] = []
        for count in counts:
            group = [f"{self.number + each}".ljust(count * 10, ".") for each in range(count)]
            self.number += count
            names += group
            records.append(batch(group) if count > 1 else message(group[0], "batches"))
        self.appended.update(names)
        result = store.append(records)
        self.clock.now += 2000

        def flushed(error: StorageError | None) -> None:
            if error is None:
                self.acknowledged.extend(names)

        store.on_confirmed(result.end_offset, flushed)
        store.flush()
        store.dispatch()

    def run(self) -> None:
        store = self.open()
        store.set_batch_topic("batches")
        declare(self.volume)
        self.send(store, 3, 1)
        for count in (7, 2, 5):
            self.send(store, count)
        store.close()
        store = self.open()
        self.send(store, 8, 1, 6, 3)
        store.close()
        self.send(self.open(), 4)


def live_until(nth: int, torn_bytes: int) -> tuple[MemoryFileSystem, Life]:
    disk = MemoryFileSystem()
    life = Life(FaultyFileSystem(disk, Fault(nth, torn_bytes=torn_bytes)))
    with pytest.raises(SimulatedCrash):
        life.run()
    return disk, life


def script() -> list[str]:
    volume = FaultyFileSystem(MemoryFileSystem())
    Life(volume).run()
    return volume.operations


SCRIPT = script()


def assert_recovered(volume: MemoryFileSystem, life: Life, where: str) -> None:
    store = reopened(volume, life.clock, segment_size=2048, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    served = read_batches(store)
    found = bodies(served)
    assert set(life.acknowledged) <= set(found) <= life.appended, where
    assert len(found) == len(set(found)), where
    assert [each.queue_offset for each in served] == list(range(len(served))), where
    store.set_batch_topic("batches")
    put(store, batch(["after", "that"]))
    store.close()
    store = reopened(volume, life.clock, segment_size=2048, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert bodies(read_batches(store)) == [*found, "after", "that"], where


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_operation(part: int) -> None:
    assert len(SCRIPT) > 60
    for nth in range(part + 1, len(SCRIPT) + 1, 4):
        for torn_bytes in (0, 1, 46, 200) if SCRIPT[nth - 1].startswith("write") else (0,):
            disk, life = live_until(nth, torn_bytes)
            where = f"operation {nth}, {SCRIPT[nth - 1]}, {torn_bytes} bytes written"
            assert_recovered(disk.after_kill(), life, f"{where}, kill")
            assert_recovered(disk.after_power_cut(), life, f"{where}, power cut")


@pytest.mark.parametrize("nth", [n for n, line in enumerate(SCRIPT, 1) if line.startswith("sync")][::2])
def test_a_power_cut_that_lets_some_sectors_through(nth: int) -> None:
    disk, life = live_until(nth, 0)
    for seed in range(4):
        survivor = disk.after_power_cut(random.Random(nth * 100 + seed))
        store = reopened(survivor, life.clock, segment_size=2048, flush_disk_type=FlushDiskType.SYNC_FLUSH)
        assert set(life.acknowledged) <= set(bodies(read_batches(store))) <= life.appended, f"{nth}, seed {seed}"
