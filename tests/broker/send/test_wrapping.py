"""The record of a batch: its properties, and the known fields of its messages."""

from __future__ import annotations

import pytest

from raptormq.broker.send.inner_batch import Wrapper, wrap
from raptormq.errors import RecordError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, encode_batch

COMMON = b"MSG_REGION\x01r\x02"


def text(number: int, more: str = "") -> bytes:
    return f"{more}UNIQ_KEY\x01m{number}\x02WAIT\x01true\x02".encode()


def wrapped(texts: list[bytes], properties: str = "UNIQ_KEY\x01bb\x02", unique_key: str = "bb") -> Wrapper:
    return wrap(encode_batch([(0, b"x", each) for each in texts]), properties, unique_key, COMMON, 0)


def test_messages_that_only_keys_tell_apart() -> None:
    assert wrapped([text(0), text(1)]) == (b"UNIQ_KEY\x01bb\x02MSG_REGION\x01r\x02INNER_NUM\x012\x02", 2, [], b"m0m1bb")


@pytest.mark.parametrize(
    ("texts", "properties", "unique_key"),
    [
        ([text(0), text(10)], "UNIQ_KEY\x01bb\x02", "bb"),
        ([text(0), text(1, "a\x01b\x02")], "UNIQ_KEY\x01bb\x02", "bb"),
        ([text(0), text(1)], "UNIQ_KEY\x01bbb\x02", "bbb"),
        ([text(0), text(1)], "UNIQ_KEY\x01b\xe9\x02", "b\xe9"),
        ([text(0), text(1)], "UNIQ_KEY\x01bb\x02KEYS\x01order\x02", "bb"),
        ([text(0, "KEYS\x01a\x02"), text(1, "KEYS\x01b\x02")], "UNIQ_KEY\x01bb\x02", "bb"),
    ],
    ids=["lengths", "properties", "length of the batch's", "not ASCII", "keys of the batch", "keys of the messages"],
)
def test_other_messages_are_known_by_their_properties(texts: list[bytes], properties: str, unique_key: str) -> None:
    found = wrapped(texts, properties, unique_key)
    assert (found.texts, found.keys, found.messages) == (texts, b"", 2)
    assert found.properties == properties.encode() + COMMON + b"INNER_NUM\x012\x02"


@pytest.mark.parametrize("more", ["", "a\x01b\x02"], ids=["alike", "different"])
def test_the_tag_of_all_messages_becomes_the_batch_s(more: str) -> None:
    texts = [text(0, "TAGS\x01T\x02"), text(1, "TAGS\x01T\x02" + more)]
    assert wrapped(texts).properties.endswith(b"INNER_NUM\x012\x02TAGS\x01T\x02")
    assert not wrapped(texts, "UNIQ_KEY\x01bb\x02TAGS\x01own\x02").properties.endswith(b"T\x02")
    assert not wrapped([*texts, text(2, "TAGS\x01U\x02")]).properties.endswith(b"T\x02")


@pytest.mark.parametrize("texts", [[text(0), text(1)], [text(0), text(10)]], ids=["alike", "different"])
def test_a_wrong_number_is_refused(texts: list[bytes]) -> None:
    assert wrapped(texts, "UNIQ_KEY\x01bb\x02INNER_NUM\x012\x02").messages == 2
    with pytest.raises(RecordError, match="declares 3 messages but contains 2"):
        wrapped(texts, "UNIQ_KEY\x01bb\x02INNER_NUM\x013\x02")


@pytest.mark.parametrize("more", ["", "a\x01b\x02"], ids=["alike", "different"])
def test_a_batch_in_a_batch_is_refused(more: str) -> None:
    with pytest.raises(RecordError, match="is a batch"):
        wrapped([text(0, "INNER_NUM\x012\x02" + more), text(1, "INNER_NUM\x012\x02")])


@pytest.mark.parametrize("more", [b"", b"no message"], ids=["", "damaged behind"])
def test_nobody_looks_at_messages_beyond_the_limit(more: bytes) -> None:
    most = encode_batch([(0, b"x" * (number % 2), b"") for number in range(MAX_BATCH_RECORDS)])
    assert wrap(most, "", "bb", COMMON, 0).messages == MAX_BATCH_RECORDS
    with pytest.raises(RecordError, match="more than 32767 messages"):
        wrap(most + encode_batch([(0, b"", b"")]) + more, "", "bb", COMMON, 0)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(RecordError, match="the batch is empty"):
        wrap(b"", "", "bb", COMMON, 0)
