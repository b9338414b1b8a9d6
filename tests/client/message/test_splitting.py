"""Lists that are split so that each part fits one request."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client import Message, ProducerConfig, split_messages
from raptormq.client.message.encryption import Encryptor
from raptormq.client.message.send_request import check_encrypted_size, prepare_batch
from raptormq.errors import ConfigError, MessageError
from raptormq.protocol.batch import MAX_BATCH_RECORDS
from raptormq.protocol.message_id import UniqueIdFactory


class Named:
    """A key with this name."""

    def __init__(self, key_id: str) -> None:
        self._key_id = key_id

    def current(self) -> tuple[str, bytes]:
        return self._key_id, bytes(16)

    def key(self, key_id: str) -> bytes:
        assert key_id == self._key_id
        return bytes(16)


@given(st.lists(st.integers(0, 900), max_size=30))
def test_all_parts_fit_and_keep_the_order(sizes: list[int]) -> None:
    messages = [Message("t", b"x" * size, keys=(f"k{number}",)) for number, size in enumerate(sizes)]
    parts = list(split_messages(messages, 2000))
    assert [message for part in parts for message in part] == messages
    ids = UniqueIdFactory(b"\x7f\0\0\1", 1, 2)
    for part in parts:
        prepare_batch(part, ids, 0, ProducerConfig(max_message_bytes=2000))


@given(st.lists(st.integers(0, 900), max_size=30), st.sampled_from(["k", "kä" * 60]))
def test_all_parts_fit_once_they_are_encrypted(sizes: list[int], key_id: str) -> None:
    messages = [Message("t", bytes(size)) for size in sizes]
    config = ProducerConfig(max_message_bytes=2000, compress_over_bytes=0, encrypt=True)
    ids = UniqueIdFactory(b"\x7f\0\0\1", 1, 2)
    for part in split_messages(messages, 2000, key_id=key_id):
        check_encrypted_size(Encryptor(Named(key_id), config).encrypt(prepare_batch(part, ids, 0, config)), config)


def test_parts_are_no_shorter_than_encryption_makes_them() -> None:
    """The size of the unique id is an upper bound."""
    [part, *_] = split_messages([Message("t", bytes(100))] * 100, 10_000, key_id="k1")
    config, ids = ProducerConfig(encrypt=True), UniqueIdFactory(b"\x7f\0\0\1", 1, 2)
    encrypted = Encryptor(Named("k1"), config).encrypt(prepare_batch(part, ids, 0, config))
    assert 10_000 * 0.85 < len(encrypted.body) <= 10_000


def test_a_message_larger_than_a_part_is_one_of_its_own() -> None:
    sizes = [100, 5_000, 100, 100]
    parts = split_messages([Message("t", bytes(size)) for size in sizes], 1000)
    assert [[len(message.body) for message in part] for part in parts] == [[100], [5_000], [100, 100]]


@pytest.mark.parametrize("wrong", [0, -1, "1000", True])
def test_a_size_is_a_number(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="max_bytes"):
        list(split_messages([Message("t", b"x")], wrong))


def test_the_name_of_a_key_is_text() -> None:
    with pytest.raises(ConfigError, match="key_id"):
        list(split_messages([Message("t", b"x")], key_id=cast("str", b"k1")))


def test_a_part_has_no_more_messages_than_a_batch_may_have() -> None:
    parts = list(split_messages([Message("t", b"")] * (MAX_BATCH_RECORDS + 1), 1 << 30))
    assert [len(part) for part in parts] == [MAX_BATCH_RECORDS, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"x",
        Message("t", cast("bytes", "x")),
        Message("t", b"", keys=cast("tuple[str]", 5)),
        Message("t", b"", "\ud800"),
        Message(cast("str", None), b"x"),
        Message("no topic", b"x"),
    ],
)
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    with pytest.raises(MessageError):
        list(split_messages([Message("t", b"x"), wrong]))


def test_bytes_are_counted_whatever_a_body_is_made_of() -> None:
    body = cast("bytes", memoryview(b"x" * 800).cast("i"))
    assert [len(part) for part in split_messages([Message("t", body)] * 4, 1000)] == [1] * 4


def test_messages_of_several_topics_are_no_batch() -> None:
    with pytest.raises(MessageError, match="same topic: t and u differ"):
        list(split_messages([Message("t", b"x"), Message("u", b"x")]))


def test_the_first_message_has_a_topic() -> None:
    with pytest.raises(MessageError, match="the topic of a message must be text, not None"):
        list(split_messages([Message(cast("str", None), b"x")]))
