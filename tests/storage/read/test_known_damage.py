"""Every kind of read returns the messages before a damaged record that another copy may repair, and fails at it."""

from __future__ import annotations

import pytest

from raptormq.errors import RecordsDamaged
from raptormq.storage import MessageStore
from raptormq.storage.read import GetStatus, ReadOptions
from raptormq.storage.records import DamagedRange
from tests.storage.batch_stores import at_once, batch, open_batch_store
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import message, put

COUNT, DAMAGED = 6, 3


class EveryMessage:
    """A filter by properties that all messages match."""

    max_scanned = 1 << 20
    max_scanned_bytes = 1 << 20

    def wants(self, properties: bytes) -> bool:
        return True


OPTIONS = {
    "simple": ReadOptions(COUNT, 1 << 20),
    "filtered": ReadOptions(COUNT, 1 << 20, properties=EveryMessage()),
    "tagged": ReadOptions(COUNT, 1 << 20, tags=frozenset({0})),
    "batches": ReadOptions(COUNT, 1 << 20, whole=True),
    "messages of batches": ReadOptions(COUNT, 1 << 20),
}


def filled(volume: MemoryFileSystem, kind: str) -> tuple[MessageStore, str, list[DamagedRange]]:
    """Return a store with records of equal numbers of messages, their topic, and the places of the records."""
    store = open_batch_store(volume)
    places = []
    topic = "batches" if "batches" in kind else "topic"
    for number in range(COUNT):
        record = batch([f"{number}" * 50]) if topic == "batches" else message(f"{number}" * 50)
        begin = store.end_offset
        put(store, record)
        places.append(DamagedRange(begin, store.end_offset - begin, "the body has a wrong CRC"))
    store.flush()
    return store, topic, places


def check(store: MessageStore, topic: str, options: ReadOptions) -> None:
    """Check that reads from each offset on end before the damaged record, fail at it, and continue behind it."""
    for offset in range(DAMAGED):
        found = store.get_messages(topic, 0, offset, options)
        assert (found.status, found.next_offset) == (GetStatus.FOUND, DAMAGED)
        assert found.message_count == DAMAGED - offset
    with pytest.raises(RecordsDamaged, match="is being repaired from another copy: retry"):
        store.get_messages(topic, 0, DAMAGED, options)
    found = store.get_messages(topic, 0, DAMAGED + 1, options)
    assert (found.status, found.next_offset) == (GetStatus.FOUND, COUNT)


@pytest.mark.parametrize("kind", OPTIONS)
def test_read_ends_before_a_range_that_is_known_to_be_damaged(kind: str) -> None:
    store, topic, places = filled(MemoryFileSystem(), kind)
    store.damage.set_ranges([places[DAMAGED]])
    check(store, topic, OPTIONS[kind])
    with pytest.raises(RecordsDamaged):
        at_once(store.message_at(places[DAMAGED].offset))
    store.damage.set_ranges([])
    assert store.get_messages(topic, 0, 0, OPTIONS[kind]).next_offset == COUNT
    assert at_once(store.message_at(places[DAMAGED].offset)) is not None


@pytest.mark.parametrize("kind", OPTIONS)
def test_read_that_finds_damage_ends_before_it_if_it_may_be_repaired_and_skips_it_otherwise(kind: str) -> None:
    volume = MemoryFileSystem()
    store, _, places = filled(volume, kind)
    store.close()
    store = open_batch_store(volume)  # what the process has written itself is not checked
    topic = "batches" if "batches" in kind else "topic"
    offset, size, _ = places[DAMAGED]
    volume.open(f"/store/commitlog/{0:020d}").write_at(offset + 120, [b"?"], 1)
    reported: list[tuple[int, int]] = []

    def found(at: int, length: int) -> bool:
        reported.append((at, length))
        return True

    store.damage.found = found
    check(store, topic, OPTIONS[kind])
    assert set(reported) == {(offset, size)}
    store.damage.found = lambda *_: False
    offset = messages = 0
    while offset < COUNT:
        result = at_once(store.load_messages(topic, 0, offset, OPTIONS[kind]))
        assert result.next_offset > offset
        offset, messages = result.next_offset, messages + result.message_count
    assert messages == COUNT - 1
