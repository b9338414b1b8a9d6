"""Inner batches become rows, one per message. The reference is the protocol's `unwrap`."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq import inner_batches
from pyspark_raptormq.columns import KNOWN_COLUMNS, PropertiesAs
from pyspark_raptormq.decode import RecordDecoder
from raptormq.errors import RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH, is_inner_batch, unwrap
from raptormq.protocol.message_id import offset_id
from raptormq.protocol.record import StoredMessage, SysFlag, encode_record, iter_records
from raptormq.storage.read.batch_unpacker import BatchUnpacker
from tests.spark.sample_records import COMPRESSIONS, QUEUE, buffer_of, message, properties_text

PLAIN: dict[int, Callable[[bytes], bytes]] = {0: bytes}
WAYS = sorted((PLAIN | COMPRESSIONS).items())


def batch(offset: int, count: int, way: int = 0, stated: int | str | None = None, cut: int = 0) -> StoredMessage:
    messages = [
        (n, b"%d" % (offset + n), properties_text(TAGS="AB"[n % 2], UNIQ_KEY=f"id-{offset + n}").encode())
        for n in range(count)
    ]
    sys_flag, compress = WAYS[way]
    body = encode_batch(messages)
    properties = properties_text(TAGS="A", UNIQ_KEY="batch", INNER_NUM=str(count if stated is None else stated))
    return message(
        offset, compress(body[: len(body) - cut]), properties, sys_flag=sys_flag | INNER_BATCH, store_timestamp=offset
    )


@st.composite
def queues(draw: st.DrawFn) -> list[StoredMessage]:
    """Consecutive batches of every kind and single messages."""
    stored: list[StoredMessage] = []
    offset = draw(st.integers(0, 2**40))
    for count in draw(st.lists(st.integers(0, 5), max_size=6)):
        if count:
            stored.append(batch(offset, count, draw(st.integers(0, len(WAYS) - 1))))
        else:
            stored.append(message(offset, b"%d" % offset, properties_text(TAGS="S")))
        offset += count or 1
    return stored


def rows(data: bytes, start: int = 0, end: int = 2**62, tags: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    decoder = RecordDecoder(QUEUE, KNOWN_COLUMNS, PropertiesAs.RAW, tags)
    return [row for found in decoder.decode(data, start, end) for row in found.to_pylist()]


def fields(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["queueOffset"], row["value"], row["properties"]) for row in found]


@given(queues(), st.integers(0, 30), st.integers(0, 30))
def test_rows_are_the_messages_of_the_range(stored: list[StoredMessage], skip: int, less: int) -> None:
    data = buffer_of(*stored)
    single: list[StoredMessage] = []
    for record in iter_records(data):
        single += unwrap(record) if is_inner_batch(record.sys_flag) else [record]
    start = (single[0].queue_offset if single else 0) + skip
    end = (single[-1].queue_offset + 1 if single else 0) - less
    expected = [
        (each.queue_offset, each.body, each.properties.encode()) for each in single if start <= each.queue_offset < end
    ]
    assert fields(rows(data, start, end)) == expected


def test_times_are_those_of_the_batch_and_ids_those_of_the_messages() -> None:
    found = rows(buffer_of(batch(5, 3), message(8, store_timestamp=8)))
    assert [row["storeTimestamp"].microsecond for row in found] == [5000, 5000, 5000, 8000]
    assert [row["msgId"] for row in found][:3] == ["id-5", "id-6", "id-7"]


@pytest.mark.parametrize("host", [b"\x0a\0\0\x01\0\0\x2a\x9f", bytes(range(20))], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize(
    ("count", "way"),
    [(3, 0), (3, int(SysFlag.COMPRESSED)), (1000, int(SysFlag.COMPRESSED))],
    ids=["plain", "compressed", "shorter than its number of messages"],
)
def test_ids_of_the_broker_do_not_depend_on_who_took_the_batch_apart(count: int, way: int, host: bytes) -> None:
    """A task that begins inside a batch receives its remaining messages individually. Any other task receives the
    batch.
    """
    sys_flag, compress = way, dict(WAYS)[way]
    body = compress(encode_batch((0, b"", b"") for _ in range(count)))
    places = {"physical_offset": 7000, "store_host": host}
    stored = message(5, body, f"INNER_NUM\x01{count}\x02", sys_flag=sys_flag | INNER_BATCH, **places)
    record = encode_record(stored)
    unpacked = BatchUnpacker().unpack(record, stored.physical_offset, wait=True).messages
    behind = message(5 + count, physical_offset=8000, store_host=host)
    whole = [row["msgId"] for row in rows(buffer_of(message(4), stored, behind), 5)]
    assert [row["msgId"] for row in rows(buffer_of(*unpacked, behind))] == whole
    assert whole[0] == offset_id(host, 7001)
    assert len(set(whole[:-1])) == min(count, len(record))


def test_a_compressed_batch_before_others() -> None:
    found = rows(buffer_of(batch(0, 1), message(1, b"1"), batch(2, 1, 1), message(3, b"3")), 2)
    assert [row["value"] for row in found] == [b"2", b"3"]


def test_messages_are_filtered_by_their_own_tags() -> None:
    assert [row["queueOffset"] for row in rows(buffer_of(batch(5, 4)), tags=frozenset("B"))] == [6, 8]


def test_large_compressed_batches_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_batches, "_PLAIN_BYTES", 1)
    stored = [batch(0, 2, 1), message(2, b"2"), batch(3, 2), batch(5, 3, 2), batch(8, 1)]
    data = buffer_of(*stored)
    decoder = RecordDecoder(QUEUE, ("queueOffset", "value"))
    parts = [part.to_pydict() for part in decoder.decode(data, 0, 100)]
    assert [part["queueOffset"] for part in parts] == [[0, 1], [2, 3, 4, 5, 6, 7], [8]]
    assert [int(value) for part in parts for value in part["value"]] == list(range(9))


@pytest.mark.parametrize(
    "damaged",
    [batch(5, 3, stated=2), batch(5, 3, stated="x"), batch(5, 3, cut=1), batch(5, 3, cut=40), batch(5, 3, 1, cut=2)],
    ids=["count", "no number", "cut", "cut between", "compressed"],
)
def test_damaged_batches_are_refused_unless_nobody_wants_them(damaged: StoredMessage) -> None:
    data = buffer_of(message(4), damaged)
    with pytest.raises(RecordError):
        rows(data)
    assert [row["queueOffset"] for row in rows(data, 0, 5)] == [4]


@pytest.mark.parametrize("at", [0, 16, 21])
def test_lengths_inside_a_batch_that_do_not_add_up_are_refused(at: int) -> None:
    whole = batch(5, 1)
    body = bytearray(whole.body)
    body[at] ^= 0x80
    whole.body = bytes(body)
    with pytest.raises(RecordError):
        rows(buffer_of(whole))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_crc_that_a_message_of_a_batch_names_is_compared(compressed: bool) -> None:
    whole = batch(5, 2)
    size = int.from_bytes(whole.body[:4], "big")
    second = whole.body[size:]
    length = int.from_bytes(second[16:20], "big")
    for crc, is_right in ((zlib.crc32(second[20 : 20 + length]) & 0x7FFFFFFF, True), (1, False)):
        stored = batch(5, 2)
        stored.body = whole.body[: size + 8] + crc.to_bytes(4, "big") + second[12:]
        if compressed:
            stored.body, stored.sys_flag = zlib.compress(stored.body), stored.sys_flag | 0x301
        if is_right:
            assert [row["queueOffset"] for row in rows(buffer_of(stored))] == [5, 6]
        else:
            with pytest.raises(RecordError, match="CRC"):
                rows(buffer_of(stored))
