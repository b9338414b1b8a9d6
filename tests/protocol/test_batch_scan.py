"""The bulk and the record-by-record decoder of batches find the same records and raise the same errors."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.batch import BatchRow, encode_batch, scan_batch, scan_uniform


def one_by_one(data: bytes) -> list[BatchRow] | None:
    """Decode by the description of the layout; None for an invalid batch."""
    rows: list[BatchRow] = []
    at = 0
    while at < len(data):
        size, _, crc, flag, length = (
            int.from_bytes(data[at + 4 * field : at + 4 * field + 4], "big", signed=True) for field in range(5)
        )
        begin, end, after = at + 20, at + 20 + length, at + size
        if len(data) < at + 22 or not 0 <= length <= size - 22 or after > len(data):
            return None
        if int.from_bytes(data[end : end + 2], "big", signed=True) != after - end - 2:
            return None
        if crc and crc != crc32(data[begin:end]) & 0x7FFFFFFF:
            return None
        rows.append((flag, begin, end, data[end + 2 : after]))
        at = after
    return rows


def scanned(data: bytes) -> list[BatchRow] | None:
    try:
        return scan_batch(data, check_crc=True)
    except RecordError:
        return None


ALIKE = st.tuples(st.integers(0, 3), st.integers(0, 3)).flatmap(
    lambda lengths: st.lists(
        st.tuples(
            st.integers(-(1 << 31), (1 << 31) - 1),
            st.binary(min_size=lengths[0], max_size=lengths[0]),
            st.binary(min_size=lengths[1], max_size=lengths[1]),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(ALIKE)
def test_records_of_the_same_lengths(records: list[tuple[int, bytes, bytes]]) -> None:
    data = encode_batch(records)
    alike = scan_uniform(data)
    assert alike is not None
    assert scanned(data) == list(zip(*alike, strict=True)) == one_by_one(data)


@given(ALIKE, st.data())
def test_any_byte_that_is_another(records: list[tuple[int, bytes, bytes]], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(records))
    batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.sampled_from([0, 1, 2, 22, 127, 128, 255]))
    assert scanned(bytes(batch)) == one_by_one(bytes(batch))


@given(ALIKE, st.integers(1, 30))
def test_cut_anywhere(records: list[tuple[int, bytes, bytes]], missing: int) -> None:
    data = encode_batch(records)[:-missing]
    assert scanned(data) == one_by_one(data)


@pytest.mark.parametrize("count", [1, 256, 257])
def test_as_many_as_are_taken_apart_at_once_and_one_more(count: int) -> None:
    data = encode_batch([(number, b"ab", b"x\x01%03d\x02" % number) for number in range(count)])
    assert (scan_uniform(data) is not None) is (count <= 256)
    assert scan_batch(data) == one_by_one(data)


@pytest.mark.parametrize("last", [(0, b"abc", b"p"), (0, b"a", b"ppp"), (0, b"abcd" * 11, b"p" * 4)])
def test_one_of_another_length(last: tuple[int, bytes, bytes]) -> None:
    data = encode_batch([(0, b"ab", b"pp"), (7, b"cd", b"qq"), last])
    assert scan_uniform(data) is None
    assert scan_batch(data) == one_by_one(data)


def test_records_with_a_crc_are_checked_one_by_one() -> None:
    data = encode_batch([(0, b"ab", b"p"), (0, b"cd", b"q")])
    right = data[:33] + (crc32(b"cd") & 0x7FFFFFFF).to_bytes(4, "big") + data[37:]
    wrong = data[:33] + b"\x01\x02\x03\x04" + data[37:]
    assert scan_uniform(right) is None
    assert scanned(right) == one_by_one(right) != []
    assert scanned(wrong) is None


def test_too_many_are_refused() -> None:
    data = encode_batch([(0, b"", b"")] * 3)
    assert len(scan_batch(data, 3)) == 3
    for more in (b"", b"no record"):  # beyond the bytes that are read
        with pytest.raises(RecordError, match="more than 2 records"):
            scan_batch(data + more, 2)


def test_nothing_is_no_record() -> None:
    assert scan_uniform(b"") is None
    assert scan_batch(b"") == []
