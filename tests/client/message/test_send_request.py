"""Preparation of messages for a send: rejected messages, and encoded requests."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.client import Message, MessageExt, MessageQueue, ProducerConfig
from raptormq.client.message.send_request import is_mergeable, prepare_batch, prepare_message
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, decode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import decode_properties

NOW_MS = 1_700_000_000_000
DEFAULT = ProducerConfig()
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02 "), min_size=1, max_size=8).filter(
    lambda word: word not in names.RESERVED
)
tags_and_keys = st.tuples(st.none() | words, st.lists(words, max_size=2).map(tuple))


def ids() -> UniqueIdFactory:
    return UniqueIdFactory(bytes(4), pid=1, salt=2)


def test_a_message_carries_its_properties_and_a_unique_id() -> None:
    message = Message("t", b"x", "A", ("k1", "k2"), {"colour": "red"}, flag=5)
    outgoing = prepare_message(message, ids(), NOW_MS, DEFAULT)
    assert (outgoing.code, outgoing.topic, outgoing.body) == (RequestCode.SEND_MESSAGE_V2, "t", b"x")
    assert (outgoing.flag, outgoing.sys_flag) == (5, 0)
    assert decode_properties(outgoing.properties) == {
        "colour": "red",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "WAIT": "true",
        "UNIQ_KEY": outgoing.message_id,
    }
    assert len(outgoing.message_id) == 32


def test_a_unique_id_of_the_senders_own_is_kept() -> None:
    mine = {"UNIQ_KEY": "mine"}
    single = prepare_message(Message("t", b"x", properties=mine), ids(), NOW_MS, DEFAULT)
    assert single.message_id == "mine"
    assert single.properties.count("UNIQ_KEY") == 1
    batch = prepare_batch([Message("t", b"x", properties=mine), Message("t", b"y")], ids(), NOW_MS, DEFAULT)
    assert batch.message_id.split(",")[0] == "mine"
    first, second = decode_batch(batch.body)
    assert decode_properties(first.properties.decode())["UNIQ_KEY"] == "mine"
    assert decode_properties(second.properties.decode())["UNIQ_KEY"] == batch.message_id.split(",")[1]


@given(st.lists(tags_and_keys, min_size=1, max_size=8), st.lists(st.dictionaries(words, words, max_size=2)))
def test_a_batch_carries_what_each_message_has_of_its_own(
    labels: list[tuple[str | None, tuple[str, ...]]], properties: list[dict[str, str]]
) -> None:
    own = [properties[n] if n < len(properties) else {} for n in range(len(labels))]
    messages = [Message("t", b"%d" % n, tags, keys, own[n], flag=n) for n, (tags, keys) in enumerate(labels)]
    outgoing = prepare_batch(messages, ids(), NOW_MS, DEFAULT)
    unique_ids = outgoing.message_id.split(",")
    records = decode_batch(outgoing.body)
    assert [record.body for record in records] == [message.body for message in messages]
    assert [record.flag for record in records] == list(range(len(messages)))
    for message, record, unique_id in zip(messages, records, unique_ids, strict=True):
        expected = message.all_properties() | {"UNIQ_KEY": unique_id}
        assert decode_properties(record.properties.decode()) == expected
    assert len(set(unique_ids)) == len(messages)


def test_a_batch_as_a_whole_has_an_id_and_the_wait_flag() -> None:
    outgoing = prepare_batch([Message("t", b"x", wait_stored=False)], ids(), NOW_MS, DEFAULT)
    properties = decode_properties(outgoing.properties)
    assert outgoing.code == RequestCode.SEND_BATCH_MESSAGE
    assert properties["WAIT"] == "false"
    assert properties["UNIQ_KEY"] not in outgoing.message_id


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (ProducerConfig(compress_batches=True), "k1 k2 k3"),
        (ProducerConfig(encrypt=True), "k1 k2 k3"),
        (ProducerConfig(compress_batches=True, compress_over_bytes=0), None),
        (DEFAULT, None),
    ],
)
def test_a_batch_that_nobody_may_look_into_carries_the_keys_of_all(config: ProducerConfig, keys: str | None) -> None:
    messages = [Message("t", b"", keys=own) for own in (("k1", "k2"), (), ("k2",), ("k3",))]
    outgoing = prepare_batch(messages, ids(), NOW_MS, config)
    assert decode_properties(outgoing.properties).get("KEYS") == keys
    own = [decode_properties(record.properties.decode()).get("KEYS") for record in decode_batch(outgoing.body)]
    assert own == ["k1 k2", None, "k2", "k3"]


def test_a_batch_whose_messages_have_no_keys_has_none() -> None:
    outgoing = prepare_batch([Message("t", b"")], ids(), NOW_MS, ProducerConfig(encrypt=True))
    assert "KEYS" not in decode_properties(outgoing.properties)


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "at least one"),
        ([Message("t", b""), Message("u", b"")], "must have the same topic"),
        ([Message("t", b""), Message("t", b"", wait_stored=False)], "wait_stored"),
        ([Message("t", b"", properties={"DELAY": "3"})], "delayed"),
        ([Message("t", b"", priority=0)], "cannot have a priority"),
        ([Message("t", b"", properties={"_SYS_MSG_PRIORITY_": "3"})], "priority= in place of _SYS_MSG_PRIORITY_"),
        ([Message("t", b""), Message("t", b"", properties={"TIMER_DELAY_MS": "3"})], "delayed"),
        ([Message("%RETRY%g", b"")], "a batch cannot go to %RETRY%g: retry topics and dead letters take single"),
        ([Message("%DLQ%g", b"")], "a batch cannot go to %DLQ%g: retry topics and dead letters take single messages"),
        ([Message("t", b"x" * 600), Message("t", b"x" * 600)], "larger than 1000"),
        (
            [Message("t", b"", properties={"TRAN_MSG": "true"})],
            "TRAN_MSG are reserved: TransactionProducer in place",
        ),
        ([Message("no topic", b"")], "no topic"),
        ([Message("SELF_TEST_TOPIC", b"")], "SELF_TEST_TOPIC"),
        ([Message("t", b"", tags="a\x01b")], "separators"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused_with_the_rule(messages: list[Message], rule: str) -> None:
    with pytest.raises(MessageError, match=rule):
        prepare_batch(messages, ids(), NOW_MS, ProducerConfig(max_message_bytes=1000))


def test_a_batch_has_no_more_messages_than_brokers_can_count() -> None:
    most = [Message("t", b"")] * MAX_BATCH_RECORDS
    assert prepare_batch(most, ids(), NOW_MS, DEFAULT).count == 32_767
    with pytest.raises(MessageError, match="at most 32767 messages, not 32768: split the list with split_messages"):
        prepare_batch([*most, most[0]], ids(), NOW_MS, DEFAULT)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (Message("", b""), "blank"),
        (Message("t" * 128, b""), r"longer than topic max length. \(128 characters, at most 127\)"),
        (Message("t", b"x" * 1001), "1001 bytes"),
        (
            Message("t", b"", properties={"RETRY_TOPIC": "x", "CLUSTER": "y"}),
            "CLUSTER, RETRY_TOPIC are reserved: for a forwarded mess",
        ),
        (
            Message("t", b"", properties={"TAGS": "x", "KEYS": "y"}),
            "reserved: keys= in place of KEYS, tags= in place of TAGS",
        ),
        (Message("t", b"", properties={"a": ""}), "empty value"),
        (Message("t", b"", keys=("a\x02b",)), "separators"),
        (Message("SCHEDULE_TOPIC_XXXX", b""), "brokers"),
        (Message("t", b"", tags="\ud800"), "UTF-8"),
        (Message("t", b"", properties={"UNIQ_KEY": ""}), "UNIQ_KEY"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused_with_the_rule(message: Message, rule: str) -> None:
    with pytest.raises(MessageError, match=rule):
        prepare_message(message, ids(), NOW_MS, ProducerConfig(max_message_bytes=1000))


def test_what_was_received_is_sent_on_with_the_properties_of_the_application() -> None:
    properties = {"region": "north", "KEYS": "k1 k2", "TAGS": "a", "WAIT": "true", "UNIQ_KEY": "id", "CLUSTER": "c"}
    more = {"DELAY": "3", "RETRY_TOPIC": "t", "__SHARDINGKEY": "s", "__ENCRYPTION_KEY": "k", "__INNER_IDS": "i"}
    received = MessageExt("t", b"body", properties | more, MessageQueue("t", "b", 0), 7, 8, "id", "offset id", 1, 2)
    message = Message("u", received.body, received.tags, received.keys, received.user_properties)
    sent = decode_properties(prepare_message(message, ids(), NOW_MS, DEFAULT).properties)
    assert sent.pop("UNIQ_KEY") != "id"
    assert sent == {"region": "north", "KEYS": "k1 k2", "TAGS": "a", "WAIT": "true"}


def test_a_priority_is_a_property_and_keeps_a_message_out_of_batches() -> None:
    message = Message("t", b"", priority=0)
    assert decode_properties(prepare_message(message, ids(), NOW_MS, DEFAULT).properties)["_SYS_MSG_PRIORITY_"] == "0"
    assert not is_mergeable(message, MessageQueue("t", "b", 0))
    assert is_mergeable(Message("t", b""), None)


def test_a_delay_may_be_asked_for() -> None:
    outgoing = prepare_message(Message("t", b"", properties={"DELAY": "3"}), ids(), NOW_MS, DEFAULT)
    assert decode_properties(outgoing.properties)["DELAY"] == "3"


def test_only_bodies_that_get_smaller_are_deflated() -> None:
    text = b"abc" * 2000
    deflated = prepare_message(Message("t", text), ids(), NOW_MS, DEFAULT)
    assert zlib.decompress(deflated.body) == text
    assert deflated.sys_flag == 0x301
    noise = deflated.body  # a second compression would only enlarge it
    as_it_is = prepare_message(Message("t", noise), ids(), NOW_MS, ProducerConfig(compress_over_bytes=1))
    assert (as_it_is.body, as_it_is.sys_flag) == (noise, 0)
    small = prepare_message(Message("t", b"x" * 4095), ids(), NOW_MS, DEFAULT)
    assert (len(small.body), small.sys_flag) == (4095, 0)
    never = prepare_message(Message("t", text), ids(), NOW_MS, ProducerConfig(compress_over_bytes=0))
    assert (never.body, never.sys_flag) == (text, 0)
