"""Requests for several queues: round trips, and an error for all invalid bytes."""

from __future__ import annotations

import struct
from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import BodyError, MessageError
from raptormq.protocol.queue_batches import (
    MAX_PARTS,
    Part,
    PartKind,
    PartResponse,
    decode_part_responses,
    decode_parts,
    encode_part_responses,
    encode_parts,
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=40)
PARTS = st.lists(
    st.tuples(st.sampled_from(PartKind), st.integers(0, 3), INT32, INT32, INT32, TEXT, st.binary(max_size=80)),
    min_size=1,
    max_size=6,
).map(lambda rows: list(starmap(Part, rows)))
ANSWERS = st.lists(
    st.tuples(
        st.integers(0, 0xFFFF), st.booleans(), INT32, st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=40)
    ),
    max_size=6,
).map(lambda rows: list(starmap(PartResponse, rows)))
PART = Part(PartKind.LIST, 0, 3, 0, 7, "WAIT\x01true\x02", b"body")


@given(PARTS)
def test_parts_come_back(parts: list[Part]) -> None:
    assert decode_parts(encode_parts(parts), 4) == parts


@given(ANSWERS)
def test_answers_come_back(answers: list[PartResponse]) -> None:
    assert decode_part_responses(encode_part_responses(answers), len(answers)) == answers


@given(st.binary(max_size=200), st.integers(0, 5))
def test_any_bytes_are_parts_or_an_error(data: bytes, count: int) -> None:
    for decode in (decode_parts, decode_part_responses):
        try:
            decode(data, count)
        except BodyError:
            pass


@given(PARTS, st.data())
def test_a_request_that_is_cut_or_damaged_is_an_error_or_other_parts(parts: list[Part], data: st.DataObject) -> None:
    encoded = encode_parts(parts)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    hit = data.draw(st.integers(0, len(encoded) - 1))
    damaged = encoded[:hit] + bytes([encoded[hit] ^ data.draw(st.integers(1, 255))]) + encoded[hit + 1 :]
    try:
        assert len(decode_parts(encoded[:cut], 4)) < len(parts)
    except BodyError:
        pass
    try:
        assert decode_parts(damaged, 4) != parts
    except BodyError:
        pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no parts"),
        (encode_parts([PART])[:-1], "part 0 of the request is truncated"),
        (encode_parts([PART]) + b"\0" * 5, "part 1 of the request is truncated"),
        (b"\x02" + encode_parts([PART])[1:], "unknown kind 2"),
        (encode_parts([PART, PART._replace(topic_index=1)]), "part 1 of the request is for topic 1"),
        (struct.pack(">BHiiiHI", 0, 0, 0, 0, 0, 1, 0) + b"\xff", "properties of part 0 are not UTF-8"),
        (struct.pack(">BHiiiHI", 0, 0, 0, 0, 0, 0, 0xFFFF_FFFF), "part 0 of the request is truncated"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, words: str) -> None:
    with pytest.raises(BodyError, match=words):
        decode_parts(data, 1)


def test_the_number_of_parts_is_limited() -> None:
    many = encode_parts([PART._replace(properties="", body=b"")] * MAX_PARTS)
    assert len(decode_parts(many, 1)) == MAX_PARTS
    with pytest.raises(BodyError, match=f"more than {MAX_PARTS} parts"):
        decode_parts(many + encode_parts([PART]), 1)


def test_what_does_not_fit_is_refused_before_it_is_sent() -> None:
    longest = "x" * 32_767
    assert decode_parts(encode_parts([PART._replace(properties=longest)]), 1)[0].properties == longest
    with pytest.raises(MessageError, match="32768 bytes of properties"):
        encode_parts([PART._replace(properties=longest + "x")])
    with pytest.raises(MessageError, match="topic 65536"):
        encode_parts([PART._replace(topic_index=65_536)])


@pytest.mark.parametrize(
    ("data", "count", "words"),
    [
        (encode_part_responses([PartResponse(0)]), 2, "1 results for 2 parts"),
        (encode_part_responses([PartResponse(0), PartResponse(0)]), 1, "2 results for 1 parts"),
        (encode_part_responses([PartResponse(0, text="id")])[:-1], 1, "response to part 0 is truncated"),
        (b"\0", 1, "response to part 0 is truncated"),
        (encode_part_responses([PartResponse(0, text="i")])[:-1] + b"\xff", 1, "response to part 0 is not UTF-8"),
    ],
)
def test_a_wrong_answer_is_named(data: bytes, count: int, words: str) -> None:
    with pytest.raises(BodyError, match=words):
        decode_part_responses(data, count)


def test_the_layout_is_the_one_that_is_drawn() -> None:
    assert encode_parts([PART._replace(topic_index=1, sys_flag=2)]) == (
        b"\0\0\x01\0\0\0\x03\0\0\0\x02\0\0\0\x07\0\x0a\0\0\0\x04WAIT\x01true\x02body"
    )  # fmt: skip
    assert encode_part_responses([PartResponse(13, True, 3, 5, "no")]) == (
        b"\0\x0d\x01\0\0\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x02no"
    )  # fmt: skip
