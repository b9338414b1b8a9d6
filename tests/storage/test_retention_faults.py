"""A failed deletion of segments, or two concurrent ones, leave no gap in the log."""

from __future__ import annotations

import errno
import threading
import time

import pytest

from raptormq.errors import DiskFull, StorageError
from raptormq.storage import MessageStore
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem, SimulatedCrash
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import (
    SEGMENT_BYTES,
    Clock,
    bodies,
    checkpoint,
    message,
    open_store,
    put,
    queue_bounds,
    read_queue,
    run_retention,
)

SEGMENTS = 8
HOUR = 12


def noon() -> int:
    """Return a time (ms) at which segments are deleted."""
    day = time.localtime(1_700_000_000)
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday, HOUR, 30, 0, 0, 0, -1))) * 1000


class DeletedTwice(MemoryFileSystem):
    """A volume whose deletions wait until the others have started, too."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.at_the_same_time = 0
        self.most_at_the_same_time = 0
        self.one_runs = threading.Event()
        self.go_on = threading.Event()

    def remove(self, path: str) -> None:
        if "commitlog" in path:
            self.at_the_same_time += 1
            self.most_at_the_same_time = max(self.most_at_the_same_time, self.at_the_same_time)
            self.one_runs.set()
            self.go_on.wait(30)
        super().remove(path)
        if "commitlog" in path:
            self.at_the_same_time -= 1


def filled(volume: FaultyFileSystem | MemoryFileSystem, clock: Clock) -> MessageStore:
    """Return segments of one message each. All except the last may be deleted."""
    store = open_store(volume, clock, file_reserved_hours=0, delete_when=str(HOUR))
    put(store, *(message(f"{number}".ljust(1500, ".")) for number in range(SEGMENTS)))
    checkpoint(store)
    return store


def numbers(volume: MemoryFileSystem) -> list[int]:
    return [int(name) // SEGMENT_BYTES for name in volume.names("/store/commitlog")]


@pytest.mark.parametrize("kind", ["remove", "sync_directory"])
@pytest.mark.parametrize("nth", range(1, SEGMENTS))
def test_what_cannot_be_deleted_is_tried_again_and_nothing_behind_it_goes_first(kind: str, nth: int) -> None:
    clock = Clock(noon())
    volume = MemoryFileSystem(clock=clock)
    fault = Fault(10**9, kind=kind, path="commitlog", error=errno.EIO)
    store = filled(FaultyFileSystem(volume, fault), clock)
    fault.nth = nth
    with pytest.raises(StorageError, match=r"cannot delete /store/commitlog/\d{20}: Input/output error"):
        run_retention(store, noon())
    left = numbers(volume)
    assert left == list(range(left[0], SEGMENTS)), "a gap in the log"
    reopened = open_store(volume.after_kill(), clock)
    assert bodies(read_queue(reopened))[-1][0] == str(SEGMENTS - 1)
    reopened.close()


def test_the_next_run_deletes_what_the_last_one_could_not() -> None:
    clock = Clock(noon())
    volume = MemoryFileSystem(clock=clock)
    fault = Fault(10**9, kind="remove", path="commitlog", error=errno.EIO)
    store = filled(FaultyFileSystem(volume, fault), clock)
    fault.nth = 3
    with pytest.raises(StorageError):
        run_retention(store, noon())
    run_retention(store, noon())
    assert numbers(volume) == [SEGMENTS - 1]
    assert queue_bounds(store, "topic", 0) == (SEGMENTS - 1, SEGMENTS)


def test_no_more_is_taken_out_of_the_log_while_a_file_cannot_be_deleted() -> None:
    clock = Clock(noon())
    volume = MemoryFileSystem(clock=clock)
    fault = Fault(10**9, kind="remove", path="commitlog", error=errno.EPERM, repeats=True)
    store = filled(FaultyFileSystem(volume, fault), clock)
    store.config.delete_batch_max = 2
    volume.capacity = int(volume.used() / 0.95)
    fault.nth = 1
    for _ in range(SEGMENTS):
        with pytest.raises(StorageError):
            run_retention(store, noon())
    assert store._log.min_offset == 2 * SEGMENT_BYTES
    with pytest.raises(DiskFull):
        store.append([message("refused, since nothing is gained")])
    fault.nth = 10**9
    for _ in range(SEGMENTS):
        run_retention(store, noon())
    assert numbers(volume) == [SEGMENTS - 1]
    put(store, message("there is room again"))


def test_a_crash_at_any_deletion_leaves_no_hole() -> None:
    for nth in range(1, 2 * SEGMENTS - 1):
        clock = Clock(noon())
        volume = MemoryFileSystem(clock=clock)
        fault = Fault(10**9, path="commitlog")
        store = filled(FaultyFileSystem(volume, fault), clock)
        fault.nth = nth
        with pytest.raises(SimulatedCrash):
            run_retention(store, noon())
        left = numbers(volume.after_power_cut())
        assert left == list(range(left[0], SEGMENTS))


def test_two_deletions_wait_for_each_other() -> None:
    clock = Clock(noon())
    volume = DeletedTwice(clock)
    store = filled(volume, clock)
    store.config.delete_batch_max = 3
    first, second = store._retention.run(noon()), store._retention.run(noon())
    assert first is not None
    assert second is not None
    threads = [threading.Thread(target=each) for each in (first, second)]
    threads[0].start()
    assert volume.one_runs.wait(30)
    threads[1].start()
    volume.go_on.set()
    for thread in threads:
        thread.join(30)
    assert volume.most_at_the_same_time == 1
    assert numbers(volume) == [6, 7]


def test_a_file_that_somebody_has_deleted_is_no_obstacle() -> None:
    clock = Clock(noon())
    volume = MemoryFileSystem(clock=clock)
    store = filled(volume, clock)
    volume.remove(f"/store/commitlog/{2 * SEGMENT_BYTES:020}")
    run_retention(store, noon())
    assert numbers(volume) == [SEGMENTS - 1]
