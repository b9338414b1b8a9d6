"""The dispatch lag of queues and index, during appends and during recovery."""

from __future__ import annotations

import pytest

from raptormq.storage import MessageStore
from raptormq.storage.log.commit_log import CommitLog
from raptormq.storage.log.write_gate import WriteGate
from raptormq.storage.queue.append_batches import AppendedLists, AppendResult
from raptormq.storage.records import scanner as concurrent_scanner
from raptormq.storage.records.dispatcher import Dispatcher, DispatchLag
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import ROOT, SEGMENT_BYTES, Clock, message, open_store, open_sync_store, put, small_config

_PAGE = 4096


class Watcher:
    """A builder that records the store's dispatch lag before it processes each batch."""

    def __init__(self) -> None:
        self.store: MessageStore
        self.seen: list[DispatchLag] = []

    def build(self, batch: AppendResult) -> None:
        self.seen.append(self.store.lag())
        assert batch.sizes

    def build_lists(self, batch: AppendedLists) -> None:
        raise AssertionError(batch)


def test_the_lag_is_what_was_appended_and_the_age_of_the_oldest() -> None:
    clock = Clock()
    store = open_store(clock=clock)
    assert store.lag() == DispatchLag(0, 0)
    store.append([message("first")])
    clock.now += 70
    store.append([message("second"), message("third")])
    clock.now += 30
    assert store.lag() == DispatchLag(store.end_offset, 100)
    store.dispatch()
    assert store.lag() == DispatchLag(0, 0)
    clock.now += 1000
    assert store.lag() == DispatchLag(0, 0), "there is no lag while the log does not grow"


def test_what_no_disk_has_yet_is_behind_too() -> None:
    clock = Clock()
    store = open_sync_store(clock=clock)
    put(store, message("durable"))
    end = store.end_offset
    store.append([message("not yet")])
    store.dispatch()
    clock.now += 5
    assert store.lag() == DispatchLag(store.end_offset - end, 5)
    store.flush()
    store.dispatch()
    assert store.lag() == DispatchLag(0, 0)


def test_a_clock_that_goes_back_makes_no_negative_age() -> None:
    dispatcher = Dispatcher([])
    batch = AppendResult([message("x")], 0, [1_000])
    batch.end_offset = 10
    dispatcher.submit(batch)
    assert dispatcher.lag(10, 999) == DispatchLag(10, 0)
    assert dispatcher.lag(10, 1_001) == DispatchLag(10, 1)


@pytest.mark.parametrize("concurrent", [False, True])
def test_a_recovery_tells_how_much_it_has_still_to_build(concurrent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_scanner, "MIN_CONCURRENT_BYTES", 0)
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock)
    for number in range(3000):
        put(store, message(f"{number:050}"))
    end = store.end_offset
    survivor = volume.after_kill()
    survivor.remove("/store/checkpoint")
    clock.now += 60_000

    watcher = Watcher()
    store = MessageStore(small_config(concurrent_build=concurrent), fs=survivor, clock=clock)
    store._dispatcher.attach(watcher)
    watcher.store = store
    store.open()

    behind = [lag.bytes for lag in watcher.seen]
    assert len(behind) > 1
    assert behind == sorted(behind, reverse=True)
    assert end <= behind[0] <= end + SEGMENT_BYTES + _PAGE
    assert [lag.milliseconds for lag in watcher.seen] == [0] + [60_000] * (len(behind) - 1)
    assert store.lag() == DispatchLag(0, 0)


@pytest.mark.parametrize("filled", [1, 5_000, 30_000])
def test_the_estimated_end_is_at_most_a_page_behind_the_last_byte(filled: int) -> None:
    volume, clock = MemoryFileSystem(), Clock()
    folder = str(ROOT / "commitlog")
    volume.make_folders(folder)
    log = CommitLog(volume, folder, 1 << 16, 1 << 20, WriteGate(), clock)
    log.load()
    assert log.estimated_end() == 0
    for base in (0, 1 << 16, 1 << 17):
        file = volume.open(f"{folder}/{base:020}", create=True)
        file.allocate(1 << 16)
        if base <= 1 << 16:
            file.write_at(0, [b"x" * filled], filled)
    log.load()
    end = (1 << 16) + filled
    assert end <= log.estimated_end() <= end + _PAGE
