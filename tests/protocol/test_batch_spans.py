"""Positions of the messages of a batch, and damage of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.batch import decode_batch, encode_batch
from raptormq.protocol.batch_spans import MessageSpans, locate_messages

Record = tuple[int, bytes, bytes]
FLAGS = st.integers(-(2**31), 2**31 - 1)
RECORDS = st.lists(st.tuples(FLAGS, st.binary(max_size=40), st.binary(max_size=40)))


@st.composite
def alike(draw: st.DrawFn) -> list[Record]:
    """Records with the same lengths."""
    body, properties = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    record = st.tuples(
        FLAGS,
        st.binary(min_size=body, max_size=body),
        st.binary(min_size=properties, max_size=properties),
    )
    return draw(st.lists(record, min_size=1, max_size=300))


def found(data: bytes, places: MessageSpans) -> list[Record]:
    return [(flag, data[body], data[body_end + 2 : end]) for flag, body, body_end, end in zip(*places, strict=True)]


@given(RECORDS | alike())
def test_places_are_those_of_the_decoder(records: list[Record]) -> None:
    data = encode_batch(records)
    places = locate_messages(data, len(records))
    assert found(data, places) == records
    assert found(data, places) == [tuple(record) for record in decode_batch(data)]
    assert found(data, places.starting_at(1)) == records[1:]
    numbers = range(0, len(records), 3)
    assert found(data, places.select(numbers)) == [records[number] for number in numbers]


@given(alike(), st.data())
def test_what_one_look_finds_is_what_one_by_one_is_found(records: list[Record], draw: st.DataObject) -> None:
    """With one flipped bit in the heads, both decoders find the same messages, or none."""
    data = bytearray(encode_batch(records))
    size = len(data) // len(records)
    at = draw.draw(st.integers(0, len(records) - 1)) * size + draw.draw(st.integers(0, 21) | st.integers(0, size - 1))
    data[at] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        rows = [tuple(record) for record in decode_batch(bytes(data))]
    except RecordError:
        rows = None
    if rows is None or len(rows) != len(records):
        with pytest.raises(RecordError):
            locate_messages(bytes(data), len(records))
    else:
        assert found(bytes(data), locate_messages(bytes(data), len(records))) == rows


@given(RECORDS.filter(bool) | alike(), st.data())
def test_a_cut_batch_is_refused(records: list[Record], draw: st.DataObject) -> None:
    data = encode_batch(records)
    cut = draw.draw(st.integers(1, len(data) - 1))
    with pytest.raises(RecordError):
        locate_messages(data[:cut], len(records))


@pytest.mark.parametrize("at", [0, 16, 21])
def test_lengths_that_do_not_add_up_are_refused(at: int) -> None:
    data = bytearray(encode_batch([(0, b"x", b"y"), (0, b"x", b"y")]))
    data[at] ^= 0x80
    with pytest.raises(RecordError):
        locate_messages(bytes(data), 2)


def test_a_wrong_count_is_refused() -> None:
    data = encode_batch([(0, b"", b"")] * 2)
    assert found(data, locate_messages(data, 2)) == [(0, b"", b"")] * 2
    for count in (0, 1, 3):
        with pytest.raises(RecordError, match=f"declares {count} messages and holds 2"):
            locate_messages(data, count)


def test_a_message_of_no_size_ends_the_search() -> None:
    """The lengths add up with properties of -22 bytes, so that the same message would be found repeatedly."""
    with pytest.raises(RecordError, match="inconsistent lengths"):
        locate_messages(bytes(20) + b"\xff\xea", 1)
