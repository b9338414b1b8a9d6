"""Starts on a full volume: writes wait, consumers are served, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterator

import pytest

from raptormq.errors import DiskFull, StorageError, StoreReadOnly
from raptormq.storage import MessageStore, PendingRecord
from raptormq.storage.recovery import recovery
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    SEGMENT_BYTES,
    Clock,
    bodies,
    checkpoint,
    message,
    open_store,
    put,
    read_queue,
    run_retention,
    until,
)

NO_ROOM = errno.ENOSPC
GROWS = ("allocate", "write", "create", "replace", "make_folders")
"""Operations that a full volume may refuse."""
Contents = dict[int, list[tuple[int, str]]]
SMALL_INDEX = {"index_slots": 50, "index_entries": 1_000}


def full(disk: MemoryFileSystem, *kinds: str, path: str = "") -> FaultyFileSystem:
    """Make the volume refuse operations of these kinds."""
    return FaultyFileSystem(disk, *(Fault(1, kind, path, NO_ROOM, repeats=True) for kind in kinds or GROWS))


def contents(store: MessageStore) -> Contents:
    """Return offsets and bodies of all queues."""
    return {
        queue_id: [(each.queue_offset, each.body.decode()) for each in read_queue(store, queue_id=queue_id)]
        for queue_id in store.queue_ids("topic")
    }


def send(store: MessageStore, clock: Clock, numbers: range) -> None:
    for number in numbers:
        body = f"{number:03d}".ljust(300, ".").encode()
        put(store, PendingRecord("topic", number % 3, body, b"KEYS\x01k%d\x02" % number))
        clock.now += 1_000


def lived(clock: Clock, *, clean: bool = False) -> tuple[MemoryFileSystem, Contents]:
    """Return a store of 14 segments, the oldest of which is before the checkpoint. A queue was created after it."""
    disk = MemoryFileSystem(clock=clock)
    store = open_store(disk, clock, **SMALL_INDEX)
    send(store, clock, range(40))
    store.consumer_offsets.commit("topic", "group", 0, 3)
    checkpoint(store)
    send(store, clock, range(40, 60))
    put(store, message("new", queue_id=7))
    store.consumer_offsets.commit("topic", "group", 0, 9)
    found = contents(store)
    if clean:
        store.close()
        return disk, found
    store.flush()
    return disk.after_kill(), found


def open_again(volume: MemoryFileSystem | FaultyFileSystem, clock: Clock) -> MessageStore:
    return open_store(volume, clock, **SMALL_INDEX)


def room_is_found(store: MessageStore, clock: Clock) -> None:
    """Run the maintenance of every few seconds, and advance the clock by a second."""
    checkpoint(store)
    store._log.preallocate()
    clock.now += 1_000


def test_consumers_are_served_and_messages_refused_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    disk, before = lived(clock)
    volume = full(disk)
    store = open_again(volume, clock)
    assert "no messages are accepted while the disk is full: cannot write to the consume queues" in caplog.text
    assert contents(store) == before
    assert store.consumer_offsets.get("topic", "group", 0) == 3
    for _ in range(2):
        with pytest.raises(DiskFull, match="cannot write to the consume queues in /store/consumequeue: No space left"):
            store.append([message("refused")])
        with pytest.raises(DiskFull):
            checkpoint(store)
    assert disk.exists("/store/abort")
    volume.faults.clear()
    room_is_found(store, clock)
    assert store.stats().writable
    send(store, clock, range(60, 66))
    after = contents(store)
    assert sum(map(len, after.values())) == 61 + 6
    assert all(after[queue_id][: len(rows)] == rows for queue_id, rows in before.items())
    assert contents(open_again(disk.after_kill(), clock)) == after
    store.close()
    assert contents(open_again(disk, clock)) == after


def faults() -> Iterator[tuple[int, bool]]:
    for nth in range(1, 80):
        yield nth, False
        yield nth, True


@pytest.mark.parametrize("clean", [False, True], ids=["crashed", "clean"])
def test_no_start_loses_anything_wherever_the_room_ends(clean: bool) -> None:
    clock = Clock()
    made, before = lived(clock, clean=clean)
    served, refused = set(), 0
    for nth, repeats in faults():
        disk = made.after_kill()
        volume = FaultyFileSystem(disk, Fault(nth, "", "", NO_ROOM, repeats=repeats))
        try:
            store = open_again(volume, clock)
        except DiskFull:
            refused += 1
        else:
            if len(volume.operations) >= nth:
                served.add(volume.operations[nth - 1].split()[0])
            assert contents(store) == before
        for left in (disk.after_kill(), disk.after_power_cut(random.Random(nth))):
            again = open_again(left, clock)
            assert contents(again) == before
            send(again, clock, range(3))
            after = contents(again)
            assert all(after[queue_id][: len(rows)] == rows for queue_id, rows in before.items())
            again.close()
            assert contents(open_again(left, clock)) == after
    assert served >= ({"write"} if clean else {"write", "create", "replace", "allocate"})
    assert refused


def test_a_crash_on_the_full_volume_changes_nothing() -> None:
    clock = Clock()
    disk, before = lived(clock)
    for _ in range(3):
        store = open_again(full(disk), clock)
        assert contents(store) == before
        store._retention.run(clock())
        disk = disk.after_kill()
    store = open_again(disk, clock)
    assert contents(store) == before
    send(store, clock, range(3))


def test_a_full_volume_after_a_clean_stop() -> None:
    clock = Clock()
    disk, before = lived(clock, clean=True)
    store = open_again(full(disk, "write", "allocate"), clock)
    assert contents(store) == before
    assert disk.exists("/store/abort")
    assert contents(open_again(disk.after_kill(), clock)) == before


def test_there_is_no_start_without_the_crash_marker_for_which_retention_may_make_room() -> None:
    clock = Clock()
    disk, before = lived(clock, clean=True)
    with pytest.raises(DiskFull, match=r"No space left on device \(/store/abort\)"):
        open_again(full(disk, "create"), clock)
    assert not disk.exists("/store/abort")
    assert len(disk.names("/store/commitlog")) > 11
    disk.capacity = disk.used()
    volume = FaultyFileSystem(disk, Fault(1, "create", "abort", NO_ROOM))
    store = open_again(volume, clock)
    assert disk.names("/store/commitlog")[0] == f"{10 * SEGMENT_BYTES:020d}"  # a run takes at most 10
    assert disk.exists("/store/abort")
    after = contents(store)
    assert all(before[queue_id][-len(rows) :] == rows for queue_id, rows in after.items() if rows)


def test_retention_makes_room_after_a_start_that_found_none() -> None:
    clock = Clock()
    disk, before = lived(clock)
    disk.capacity = disk.used()
    store = open_again(full(disk), clock)
    count = len(disk.names("/store/commitlog"))
    run_retention(store, clock())
    left = disk.names("/store/commitlog")
    assert 1 < len(left) <= count - 5
    after = contents(store)
    again = open_again(full(disk.after_kill()), clock)
    for each in (after, contents(again)):
        assert all(before[queue_id][-len(rows) :] == rows for queue_id, rows in each.items())
    assert contents(again) == after
    # Messages after the checkpoint are kept, because their offsets are stored nowhere else.
    start = store._retention.checkpointed_offset // SEGMENT_BYTES * SEGMENT_BYTES
    for _ in range(3):
        run_retention(store, clock())
    assert disk.names("/store/commitlog")[0] == f"{start:020d}"


def test_retention_makes_room_for_the_index() -> None:
    clock = Clock()
    disk, before = lived(clock)
    store = open_again(full(disk, "write", path="/index/"), clock)
    with pytest.raises(DiskFull, match="cannot write to the index"):
        store.append([message("refused")])
    assert store._retention.checkpointed_offset == store.end_offset
    assert contents(open_again(disk.after_power_cut(), clock)) == before


async def test_the_same_while_the_store_is_open() -> None:
    clock = Clock()
    disk = MemoryFileSystem(clock=clock)
    volume = FaultyFileSystem(disk)
    store = open_store(volume, clock, checkpoint_interval_ms=1, **SMALL_INDEX)
    store.set_loop(asyncio.get_running_loop())
    volume.faults += full(disk, "write", path="queueEnds").faults
    send(store, clock, range(20))
    end = store.end_offset
    await until(
        lambda: not store.stats().writable and store._retention.checkpointed_offset == end == store.flushed_offset
    )
    assert sum(map(len, contents(open_again(disk.after_power_cut(), clock)).values())) == 20
    volume.faults.clear()
    await until(lambda: store.stats().writable)
    store.close()


def test_messages_wait_for_the_rest_of_a_segment() -> None:
    clock = Clock()
    disk, before = lived(clock)
    volume = full(disk, "allocate")
    store = open_again(volume, clock)
    assert contents(store) == before
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"cannot allocate /store/commitlog/\d+: No space left on device"):
            store.append([message("refused")])
    store._log.preallocate()
    assert (
        sum(line.startswith("allocate") for line in volume.operations) == 3
    )  # the open, the append, the preallocated segment
    store.close()
    volume = full(disk, "allocate")
    store = open_again(volume, clock)
    assert not store.stats().writable
    volume.faults.clear()
    store._log.preallocate()
    assert store.stats().writable
    send(store, clock, range(9))
    after = contents(store)
    assert contents(open_again(disk.after_kill(), clock)) == after


def test_the_queues_come_before_the_rest_of_the_segment() -> None:
    clock = Clock()
    disk, before = lived(clock)
    volume = full(disk, "write", path="/consumequeue/")
    store = open_again(volume, clock)
    store._log.preallocate()
    assert not any(line.startswith("allocate") for line in volume.operations)
    volume.faults.clear()
    checkpoint(store)
    send(store, clock, range(2))
    assert sum(map(len, contents(store).values())) == sum(map(len, before.values())) + 2


async def test_dead_records_are_known_before_a_message_takes_their_place() -> None:
    clock = Clock()
    disk = MemoryFileSystem(clock=clock)
    store = open_store(disk, clock, **SMALL_INDEX)
    send(store, clock, range(2))
    store.flush()
    checkpoint(store)
    send(store, clock, range(2, 4))  # lost by a power failure
    assert store._opened is not None
    store.delete_topic("topic")
    store._parts.deletions.save_now()
    disk = disk.after_power_cut()
    volume = full(disk, "write", path="deletedTopics")
    store = open_store(volume, clock, offsets_interval_ms=1, **SMALL_INDEX)
    with pytest.raises(DiskFull, match=r"cannot save /store/config/deletedTopics\.json: No space left on device"):
        store.append([message("refused")])
    store.set_loop(asyncio.get_running_loop())
    await until(lambda: volume.operations.count("write /store/config/deletedTopics.json.new") > 2)
    assert not store.stats().writable
    volume.faults.clear()
    await until(lambda: store.stats().writable)
    put(store, message("alive"))
    assert bodies(read_queue(open_again(disk.after_kill(), clock))) == ["alive"]
    store.close()


def test_a_queue_without_room_for_its_first_file_is_not_one_that_lost_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    disk, before = lived(clock)
    open_again(full(disk, "create"), clock)
    caplog.clear()
    assert contents(open_again(disk.after_kill(), clock)) == before
    assert "rebuilding all queues" not in caplog.text


def test_queues_that_begin_in_the_middle_wait_for_room_as_well() -> None:
    """An example is a topic whose deletion was refused: its folder is deleted, and the log now begins later."""
    clock = Clock()
    disk, _ = lived(clock)
    store = open_again(disk, clock)
    capacity, disk.capacity = disk.capacity, disk.used()
    run_retention(store, clock())
    disk.capacity = capacity
    left = contents(store)
    assert all(rows[0][0] > 0 for queue_id, rows in left.items() if queue_id != 7)
    store.close()
    disk.remove_tree("/store/consumequeue/topic")
    volume = full(disk, path="/consumequeue/topic")
    store = open_again(volume, clock)
    assert contents(store) == left
    assert contents(open_again(full(disk.after_kill(), path="/consumequeue/topic"), clock)) == left
    volume.faults.clear()
    room_is_found(store, clock)
    assert contents(store) == left
    assert contents(open_again(disk.after_kill(), clock)) == left
    disk = disk.after_kill()
    disk.remove_tree("/store/consumequeue/topic")
    with pytest.raises(StorageError, match="Input/output error"):
        open_again(FaultyFileSystem(disk, Fault(1, "write", "/consumequeue/topic", errno.EIO)), clock)


@pytest.mark.parametrize(("most", "starts"), [(61, True), (60, False)])
def test_so_many_messages_may_wait_for_room(monkeypatch: pytest.MonkeyPatch, most: int, starts: bool) -> None:
    clock = Clock()
    disk, before = lived(clock)
    disk.remove_tree("/store/consumequeue")
    monkeypatch.setattr(recovery, "_FLUSH_EVERY_BATCHES", 1)
    monkeypatch.setattr(recovery, "_MAX_UNWRITTEN_RECORDS", most)
    volume = full(disk, "write", path="/consumequeue/")
    if starts:
        assert contents(open_again(volume, clock)) == before
    else:
        with pytest.raises(DiskFull, match="in /store/consumequeue: No space left on device; 61 messages are waiting"):
            open_again(volume, clock)
    assert contents(open_again(disk.after_kill(), clock)) == before


def test_a_disk_that_fails_is_no_full_one() -> None:
    clock = Clock()
    disk, before = lived(clock)
    offsets = disk.after_kill()
    with pytest.raises(StoreReadOnly, match=r"cannot write to the consume queues .*: Input/output error"):
        open_again(FaultyFileSystem(disk, Fault(1, "write", "/consumequeue/", errno.EIO)), clock)
    volume = FaultyFileSystem(
        offsets, Fault(1, "write", "/consumequeue/", NO_ROOM), Fault(1, "allocate", "/commitlog/", errno.EIO)
    )
    assert contents(open_again(volume, clock)) == before


def test_a_start_without_room_is_known_as_one_after_a_power_cut() -> None:
    """The marker is durable itself, because on a full volume no checkpoint syncs it."""
    clock = Clock()
    disk, before = lived(clock, clean=True)
    store = open_again(full(disk, "write", path="/store/queueEnds"), clock)
    assert not store.stats().writable
    again = MessageStore(store.config, fs=disk.after_power_cut(), clock=clock)
    assert not again.open().clean
    assert contents(again) == before


def test_what_a_start_without_room_has_cut_does_not_come_back_with_a_power_cut() -> None:
    clock = Clock()
    disk = MemoryFileSystem(clock=clock)
    store = open_store(disk, clock)
    put(store, message("kept"))
    store.flush()
    end = store.end_offset
    log = disk.open("/store/commitlog/00000000000000000000")
    log.write_at(end + 100, [b"torn"], 4)  # left of a record by a power failure, without its head
    log.sync()
    disk = disk.after_kill()
    store = open_store(full(disk, "allocate", path="/commitlog/"), clock)
    assert not store.stats().writable
    store.close()
    disk = disk.after_power_cut()
    assert disk.open("/store/commitlog/00000000000000000000").size() == end
    store = open_store(disk, clock)
    put(store, message("next"))
    assert bodies(read_queue(store)) == ["kept", "next"]
    assert not any(disk.open("/store/commitlog/00000000000000000000").read_at(store.end_offset, SEGMENT_BYTES))
