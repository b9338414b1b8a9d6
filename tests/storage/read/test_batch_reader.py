"""Reads of a batch that the broker cannot unpack, and of messages after many damaged items: every readable message is
delivered.
"""

from __future__ import annotations

import zlib

import pytest

from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.record import iter_records
from raptormq.protocol.tags import tag_hash
from raptormq.storage import GetResult, MessageStore, PendingRecord
from raptormq.storage.queue.batch_queue import BATCH_ITEM_BYTES, BatchConsumeQueue
from raptormq.storage.read import batch_reader
from raptormq.storage.read import item_repair as item_mending
from raptormq.storage.read.batch_unpacker import MAX_UNPACKED_BYTES
from raptormq.storage.read.options import ReadOptions
from tests.storage.batch_stores import at_once, batch, open_batch_store
from tests.storage.test_damaged_items import Everything

OURS = ReadOptions(32, 1 << 20, whole=True)
OFFICIAL = OURS._replace(encrypted=False)
OLD = ReadOptions(32, 1 << 20)
TAG = frozenset({tag_hash("A")})
INSIDE = 5
"""The batch has the offsets 2 to 11."""


def closed(size: int, said: int = 10) -> PendingRecord:
    """Return a compressed batch of ten messages with a total of `size` bytes, whose properties have the count."""
    overhead = len(encode_batch([(0, b"", b"")] * 10))
    body = zlib.compress(encode_batch([(0, bytes(size - overhead if n == 0 else 0), b"") for n in range(10)]))
    return PendingRecord(
        "batches", 0, body, f"UNIQ_KEY\x01B\x02INNER_NUM\x01{said}\x02".encode(), sys_flag=INNER_BATCH | 0x301
    )


LARGEST = closed(MAX_UNPACKED_BYTES)
TOO_LARGE = closed(MAX_UNPACKED_BYTES + 1)
DAMAGED = closed(1000, said=9)
LYING_AND_TOO_LARGE = closed(MAX_UNPACKED_BYTES + 1, said=9)


def store_with(record: PendingRecord) -> MessageStore:
    """Store two messages, the batch, and one message after it."""
    store = open_batch_store()
    store.append([batch(["0", "1"], tag="A", own_tags="AA"), record, batch(["behind"], tag="A", own_tags="A")])
    store.dispatch()
    return store


def read(store: MessageStore, offset: int, options: ReadOptions) -> GetResult:
    result = store.get_messages("batches", 0, offset, options)
    return at_once(store.load_messages("batches", 0, offset, options)) if result.non_resident else result


def offsets(result: GetResult) -> list[int]:
    return [each.queue_offset for each in iter_records(b"".join(result.buffers))]


@pytest.mark.parametrize("record", [TOO_LARGE, DAMAGED, LYING_AND_TOO_LARGE], ids=["large", "damaged", "both"])
@pytest.mark.parametrize("tags", [None, TAG], ids=["all", "tag"])
def test_our_clients_get_it_whole_from_wherever_they_begin(record: PendingRecord, tags: frozenset[int] | None) -> None:
    end = 2 + (9 if record is not TOO_LARGE else 10)
    with_store = store_with(record)
    for begin in (2, INSIDE, end - 1):
        found = read(with_store, begin, OURS._replace(tags=tags))
        assert (offsets(found), found.next_offset) == ([2, end], end + 1)
        (whole, _) = iter_records(b"".join(found.buffers))
        assert whole.body == record.body


def test_it_comes_alone_where_there_is_no_room_beside_it() -> None:
    store = store_with(TOO_LARGE)
    before = read(store, 0, OURS._replace(tags=TAG, max_bytes=300))
    assert (offsets(before), before.next_offset) == ([0], 2)
    alone = read(store, 2, OURS._replace(tags=TAG, max_bytes=300))
    assert (offsets(alone), alone.next_offset) == ([2], 12)


@pytest.mark.parametrize("tags", [None, TAG], ids=["all", "tag"])
def test_the_official_client_gets_it_whole_when_it_is_too_large_only(tags: frozenset[int] | None) -> None:
    found = read(store_with(TOO_LARGE), INSIDE, OFFICIAL._replace(tags=tags))
    assert (offsets(found), found.next_offset) == ([2, 12], 13)
    found = read(store_with(DAMAGED), INSIDE, OFFICIAL._replace(tags=tags))
    assert (offsets(found), found.next_offset) == ([11], 12)


@pytest.mark.parametrize(
    "options",
    [OLD, OLD._replace(tags=TAG), OURS._replace(properties=Everything())],
    ids=["old", "old, tag", "properties"],
)
@pytest.mark.parametrize(("record", "end"), [(TOO_LARGE, 12), (DAMAGED, 11)], ids=["large", "damaged"])
def test_who_wants_messages_steps_over_it_and_it_is_counted(
    options: ReadOptions, record: PendingRecord, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_with(record)
    found, begin = list[int](), 0
    while begin <= end:
        result = read(store, begin, options)
        found, begin = found + offsets(result), result.next_offset
    assert (found, store.stats().skipped_records) == ([0, 1, end], 1)
    assert "1 batches of batches/0 from offset " in caplog.text
    for number, inside in enumerate((2, INSIDE, end - 1), 2):
        assert offsets(read(store, inside, options)) == [end]
        assert store.stats().skipped_records == number


@pytest.mark.parametrize("options", [OLD, OURS._replace(properties=Everything())], ids=["old", "properties"])
def test_many_of_them_cost_no_read_much(options: ReadOptions) -> None:
    """Each repair takes a thread for a tenth of a second."""
    store = open_batch_store()
    store.append([*[TOO_LARGE] * 5, batch(["behind"])])
    store.dispatch()
    begin, reads = 0, list[int]()
    while begin <= 50:
        result = read(store, begin, options)
        reads.append((result.next_offset - begin) // 10)
        begin = result.next_offset
    assert max(reads) <= 2
    assert (offsets(result), store.stats().skipped_records) == ([50], 5)


def test_what_is_just_not_too_large_is_taken_apart() -> None:
    found = read(store_with(LARGEST), INSIDE, OLD)
    assert offsets(found) == list(range(INSIDE, 13))


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"\x7f"], ids=["zeros", "ones", "far away"])
@pytest.mark.parametrize("count", [7, 8, 9, 15, 16, 17, 18, 40])
def test_many_damaged_items_in_a_row_cost_nothing_behind_them(
    monkeypatch: pytest.MonkeyPatch, damage: bytes, count: int
) -> None:
    for module in (batch_reader, item_mending):
        monkeypatch.setattr(module, "MAX_ITEMS", 8)
    store = open_batch_store()
    for number in range(60):
        store.append([batch([str(number)])])
    store.dispatch()
    store._queues.flush(100)
    queue = store._queues.get("batches", 0)
    assert isinstance(queue, BatchConsumeQueue)
    for number in range(10, 10 + count):
        store._queues.files.rewrite(queue, number, damage * BATCH_ITEM_BYTES)
    lost = range(10, 10 + count)
    for begin in (0, 11, 9 + count, 10 + count, 11 + count):
        for options in (OURS, OLD):
            queue.last_read = (-1, 0)  # the first read repairs its item, the others continue
            found: list[int] = []
            offset = begin
            while offset < 60:
                result = read(store, offset, options)
                assert result.next_offset > offset
                found += offsets(result)
                offset = result.next_offset
            sound = [number for number in range(begin, 60) if number not in lost]
            assert [number for number in found if number not in lost] == sound
