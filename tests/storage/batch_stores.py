"""Batches for tests of BatchCQ topics, and functions that read them."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.record import StoredMessage, iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import GetStatus, MessageStore, PendingRecord
from raptormq.storage.fs.filesystem import FileSystem
from raptormq.storage.read.options import ReadOptions
from tests.storage.stores import Clock, open_store, queue_bounds

T = TypeVar("T")
BATCH_FILE_BYTES = 46 * 5
SMALL: dict[str, Any] = {
    "segment_size": 1 << 16,
    "batch_queue_file_size": BATCH_FILE_BYTES,
    "index_slots": 50,
    "index_entries": 500,
}
"""Settings with queue files of five items and a small index."""


def batch(
    bodies: Sequence[str], topic: str = "batches", queue_id: int = 0, tag: str = "", own_tags: Sequence[str] = ()
) -> PendingRecord:
    """Return a batch as the broker appends it; `own_tags` are the tags of the messages."""
    records = []
    for number, body in enumerate(bodies):
        own = f"TAGS\x01{own_tags[number]}\x02" if own_tags else ""
        records.append((0, body.encode(), f"{own}UNIQ_KEY\x01u-{body[:20]}\x02".encode()))
    tags = f"TAGS\x01{tag}\x02" if tag else ""
    properties = f"UNIQ_KEY\x01b-{bodies[0][:20]}\x02{tags}INNER_NUM\x01{len(bodies)}\x02".encode()
    return PendingRecord(topic, queue_id, encode_batch(records), properties, tag_hash(tag), sys_flag=INNER_BATCH)


def open_batch_store(volume: FileSystem | None = None, clock: Clock | None = None, **settings: Any) -> MessageStore:
    """Open a store with the BatchCQ topic `batches`."""
    store = open_store(volume, clock, **(SMALL | settings))
    store.set_batch_topic("batches")
    return store


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait, because the store has no threads."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("it waits")


def read_batches(
    store: MessageStore, queue_id: int = 0, offset: int | None = None, max_count: int = 7, *, whole: bool = False
) -> list[StoredMessage]:
    """Return all records of a queue from an offset on, as a consumer receives them."""
    records: list[StoredMessage] = []
    low, end = queue_bounds(store, "batches", queue_id)
    offset = low if offset is None else offset
    while offset < end:
        wanted = ("batches", queue_id, offset, ReadOptions(max_count, 1 << 20, whole=whole))
        result = store.get_messages(*wanted)
        if result.non_resident:
            result = at_once(store.load_messages(*wanted))
        assert result.next_offset > offset
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING)
        records += iter_records(b"".join(result.buffers))
        offset = result.next_offset
    return records


def items_of(volume: FileSystem, name: int = 0, queue_id: int = 0) -> list[tuple[int, ...]]:
    """Return the items of a queue file, decoded only from the description of the format."""
    data = volume.open(f"/store/batchconsumequeue/batches/{queue_id}/{name:020d}").read_at(0, BATCH_FILE_BYTES)
    widths = (8, 4, 8, 8, 8, 2, 4, 4)
    items = []
    for at in range(0, len(data), sum(widths)):
        fields = []
        for width in widths:
            fields.append(int.from_bytes(data[at : at + width], "big", signed=True))
            at += width  # noqa: PLW2901 - walks through the fields of one item
        items.append(tuple(fields))
    return [item for item in items if item[1]]
