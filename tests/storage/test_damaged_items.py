"""A damaged item of a consume queue hides only its own messages."""

from __future__ import annotations

import pytest

from raptormq.protocol.record import iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import GetStatus, MessageStore
from raptormq.storage.read.options import Boundary, ReadOptions
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import Clock, message, offset_by_time, open_store, put, read_queue

FILE = "/store/consumequeue/topic/0/00000000000000000000"
ITEM_BYTES = 20
COUNT = 12
DAMAGES = {
    "zeros": bytes(ITEM_BYTES),
    "ones": b"\xff" * ITEM_BYTES,
    "far away": b"\x7f" * ITEM_BYTES,
    "far away, sound size": b"\x7f" * 8 + (100).to_bytes(4, "big") + bytes(8),
    "too long": bytes(8) + b"\x7f\0\0\0" + bytes(8),
    "before itself": bytes(8) + b"\xff\0\0\0" + bytes(8),
}


class Everything:
    """A filter by properties that matches all messages."""

    max_scanned = 100
    max_scanned_bytes = 1_000_000

    def wants(self, properties: bytes) -> bool:
        return properties is not None


def damaged_store(item: int, damage: bytes) -> MessageStore:
    """Store twelve messages, one per second, with durable items. One item is damaged."""
    volume, clock = MemoryFileSystem(), Clock()
    store = open_store(volume, clock, segment_size=1 << 16, queue_file_size=20 * 20)
    for number in range(COUNT):
        put(store, message(f"{number}", tag="A"))
        put(store, message("neighbour", "other"))
        clock.now += 1000
    store.flush()
    store._queues.flush(100)
    volume.open(FILE).write_at(item * ITEM_BYTES, [damage], ITEM_BYTES)
    return store


def read(store: MessageStore, count: int, **filters: object) -> list[str]:
    offset, bodies = 0, []
    while offset < COUNT:
        result = store.get_messages("topic", 0, offset, ReadOptions(count, 1 << 20, **filters))  # type: ignore[arg-type]
        bodies += [each.body.decode() for each in iter_records(b"".join(result.buffers))]
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_MESSAGE)
        assert result.next_offset > offset, result
        offset = result.next_offset
    return bodies


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("item", [0, 5, 11])
def test_all_others_are_served(item: int, damage: bytes) -> None:
    store = damaged_store(item, damage)
    others = [str(number) for number in range(COUNT) if number != item]
    assert read(store, 1) == others
    assert read(store, 32) == others
    assert read(store, 32, properties=Everything()) == others
    found = read(store, 32, tags=frozenset({tag_hash("A")}))
    assert [body for body in found if body != str(item)] == others


@pytest.mark.parametrize("damage", list(DAMAGES.values())[:3], ids=list(DAMAGES)[:3])
@pytest.mark.parametrize("item", [0, 1, 199, 200, 201, 399, 400, 401, 449])
def test_a_start_builds_queues_again_whose_last_items_are_damaged(item: int, damage: bytes) -> None:
    volume = MemoryFileSystem()
    store = open_store(volume, segment_size=1 << 17, queue_file_size=20 * 500)
    for number in range(450):
        put(store, message(f"{number}"))
    store.close()
    volume.open(FILE).write_at(item * ITEM_BYTES, [damage], ITEM_BYTES)

    store = open_store(volume, segment_size=1 << 17, queue_file_size=20 * 500)

    found = [int(each.body) for each in read_queue(store, max_count=32)]
    assert store.queue_end("topic", 0) == 450
    assert [number for number in found if number != item] == [number for number in range(450) if number != item]
    assert item < 400 or item in found
    put(store, message("next"))
    assert store.queue_end("topic", 0) == 451


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_searches_by_time_step_over_it(damage: bytes) -> None:
    for item in range(COUNT):
        store = damaged_store(item, damage)
        first = Clock().now
        for number in range(COUNT):
            if number != item:
                found = offset_by_time(store, "topic", 0, first + number * 1000, Boundary.LOWER)
                assert found in ({number} if number != item + 1 else {number, item})
