"""Where the messages of a batch are; damage of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.batch import decode_batch, encode_batch
from raptormq.protocol.batch_places import locate_messages

RECORDS = st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=40), st.binary(max_size=40)))


@given(RECORDS)
def test_places_are_those_of_the_decoder(records: list[tuple[int, bytes, bytes]]) -> None:
    data = encode_batch(records)
    found = [
        (flag, data[body_at:body_end], data[body_end + 2 : end])
        for flag, body_at, body_end, end in locate_messages(data, len(records))
    ]
    assert found == records
    assert found == [tuple(record) for record in decode_batch(data)]


@given(RECORDS.filter(bool), st.data())
def test_a_cut_batch_is_refused(records: list[tuple[int, bytes, bytes]], draw: st.DataObject) -> None:
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
    assert len(locate_messages(data, 2)) == 2
    for count in (0, 1, 3):
        with pytest.raises(RecordError, match=f"says that it holds {count} messages, and holds 2"):
            locate_messages(data, count)


def test_a_message_of_no_size_ends_the_search() -> None:
    """Its lengths add up, with properties of -22 bytes: it would be found again and again."""
    with pytest.raises(RecordError, match="do not add up"):
        locate_messages(bytes(20) + b"\xff\xea", 1)
