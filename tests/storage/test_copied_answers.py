"""Reads that copy messages to memory, their sizes, and readers that forbid copies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raptormq.storage import GetResult, GetStatus, MessageStore
from raptormq.storage.read.options import ReadOptions
from tests.storage.batch_stores import at_once, batch, open_batch_store
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import message, put

COUNT = 10


class Everything:
    """A filter that matches every message."""

    max_scanned = 100
    max_scanned_bytes = 1 << 20

    def wants(self, properties: bytes) -> bool:
        return True


WISHES = ReadOptions(100, 1 << 20, whole=True)
Read = Callable[[MessageStore, ReadOptions], GetResult]


def simple(store: MessageStore, options: ReadOptions) -> GetResult:
    return store.get_messages("topic", 0, 0, options)


def filtered(store: MessageStore, options: ReadOptions) -> GetResult:
    return store.get_messages("topic", 0, 0, options._replace(properties=Everything()))


def batches(store: MessageStore, options: ReadOptions) -> GetResult:
    return store.get_messages("batches", 0, 0, options)


def apart(store: MessageStore, options: ReadOptions) -> GetResult:
    return store.get_messages("batches", 0, 0, options._replace(whole=False))


def filled(volume: MemoryFileSystem) -> MessageStore:
    store = open_batch_store(volume)
    put(store, *(message(str(number)) for number in range(COUNT)))
    put(store, *(batch([f"{number}a", f"{number}b"]) for number in range(COUNT)))
    return store


def reopened() -> tuple[MemoryFileSystem, MessageStore]:
    volume = MemoryFileSystem()
    filled(volume).close()
    return volume, open_batch_store(volume)


@pytest.mark.parametrize("read", [simple, filtered, batches])
def test_what_this_process_has_written_is_not_copied(read: Read) -> None:
    store = filled(MemoryFileSystem())
    for options in (WISHES, WISHES._replace(copies=False)):
        found = read(store, options)
        assert (found.status, found.non_resident, found.copied_bytes) == (GetStatus.FOUND, False, 0)
        assert found.total_bytes > 0
    store.close()


@pytest.mark.parametrize(("read", "is_known"), [(simple, True), (filtered, False), (batches, True), (apart, False)])
def test_what_was_there_before_is_copied_unless_copies_are_not_wanted(read: Read, *, is_known: bool) -> None:
    _, store = reopened()
    found = read(store, WISHES)
    assert (found.status, found.non_resident) == (GetStatus.FOUND, False)
    assert found.copied_bytes == found.total_bytes == sum(map(len, found.buffers)) > 0
    refused = read(store, WISHES._replace(copies=False))
    assert (refused.non_resident, refused.buffers, refused.next_offset) == (True, [], 0)
    assert refused.total_bytes == (found.total_bytes if is_known else 0)
    store.close()


def test_a_batch_is_taken_apart_into_copies_wherever_it_is() -> None:
    store = filled(MemoryFileSystem())
    found = apart(store, WISHES)
    assert found.copied_bytes == found.total_bytes > 0
    assert apart(store, WISHES._replace(copies=False)).non_resident
    store.close()


def test_messages_that_are_no_batches_are_not_copied_for_who_takes_batches_apart() -> None:
    store = open_batch_store()
    put(store, message("single", topic="batches"))
    found = apart(store, WISHES._replace(copies=False))
    assert (found.non_resident, found.message_count, found.copied_bytes) == (False, 1, 0)
    store.close()


def test_nothing_to_hand_out_needs_no_copy() -> None:
    _, store = reopened()
    options = WISHES._replace(copies=False)
    for topic, offset, status in (
        ("topic", COUNT, GetStatus.OFFSET_OVERFLOW_ONE),
        ("nobody's", 0, GetStatus.NO_MATCHED_LOGIC_QUEUE),
    ):
        found = store.get_messages(topic, 0, offset, options)
        assert (found.status, found.non_resident) == (status, False)
    assert simple(store, options._replace(tags=frozenset({7}))).status is GetStatus.NO_MATCHED_MESSAGE
    store.close()


@pytest.mark.parametrize("read", [simple, batches])
def test_what_the_disk_has_to_bring_has_a_known_size(read: Read) -> None:
    volume, store = reopened()
    expected = read(store, WISHES).total_bytes
    volume.non_resident = "/commitlog/"
    found = read(store, WISHES)
    assert (found.non_resident, found.total_bytes) == (True, expected)
    topic = "topic" if read is simple else "batches"
    copied = at_once(store.load_messages(topic, 0, 0, WISHES))
    assert copied.copied_bytes == expected
    store.close()


def test_the_end_of_what_is_copied_is_within_one_answer() -> None:
    """New messages follow old ones, so they count as copied, too."""
    _, store = reopened()
    old = simple(store, WISHES).total_bytes
    put(store, message("new"))
    found = simple(store, WISHES)
    assert found.copied_bytes == found.total_bytes > old
    assert not store.get_messages("topic", 0, COUNT, WISHES._replace(copies=False)).non_resident
    store.close()
