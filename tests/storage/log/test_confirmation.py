"""The confirmed offset: each callback is called once, on a flush that covers it or on an error."""

from __future__ import annotations

import errno

import pytest

from raptormq.errors import OutOfResources, StorageError, StoreReadOnly
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import message, open_store, open_sync_store


def test_under_async_flush_an_append_is_confirmed_at_once() -> None:
    store = open_store()
    answers: list[StorageError | None] = []
    end = store.append([message("a")]).end_offset
    store.on_confirmed(end, answers.append)
    assert answers == [None]
    assert store.confirmed_offset == end > store.flushed_offset


def test_under_sync_flush_only_a_flush_confirms() -> None:
    store = open_sync_store()
    answers: list[StorageError | None] = []
    end = store.append([message("a")]).end_offset
    store.on_confirmed(end, answers.append)
    assert answers == []
    assert store.confirmed_offset < end
    store.flush()
    assert answers == [None]
    assert store.confirmed_offset == end


def test_a_lower_offset_that_is_waited_for_later_is_confirmed_first() -> None:
    store = open_sync_store()
    called: list[str] = []
    ends = [store.append([message(body)]).end_offset for body in "abc"]
    for place, name in ((2, "third"), (0, "first"), (2, "third too"), (1, "second")):
        store.on_confirmed(ends[place], lambda _, name=name: called.append(name))  # type: ignore[misc]
    store._confirmation._waiters.complete(ends[0])
    assert called == ["first"]
    store.flush()
    assert called == ["first", "second", "third", "third too"]


def test_a_failed_flush_is_the_answer_for_good() -> None:
    volume = FaultyFileSystem(MemoryFileSystem(), Fault(1, "sync", "commitlog/0", errno.EIO))
    store = open_sync_store(volume)
    answers: list[StorageError | None] = []
    end = store.append([message("a")]).end_offset
    store.on_confirmed(end, answers.append)
    with pytest.raises(StoreReadOnly):
        store.flush()
    store.on_confirmed(end, answers.append)
    assert [type(each) for each in answers] == [StoreReadOnly] * 2


def test_nobody_waits_for_a_store_that_was_closed_without_a_flush() -> None:
    volume = FaultyFileSystem(MemoryFileSystem())
    store = open_sync_store(volume)
    end = store.append([message("a")]).end_offset
    answers: list[StorageError | None] = []
    store.on_confirmed(end, answers.append)
    volume.faults.append(Fault(kind="sync", path="commitlog", error=errno.EMFILE, repeats=True))
    with pytest.raises(OutOfResources):
        store.close()
    store.on_confirmed(end, answers.append)
    assert [str(each) for each in answers] == ["the store is closed"] * 2
