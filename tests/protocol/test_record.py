"""Stored records and batch records: round trips, exact layout, and RecordError for every damage."""

from __future__ import annotations

import contextlib
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.batch import BatchRecord, decode_batch, encode_batch
from raptormq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    StoredMessage,
    SysFlag,
    decode_record,
    encode_record,
    iter_records,
    record_size,
)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    born, store = draw(hosts), draw(hosts)
    v6 = (SysFlag.BORN_HOST_V6 if len(born) == 20 else 0) | (SysFlag.STORE_HOST_V6 if len(store) == 20 else 0)
    message = StoredMessage(
        draw(text | st.text("t", min_size=120, max_size=200)),
        draw(int32),
        draw(st.binary(max_size=100)),
        draw(text),
        draw(int32),
        draw(int32) & ~0x30 | int(v6),
        draw(int64),
        draw(int64),
        draw(int64),
        draw(int64),
        born,
        store,
        draw(int32),
        draw(int64),
    )
    message.total_size = len(encode_record(message))
    return message


@given(st.lists(messages(), max_size=5))
def test_records_round_trip(originals: list[StoredMessage]) -> None:
    data = b"".join(map(encode_record, originals))
    assert list(iter_records(data)) == originals
    assert list(iter_records(memoryview(data))) == originals


def test_the_layout_is_the_documented_one() -> None:
    message = StoredMessage("topic", 3, b"body", "k\x01v\x02", 7, 0, 1 << 40, 1 << 41, 5, 6, reconsume_times=8)
    data = encode_record(message)
    assert len(data) == MIN_RECORD_BYTES + len(b"topic" + b"body" + b"k1v2")
    assert int.from_bytes(data[4:8], "big", signed=True) == MAGIC_V1
    assert int.from_bytes(data[8:12], "big") == crc32(b"body") & 0x7FFFFFFF
    assert int.from_bytes(data[20:28], "big") == 1 << 40
    assert int.from_bytes(data[28:36], "big") == 1 << 41
    assert int.from_bytes(data[56:64], "big") == 6
    assert data[84:92] == b"\0\0\0\4body"
    assert data[92:] == b"\5topic\0\4k\x01v\x02"


def test_long_topics_take_version_2() -> None:
    data = encode_record(StoredMessage("t" * 128, 0, b"", ""))
    assert int.from_bytes(data[4:8], "big", signed=True) == MAGIC_V2
    assert decode_record(data).topic == "t" * 128


@given(messages(), st.data())
def test_a_flipped_byte_is_found_or_harmless(message: StoredMessage, data: st.DataObject) -> None:
    encoded = bytearray(encode_record(message))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(RecordError):
        assert decode_record(encoded).total_size == message.total_size


@given(messages(), st.data())
def test_a_cut_record_is_refused(message: StoredMessage, data: st.DataObject) -> None:
    encoded = encode_record(message)
    with pytest.raises(RecordError):
        decode_record(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_a_damaged_body_is_refused_unless_the_crc_is_ignored() -> None:
    encoded = bytearray(encode_record(StoredMessage("t", 0, b"body", "")))
    encoded[88] ^= 1
    with pytest.raises(RecordError, match="CRC"):
        decode_record(encoded)
    assert decode_record(encoded, check_crc=False).body == b"cody"


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_record_errors(data: bytes) -> None:
    for parse in (record_size, decode_record, decode_batch, lambda b: list(iter_records(b))):
        with contextlib.suppress(RecordError):
            parse(data)


def test_what_does_not_fit_is_refused() -> None:
    for message in (StoredMessage("t", 0, b"", "p" * 40_000), StoredMessage("t", 0, b"", "", born_host=b"abc")):
        with pytest.raises(RecordError):
            encode_record(message)


@given(st.lists(st.builds(BatchRecord, int32, st.binary(max_size=50), st.binary(max_size=50)), max_size=6))
def test_batches_round_trip(records: list[BatchRecord]) -> None:
    assert decode_batch(encode_batch(records)) == records


@given(st.lists(st.builds(BatchRecord, int32, st.binary(max_size=20), st.binary(max_size=20)), min_size=1), st.data())
def test_a_cut_batch_is_refused(records: list[BatchRecord], data: st.DataObject) -> None:
    encoded = encode_batch(records)
    last = len(encode_batch(records[-1:]))
    cut = data.draw(st.integers(len(encoded) - last + 1, len(encoded) - 1))
    with pytest.raises(RecordError):
        decode_batch(encoded[:cut])


@pytest.mark.parametrize("size", [0, -1, 21, 23, 1 << 30])
def test_a_batch_record_that_lies_about_its_size_is_refused(size: int) -> None:
    encoded = bytearray(encode_batch([(0, b"", b"")]))
    encoded[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(RecordError):
        decode_batch(bytes(encoded))


def test_a_batch_of_too_many_records_is_refused() -> None:
    with pytest.raises(RecordError, match="more than 2"):
        decode_batch(encode_batch([(0, b"", b"")] * 3), max_records=2)
