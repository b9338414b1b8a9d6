"""The decoder of batches whose messages differ in unique keys: it accepts only such batches, also with damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.errors import RecordError
from raptormq.protocol.batch import encode_batch, scan_batch
from raptormq.protocol.keyed_batch import KeyedRecords, scan_keyed
from raptormq.protocol.properties import find_value

BEFORE = b"KEYS\x01\x02a\x01b\x02"
BEHIND = b"\x02WAIT\x01true\x02TAGS\x01T\x02"


def texts(count: int, before: bytes = BEFORE, behind: bytes = BEHIND) -> list[bytes]:
    return [b"%bUNIQ_KEY\x01K%03d%b" % (before, number, behind) for number in range(count)]


def batch(properties: list[bytes], body: bytes = b"body", flag: int = 5) -> bytes:
    return encode_batch([(flag, body, text) for text in properties])


@pytest.mark.parametrize("count", [1, 2, 33, 256])
def test_the_keys_and_the_tag_of_a_batch(count: int) -> None:
    keys = b"".join(b"K%03d" % number for number in range(count))
    assert scan_keyed(batch(texts(count))) == KeyedRecords(count, keys, b"T")
    assert scan_keyed(batch(texts(count, b"", b"\x02"), body=b"")) == KeyedRecords(count, keys, b"")


ODD_TEXTS = {
    "no properties": b"",
    "no key": b"WAIT\x01true\x02",
    "an empty key": b"UNIQ_KEY\x01\x02",
    "a key without an end": b"UNIQ_KEY\x01K001",
    "the end of a longer name": b"MY_UNIQ_KEY\x01K001\x02",
    "a second key that counts": b"UNIQ_KEY\x01K001\x02UNIQ_KEY\x01K002\x02",
    "a second key like any": b"UNIQ_KEY\x01K001\x02UNIQ_KEY\x010\x02",
    "words in KEYS": b"KEYS\x01order\x02UNIQ_KEY\x01K001\x02",
    "a batch": b"UNIQ_KEY\x01K001\x02INNER_NUM\x012\x02",
    "a key that is not ASCII": b"UNIQ_KEY\x01K\xc3\xa91\x02",
}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_batches_of_odd_messages_are_left_to_others(text: bytes) -> None:
    assert scan_keyed(batch([text])) is scan_keyed(batch([text] * 3)) is None


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\x01b", b"a\x01c"),
        (b"true", b"trud"),
        (b"K00", b"K\x02\x01"),
        (b"TAGS\x01T", b"TAGS\x01U"),
        (b"body", b"bod"),
    ],
)
def test_one_message_that_differs(old: bytes, new: bytes, place: int) -> None:
    plain = encode_batch([(0, b"body", text) for text in texts(3)])
    records = plain[: (at := place * len(plain) // 3)], plain[at : at + len(plain) // 3], plain[at + len(plain) // 3 :]
    assert old in records[1]
    assert scan_keyed(records[0] + records[1].replace(old, new) + records[2]) is None


def test_too_large_and_too_short_batches() -> None:
    assert scan_keyed(batch(texts(257))) is None
    assert scan_keyed(b"") is None
    whole = batch(texts(2))
    assert all(scan_keyed(whole[:length]) is None for length in range(len(whole)) if length != len(whole) // 2)


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3))
def test_whatever_is_damaged_the_reference_agrees(count: int, damage: list[tuple[int, int]]) -> None:
    data = bytearray(batch(texts(count), body=b"abc", flag=0))
    for at, value in damage:
        data[at % len(data)] = value
    found = scan_keyed(bytes(data))
    if found is None:
        return
    rows = scan_batch(bytes(data), check_crc=True)  # and raises no error
    size = len(found.keys) // found.messages
    assert len(rows) == found.messages
    for number, (_, _, _, text) in enumerate(rows):
        assert find_value(text, b"UNIQ_KEY\x01") == found.keys[number * size : (number + 1) * size]
        assert find_value(text, b"TAGS\x01") == found.tags
        assert not find_value(text, b"KEYS\x01").strip(b" ")
        assert not find_value(text, b"INNER_NUM\x01")


@pytest.mark.parametrize("at", range(20))
def test_a_damaged_head_is_never_overlooked(at: int) -> None:
    """With a changed byte in any head, an invalid batch for the reference is not decoded, and no CRC is accepted
    wrongly.
    """
    whole = batch(texts(2), flag=0)
    for start in (0, len(whole) // 2):
        damaged = bytearray(whole)
        damaged[start + at] ^= 0x41
        try:
            scan_batch(bytes(damaged), check_crc=True)
        except RecordError:
            assert scan_keyed(bytes(damaged)) is None
