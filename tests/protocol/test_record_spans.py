"""Positions of the records in a pull response: plain records are found, all others are left to the decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.record import StoredMessage, decode_record, encode_record
from raptormq.protocol.record_spans import BODY_AT, locate_records

MESSAGES = st.lists(st.tuples(st.binary(max_size=40), st.text(max_size=200), st.integers(0, 2**62)), max_size=5)


def encoded(body: bytes = b"body", properties: str = "a\x01b\x02", **fields: object) -> bytes:
    return encode_record(StoredMessage("topic", 1, body, properties, **fields))  # type: ignore[arg-type]


@given(MESSAGES)
def test_places_are_those_of_the_decoder(messages: list[tuple[bytes, str, int]]) -> None:
    data = b"".join(encoded(body, properties, queue_offset=offset) for body, properties, offset in messages)
    places, position = locate_records(memoryview(data), 0)
    assert position == len(data)
    assert [(offset, data[start + BODY_AT : body_end]) for offset, start, body_end, _ in places] == [
        (offset, body) for body, _, offset in messages
    ]
    for (_, start, _, end), (body, properties, offset) in zip(places, messages, strict=True):
        message = decode_record(data, start)
        assert (message.body, message.properties, message.queue_offset) == (body, properties, offset)
        assert message.total_size == end - start


@pytest.mark.parametrize(
    "other",
    [
        encoded(sys_flag=0x1),
        encoded(sys_flag=0xC0),
        encoded(store_host=bytes(20)),
        encoded(properties="__ENCRYPTION_KEY\x01k\x02"),
        encode_record(StoredMessage("t" * 128, 1, b"", "")),
    ],
    ids=["compressed", "inner batch", "IPv6", "encrypted", "long topic"],
)
def test_what_is_not_plain_is_left_to_the_decoder(other: bytes) -> None:
    data = encoded() + other + encoded()
    places, position = locate_records(memoryview(data), 0)
    assert (len(places), position) == (1, len(encoded()))
    decode_record(data, position)
    assert len(locate_records(memoryview(data), position + len(other))[0]) == 1


def test_damage_is_left_to_the_decoder() -> None:
    good = encoded(b"body", "name\x01" + "v" * 200 + "\x02")
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x80
        try:
            message = decode_record(bytes(bad))
        except RecordError:
            assert locate_records(memoryview(bad), 0) == ([], 0)
        else:
            assert locate_records(memoryview(bad), 0)[1] in (0, message.total_size)
    for end in range(len(good)):
        assert locate_records(memoryview(good)[:end], 0) == ([], 0)
