"""Full, failing and read-only disks: a refused group leaves no trace, and reads continue."""

from __future__ import annotations

import errno

import pytest

from raptormq.errors import DiskFull, OutOfResources, StorageError, StoreReadOnly
from raptormq.storage import MessageStore
from raptormq.storage.fs.page_checksum import PAGE_BYTES
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    SEGMENT_BYTES,
    Clock,
    bodies,
    message,
    open_store,
    open_sync_store,
    put,
    queue_bounds,
    read_queue,
    small_config,
)

LARGE = "x" * 1500


def test_a_full_disk_refuses_and_recovers_when_there_is_room() -> None:
    clock = Clock()
    volume = MemoryFileSystem(capacity=PAGE_BYTES + 500 + 3 * SEGMENT_BYTES, clock=clock)
    store = open_store(volume, clock)
    put(store, message(LARGE))
    with pytest.raises(DiskFull, match="cannot allocate a segment of 2048 bytes in /store/commitlog: No space left"):
        store.append([message("small"), message(LARGE), message(LARGE), message(LARGE)])
    assert queue_bounds(store, "topic", 0) == (0, 1)
    assert not store.stats().writable
    assert "No space left" in store.stats().refusal
    with pytest.raises(DiskFull):
        store.check_writable()
    with pytest.raises(DiskFull):
        store.append([message(LARGE), message(LARGE), message(LARGE)])
    put(store, message("what still fits"))
    volume.capacity *= 10
    store._log.preallocate()  # like the background every second
    assert store.stats().writable
    put(store, message(LARGE), message(LARGE))
    assert [len(body) for body in bodies(read_queue(store))] == [1500, 15, 1500, 1500]
    assert [each.queue_offset for each in read_queue(store)] == [0, 1, 2, 3]


def test_a_full_disk_is_not_asked_again_for_a_second() -> None:
    clock = Clock()
    volume = FaultyFileSystem(
        MemoryFileSystem(), Fault(2, "allocate", "commitlog", errno.ENOSPC), Fault(3, "allocate", "commitlog")
    )
    store = open_store(volume, clock)
    put(store, message(LARGE))
    for _ in range(3):
        with pytest.raises(DiskFull):
            store.append([message(LARGE)])
    assert sum(line.startswith("allocate") for line in volume.operations) == 2


@pytest.mark.parametrize("torn_bytes", [0, 1, 100, 250])
def test_a_group_that_was_written_in_part_does_not_come_back(torn_bytes: int) -> None:
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk, Fault(2, "write", "commitlog", errno.ENOSPC, torn_bytes))
    store = open_store(volume)
    put(store, message("a"))
    end = store.end_offset
    with pytest.raises(DiskFull):
        store.append([message("b"), message("c"), message("d")])
    assert store.end_offset == end
    survivor = open_store(disk.after_kill())
    assert bodies(read_queue(survivor)) == ["a"]
    put(store, message("e"))
    assert [(each.queue_offset, each.body) for each in read_queue(store)] == [(0, b"a"), (1, b"e")]
    assert store.stats().writable


def test_a_failed_write_makes_the_store_read_only() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(2, "write", "commitlog", errno.EIO))
    store = open_store(volume)
    put(store, message("a"))
    with pytest.raises(StoreReadOnly, match="cannot write to /store/commitlog: Input/output error"):
        store.append([message("b")])
    with pytest.raises(StoreReadOnly):
        store.append([message("c")])
    assert bodies(read_queue(store)) == ["a"]


def test_a_write_that_cannot_be_undone_makes_the_store_read_only() -> None:
    volume = FaultyFileSystem(
        MemoryFileSystem(),
        Fault(2, "write", "commitlog", errno.ENOSPC, 150),
        Fault(3, "write", "commitlog", errno.EIO),
    )
    store = open_store(volume)
    put(store, message("a"))
    with pytest.raises(StoreReadOnly, match="cannot undo a failed write"):
        store.append([message("b"), message("c")])


def test_a_failed_flush_is_told_and_never_tried_again() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "sync", "commitlog/0", errno.EIO))
    store = open_sync_store(volume)
    answers: list[StorageError | None] = []
    result = store.append([message("a")])
    store.on_confirmed(result.end_offset, answers.append)
    for _ in range(2):
        with pytest.raises(StoreReadOnly, match="the commit log could not be flushed: Input/output error"):
            store.flush()
    assert [type(each) for each in answers] == [StoreReadOnly]
    assert store.dispatch() == []
    with pytest.raises(StoreReadOnly):
        store.append([message("b")])
    store.on_confirmed(result.end_offset, answers.append)
    assert len(answers) == 2
    with pytest.raises(StoreReadOnly):
        store.close()
    assert volume.inner.exists("/store/abort")


def test_queue_files_that_cannot_be_written_hold_the_log_back_until_they_can() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "write", "consumequeue", errno.ENOSPC))
    store = open_store(volume)
    put(store, message("a"))
    assert store._opened is not None
    maintenance = store._opened.maintenance
    with pytest.raises(DiskFull, match="cannot write to the consume queues"):
        maintenance.flush_all()
    with pytest.raises(DiskFull):
        store.append([message("b")])
    assert bodies(read_queue(store)) == ["a"]
    maintenance.flush_all()
    put(store, message("b"))
    store.close()
    assert bodies(read_queue(open_store(volume))) == ["a", "b"]


def test_a_read_only_volume_is_refused_in_one_line() -> None:
    disk = MemoryFileSystem()
    open_store(disk).close()
    for kind in ("create", "write"):
        volume = FaultyFileSystem(disk, Fault(1, kind, "", errno.EROFS, repeats=True))
        with pytest.raises(StoreReadOnly, match="cannot use the store in /store: Read-only file system"):
            open_store(volume)


def test_a_full_disk_at_the_start_is_told() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "create", "abort", errno.ENOSPC))
    with pytest.raises(DiskFull, match=r"cannot use the store in /store: No space left on device \(/store/abort\)"):
        open_store(volume)


def test_offsets_that_cannot_be_saved_are_saved_later() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "write", "consumerOffset", errno.ENOSPC))
    store = open_store(volume)
    put(store, *(message(str(number)) for number in range(7)))
    store.consumer_offsets.commit("topic", "group", 0, 7)
    assert store._opened is not None
    with pytest.raises(DiskFull, match="cannot save the consumer offsets"):
        store._opened.maintenance.flush_all()
    store.close()
    assert open_store(volume).consumer_offsets.get("topic", "group", 0) == 7


def test_a_close_that_fails_leaves_the_crash_marker() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "write", "consumequeue", errno.EIO))
    store = open_store(volume)
    put(store, message("a"))
    with pytest.raises(StoreReadOnly):
        store.close()
    again = MessageStore(small_config(), fs=volume)
    assert not again.open().clean
    assert bodies(read_queue(again)) == ["a"]


def test_a_checkpoint_that_fails_forgets_no_file() -> None:
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk, Fault(1, "sync", "consumequeue", errno.ENOSPC))
    store = open_store(volume)
    put(store, message("a"))
    assert store._opened is not None
    with pytest.raises(DiskFull, match="cannot write the checkpoint"):
        store._opened.maintenance.flush_all()
    store._opened.maintenance.flush_all()
    assert disk.after_power_cut().names("/store/consumequeue/topic/0") == ["0" * 20]


def test_many_files_become_durable_with_the_whole_volume() -> None:
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk)
    store = open_store(volume, segment_size=1 << 16)
    put(store, *(message("a", queue_id=number) for number in range(100)))
    assert store._opened is not None
    store._opened.maintenance.flush_all()
    assert volume.operations.count("sync_volume /store") == 1
    assert not any(line.startswith("sync /store/consumequeue") for line in volume.operations)
    assert len(disk.after_power_cut().names("/store/consumequeue/topic")) == 100


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("kind", ["sync", "sync_directory"])
def test_a_flush_that_cannot_open_a_file_is_made_later(kind: str, error: int) -> None:
    disk = MemoryFileSystem()
    volume = FaultyFileSystem(disk)
    store = open_sync_store(volume)
    fault = Fault(kind=kind, path="commitlog", error=error, repeats=True)
    volume.faults.append(fault)
    answers: list[StorageError | None] = []
    result = store.append([message("a")])
    store.on_confirmed(result.end_offset, answers.append)
    for _ in range(2):
        with pytest.raises(OutOfResources, match="the commit log cannot be flushed: Too many open files"):
            store.flush()
    with pytest.raises(OutOfResources):
        store.append([message("b")])
    assert (answers, store.dispatch()) == ([], [])
    volume.faults.clear()
    store.flush()
    assert answers == [None]
    put(store, message("b"))
    assert bodies(read_queue(open_sync_store(disk.after_power_cut()))) == ["a", "b"]


def test_memory_that_is_short_for_one_write_is_not_for_the_next() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(2, "write", "commitlog", errno.ENOMEM, 100))
    store = open_store(volume)
    put(store, message("a"))
    with pytest.raises(OutOfResources, match="cannot write to /store/commitlog: Cannot allocate memory"):
        store.append([message("b")])
    put(store, message("c"))
    assert bodies(read_queue(store)) == ["a", "c"]
    assert store.stats().writable


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ENOMEM])
def test_a_write_that_cannot_be_undone_for_now_is_undone_before_the_next(error: int) -> None:
    disk = MemoryFileSystem()
    faults = Fault(2, "write", "commitlog", error, 1_000), Fault(3, "write", "commitlog", error)
    store = open_store(FaultyFileSystem(disk, *faults))
    put(store, message("a"))
    with pytest.raises(OutOfResources, match="cannot undo a failed write"):
        store.append([message("b"), message("c")])
    put(store, message("d"))
    assert store.stats().writable
    assert bodies(read_queue(open_store(disk.after_kill()))) == ["a", "d"]
