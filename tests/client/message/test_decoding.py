"""Stored records as messages: decompressed, unpacked, or rejected."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client.message.decoding import Unreadable, decode_batches, decode_messages, message_count
from raptormq.errors import KeyMissing, RaptorMQError, RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.record import StoredMessage, encode_record
from tests.client.single_key import OneKey

QUEUE = MessageQueue("t", "broker-0", 3)
TEXT = b"2013-01-01,EWR,IAH,11.0\n" * 300


def record(body: bytes = b"x", properties: str = "TAGS\x01A\x02UNIQ_KEY\x01id\x02", **fields: int) -> bytes:
    return encode_record(StoredMessage("t", 3, body, properties, **fields))  # type: ignore[arg-type]


def test_fields_of_a_record() -> None:
    stored = record(b"body", queue_offset=7, physical_offset=99, born_timestamp=1, store_timestamp=2, flag=-1)
    [message] = decode_messages(stored, QUEUE)
    assert (message.topic, message.queue, message.queue_offset, message.physical_offset) == ("t", QUEUE, 7, 99)
    assert (message.body, message.tags, message.flag) == (b"body", "A", -1)
    assert (message.born_timestamp, message.store_timestamp) == (1, 2)
    assert message.message_id == "id"
    assert message.offset_message_id == "7F00000100000000" + f"{99:016X}"


def test_without_a_unique_id_the_offset_id_takes_its_place() -> None:
    [message] = decode_messages(record(properties=""), QUEUE)
    assert message.message_id == message.offset_message_id


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (TEXT, 0),
        (zlib.compress(TEXT), 0x001),
        (zlib.compress(TEXT), 0x301),
        (lz4.frame.compress(TEXT), 0x101),
        (zstandard.compress(TEXT), 0x201),
    ],
)
def test_bodies_are_inflated_whatever_deflated_them(body: bytes, sys_flag: int) -> None:
    [message] = decode_messages(record(body, sys_flag=sys_flag), QUEUE)
    assert message.body == TEXT


def test_an_inner_batch_is_taken_apart() -> None:
    inner = encode_batch([(n, b"%d" % n, f"TAGS\x01T{n}\x02".encode()) for n in range(3)])
    stored = record(inner, "UNIQ_KEY\x01batch\x02INNER_NUM\x013\x02", queue_offset=40, sys_flag=0xC0)
    messages = decode_messages(stored + record(queue_offset=43), QUEUE)
    assert [m.queue_offset for m in messages] == [40, 41, 42, 43]
    assert [m.body for m in messages] == [b"0", b"1", b"2", b"x"]
    assert [m.tags for m in messages] == ["T0", "T1", "T2", "A"]
    assert [m.flag for m in messages] == [0, 1, 2, 0]


def test_an_inner_batch_that_is_not_asked_to_be_unwrapped_stays_whole() -> None:
    [message] = decode_messages(record(b"anything", sys_flag=0x80), QUEUE)
    assert message.body == b"anything"


def test_a_pull_from_the_middle_of_a_batch_leaves_out_what_is_before() -> None:
    inner = encode_batch([(0, b"%d" % n, b"") for n in range(3)])
    stored = record(queue_offset=39) + record(inner, "INNER_NUM\x013\x02", queue_offset=40, sys_flag=0xC0)
    assert [m.queue_offset for m in decode_messages(stored, QUEUE, 42)] == [39, 42]
    assert [m.queue_offset for m in decode_messages(stored, QUEUE, 43)] == [39]


def test_batches_stay_together_and_what_is_between_them_too() -> None:
    inner = encode_batch([(0, b"%d" % n, b"TAGS\x01T%d\x02" % n) for n in range(3)])
    wrapped = record(inner, "INNER_NUM\x013\x02", queue_offset=2, sys_flag=0xC0)
    stored = record(queue_offset=0) + record(queue_offset=1) + wrapped + record(queue_offset=5)
    assert [list(batch.offsets) for batch in decode_batches(stored, QUEUE)] == [[0, 1], [2, 3, 4], [5]]
    by_tag = decode_batches(stored, QUEUE, tags=["T0", "T2"])
    assert [list(batch.offsets) for batch in by_tag] == [[2, 4]]
    assert decode_batches(stored, QUEUE, tags=["none"]) == []


def test_bodies_of_a_batch_are_not_copied() -> None:
    stored = record(encode_batch([(0, b"one", b""), (0, b"two", b"")]), "INNER_NUM\x012\x02", sys_flag=0xC0)
    [batch] = decode_batches(stored, QUEUE)
    bodies = list(batch.bodies())
    assert [bytes(body) for body in bodies] == [b"one", b"two"]
    assert all(isinstance(body, memoryview) and body.obj is stored for body in bodies)


def test_a_batch_tells_topic_and_birth_of_its_first_message_and_damage_in_the_properties_hinders_nobody() -> None:
    inner = encode_batch([(0, b"", b"\xff" * n) for n in range(2)])
    wrapped = record(inner, "INNER_NUM\x012\x02", queue_offset=1, sys_flag=0xC0, born_timestamp=9)
    compressed = record(zlib.compress(TEXT), queue_offset=3, sys_flag=0x301, born_timestamp=8)
    batches = decode_batches(record(born_timestamp=7) + wrapped + compressed, QUEUE)
    assert [(len(batch), batch.topic, batch.born_timestamp) for batch in batches] == [
        (1, "t", 7),
        (2, "t", 9),
        (1, "t", 8),
    ]
    assert [batch[0].born_timestamp for batch in batches] == [7, 9, 8]


def test_plain_messages_are_decoded_when_they_are_looked_at_and_not_copied() -> None:
    stored = record(b"one", queue_offset=7, flag=3) + record(b"two", "TAGS\x01B\x02", queue_offset=9)
    [batch] = decode_batches(stored, QUEUE)
    assert (list(batch.offsets), len(batch), batch.body_bytes >= 6) == ([7, 9], 2, True)
    bodies = list(batch.bodies())
    assert [bytes(body) for body in bodies] == [b"one", b"two"]
    assert all(isinstance(body, memoryview) and body.obj is stored for body in bodies)
    assert list(batch) == decode_messages(stored, QUEUE)
    assert batch[-1] == decode_messages(stored, QUEUE)[1]
    by_tag = batch.with_tags(["B"])
    assert by_tag is not None
    assert [message.queue_offset for message in by_tag] == [9]
    assert batch.with_tags(["C"]) is None


def test_a_message_that_has_to_be_decoded_stays_with_its_plain_neighbours() -> None:
    deflated = record(zlib.compress(TEXT), queue_offset=1, sys_flag=0x301)
    stored = record(queue_offset=0) + deflated + record(queue_offset=2)
    [batch] = decode_batches(stored, QUEUE)
    assert [bytes(body) for body in batch.bodies()] == [b"x", TEXT, b"x"]
    assert list(batch) == decode_messages(stored, QUEUE)


def telling(told: list[int]) -> Unreadable:
    """Record the offsets, and continue."""

    def tell(wrapper: StoredMessage, _error: RecordError | KeyMissing) -> bool:
        told.append(wrapper.queue_offset)
        return True

    return tell


def test_plain_messages_on_both_sides_of_a_damaged_batch_come_together() -> None:
    damaged = record(b"", "INNER_NUM\x013\x02", queue_offset=1, sys_flag=0xC0)
    told: list[int] = []
    stored = record(queue_offset=0) + damaged + record(queue_offset=4)
    [batch] = decode_batches(stored, QUEUE, unreadable=telling(told))
    assert (told, list(batch.offsets)) == ([1], [0, 4])


@pytest.mark.parametrize("damage", [b"INNER_NUM\x014\x02", b"INNER_NUM\x012\x02", b"INNER_NUM\x01x\x02"])
def test_a_batch_that_lies_about_its_count_is_refused_and_the_others_are_read(damage: bytes) -> None:
    inner = encode_batch([(0, b"", b"")] * 3)
    stored = record(inner, damage.decode(), queue_offset=4, sys_flag=0xC0) + record(queue_offset=7)
    with pytest.raises(RecordError, match=r"INNER_NUM|declares"):
        decode_messages(stored, QUEUE)
    told: list[int] = []
    left = decode_batches(stored, QUEUE, unreadable=telling(told))
    assert (told, [list(batch.offsets) for batch in left]) == ([4], [[7]])


WRONG_CRC = b"\0\0\0\x17\0\0\0\0\0\0\0\1" + bytes(7) + b"\1x\0\0"
NESTED = encode_batch([(0, b"", b"a\x01b\x02"), (0, b"", b"INNER_NUM\x012\x02")])
LONGER_NAME = encode_batch([(0, b"", b"XINNER_NUM\x012\x02")])


@pytest.mark.parametrize("form", ["compressed", "encrypted", "both"])
def test_of_what_brokers_cannot_read_the_consumer_looks_at_crcs_and_nesting(form: str) -> None:
    def stored(inner: bytes, count: int) -> bytes:
        flags, text = INNER_BATCH, f"INNER_NUM\x01{count}\x02"
        if form != "encrypted":
            inner, bits = zlib.compress(inner), 0x301
            flags |= bits if form == "compressed" else 0
        if form != "compressed":
            inner = encrypt_body(inner, 0x301 if form == "both" else 0, "k1", bytes(32), bytes(12))
            text += "__ENCRYPTION_KEY\x01k1\x02"
        return record(inner, text, sys_flag=flags)

    keys = OneKey()
    right = WRONG_CRC[:8] + (zlib.crc32(b"x") & 0x7FFFFFFF).to_bytes(4, "big") + WRONG_CRC[12:]
    for inner, count in ((right, 1), (LONGER_NAME, 1)):
        assert len(decode_messages(stored(inner, count), QUEUE, 0, keys)) == count
    for inner, count, reason in ((WRONG_CRC, 1, "message 0 .* CRC"), (NESTED, 2, "message 1 .* is itself a batch")):
        with pytest.raises(RecordError, match=reason):
            decode_messages(stored(inner, count), QUEUE, 0, keys)


def test_reading_may_stop_before_what_cannot_be_read() -> None:
    body = record(queue_offset=0) + record(b"not deflated", sys_flag=0x301, queue_offset=1) + record(queue_offset=2)
    found = decode_batches(body, QUEUE, unreadable=lambda *_: False)
    assert [list(batch.offsets) for batch in found] == [[0]]


@pytest.mark.parametrize(
    ("properties", "sys_flag", "count"),
    [("INNER_NUM\x013\x02", INNER_BATCH, 3), ("INNER_NUM\x01x\x02", INNER_BATCH, 1), ("INNER_NUM\x013\x02", 0, 1)],
)
def test_how_many_offsets_a_record_takes(properties: str, sys_flag: int, count: int) -> None:
    assert message_count(StoredMessage("t", 0, b"", properties, sys_flag=sys_flag)) == count


def test_properties_in_a_batch_that_are_not_utf8_are_replaced() -> None:
    not_utf8 = encode_batch([(0, b"", b"a\x01\xff\x02")])
    [message] = decode_messages(record(not_utf8, "INNER_NUM\x011\x02", sys_flag=0xC0), QUEUE)
    assert message.properties == {"a": "\ufffd"}


def test_damage_is_an_error() -> None:
    good = record(b"body")
    for bad in (good[:-1], good[:50], b"\x00" * len(good), good[:90] + b"X" + good[91:]):
        for decode in (decode_messages, decode_batches):
            with pytest.raises(RecordError):
                decode(bad, QUEUE)
    with pytest.raises(RecordError):
        decode_messages(record(b"not deflated", sys_flag=0x301), QUEUE)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_our_own_errors(data: bytes) -> None:
    try:
        messages = decode_messages(data, QUEUE)
    except RaptorMQError:
        return
    assert messages == []
