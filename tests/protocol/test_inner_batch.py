"""Inner batches: unpacking, and errors of damaged batches."""

from __future__ import annotations

import zlib

import pytest

from raptormq.errors import RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import (
    INNER_BATCH,
    inner_count,
    is_inner_batch,
    understands_encrypted_batches,
    understands_inner_batches,
    unwrap,
)
from raptormq.protocol.language import Language
from raptormq.protocol.record import StoredMessage, SysFlag, decode_record, encode_record

MESSAGES = [(7, b"one", b"TAGS\x01a\x02"), (8, b"", b""), (9, "drei€".encode(), "k\x01ü\x02".encode())]


def wrapper(body: bytes, count: int | str = 3, *, sys_flag: int = INNER_BATCH) -> StoredMessage:
    return StoredMessage(
        "orders",
        3,
        body,
        f"UNIQ_KEY\x01BATCH\x02INNER_NUM\x01{count}\x02INNER_BASE\x0140\x02",
        sys_flag=sys_flag,
        queue_offset=40,
        physical_offset=4096,
        born_timestamp=11,
        store_timestamp=12,
        reconsume_times=2,
    )


def test_messages_have_their_own_content_and_the_wrappers_place() -> None:
    stored = decode_record(encode_record(wrapper(encode_batch(MESSAGES))))

    inner = unwrap(stored)

    assert [(each.flag, each.body, each.properties.encode()) for each in inner] == MESSAGES
    assert [each.queue_offset for each in inner] == [40, 41, 42]
    for each in inner:
        assert (each.topic, each.queue_id, each.physical_offset, each.sys_flag) == ("orders", 3, 4096, 0)
        assert (each.born_timestamp, each.store_timestamp, each.reconsume_times) == (11, 12, 0)


def test_a_compressed_batch_is_inflated_and_its_messages_are_not_marked_compressed() -> None:
    flags = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB | SysFlag.MULTI_TAGS)

    inner = unwrap(wrapper(zlib.compress(encode_batch(MESSAGES)), sys_flag=flags))

    assert [each.body for each in inner] == [body for _, body, _ in MESSAGES]
    assert {each.sys_flag for each in inner} == {int(SysFlag.MULTI_TAGS)}


def test_properties_that_are_not_utf8_are_replaced() -> None:
    [inner] = unwrap(wrapper(encode_batch([(0, b"", b"k\x01\xff\x02")]), 1))
    assert inner.properties == "k\x01\ufffd\x02"
    assert decode_record(encode_record(inner)).properties == inner.properties


def test_properties_that_are_too_long_once_they_are_replaced_do_not_cost_the_message() -> None:
    [inner] = unwrap(wrapper(encode_batch([(0, b"x", b"k\x01" + b"\xff" * 20_000 + b"\x02TAGS\x01a\x02")]), 1))
    assert (inner.body, inner.properties) == (b"x", "TAGS\x01a\x02__LEFT_OUT\x01k\x02")


def test_a_bomb_is_refused() -> None:
    flags = INNER_BATCH | int(SysFlag.COMPRESSED)
    body = encode_batch([(0, bytes(100_000), b"")])

    assert len(unwrap(wrapper(zlib.compress(body), 1, sys_flag=flags), len(body))) == 1
    with pytest.raises(RecordError, match="longer than"):
        unwrap(wrapper(zlib.compress(body), 1, sys_flag=flags), len(body) - 1)


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (encode_batch(MESSAGES), 2, "holds 3 messages"),
        (encode_batch(MESSAGES), 4, "holds 3 messages"),
        (encode_batch(MESSAGES)[:-1], 3, "truncated"),
        (encode_batch([(0, b"", b"INNER_NUM\x013\x02")]), 1, "contains another"),
        (b"", 0, "INNER_NUM"),
    ],
)
def test_a_batch_that_is_not_what_it_says_is_refused(body: bytes, count: int, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        unwrap(wrapper(body, count))


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("32767", 32_767)])
def test_counts_at_the_limits(text: str, count: int) -> None:
    assert inner_count(f"a\x01b\x02INNER_NUM\x01{text}\x02") == count


@pytest.mark.parametrize("text", ["0", "32768", "-1", "x", "²", "000001"])
def test_counts_beyond_the_limits(text: str) -> None:
    with pytest.raises(RecordError, match="INNER_NUM"):
        inner_count(f"INNER_NUM\x01{text}\x02")


def test_a_long_count_does_not_make_a_long_remark() -> None:
    with pytest.raises(RecordError, match="INNER_NUM") as caught:
        inner_count("INNER_NUM\x01" + "\x03" * 32_000 + "\x02")
    assert len(str(caught.value)) < 100


def test_a_batch_without_a_count_is_none() -> None:
    with pytest.raises(RecordError, match="INNER_NUM"):
        inner_count("XINNER_NUM\x013\x02")


def test_both_bits_make_a_wrapper() -> None:
    assert is_inner_batch(0xC1)
    assert not is_inner_batch(0x80)
    assert not is_inner_batch(0x40)


@pytest.mark.parametrize(
    ("language", "version", "able", "decrypts"),
    [
        (Language.JAVA, 413, True, False),
        (Language.JAVA, 479, True, False),
        (Language.PYTHON, 413, True, True),
        (Language.PYTHON, 412, False, False),
        (Language.JAVA, 412, False, False),
        (Language.GO, 479, False, False),
        (Language.NODE_JS, 479, False, False),
        (Language.CPP, 479, False, False),
    ],
)
def test_which_clients_take_batches_apart(language: int, version: int, able: bool, decrypts: bool) -> None:
    assert understands_inner_batches(language, version) is able
    assert understands_encrypted_batches(language, version) is decrypts
