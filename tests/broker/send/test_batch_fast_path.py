"""The fast path for inner batches: it stores the same records as the general path, and leaves unusual batches to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq.broker.config.config import BrokerConfig
from raptormq.broker.delay.timer_message import TimerRules
from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.admission import Admission
from raptormq.broker.send.batch_fast_path import BatchFastPath
from raptormq.broker.tables.topics import TopicTable
from raptormq.errors import HeaderError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.storage.queue.append_batches import PendingBatch
from raptormq.transport.router import Refused

HOST = b"\x7f\0\0\1\0\0\0\5"
COMMON = b"CLUSTER\x01c\x02"
USUAL = {
    "a": "group", "b": "b", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01\x02UNIQ_KEY\x01b9\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "true",
}  # fmt: skip
BODY = encode_batch([(0, b"x", b"UNIQ_KEY\x01m%d\x02" % number) for number in range(2)])


def configs(**changes: object) -> dict[str, TopicConfig]:
    config = TopicConfig("b", 8, 8, attributes={"queue.type": "BatchCQ"})
    for name, value in changes.items():
        setattr(config, name, value)
    return {"b": config}


def admit(
    fields: dict[str, str], body: bytes = BODY, topics: dict[str, TopicConfig] | None = None
) -> AcceptedSend | None:
    usual = BatchFastPath(topics if topics is not None else configs(), COMMON)
    return usual.admit(RemotingCommand(320, fields, body, 7), HOST, 1000)


def test_the_record_of_a_usual_batch() -> None:
    admitted = admit(USUAL)
    assert admitted is not None
    record = admitted.pending
    assert isinstance(record, PendingBatch)
    properties = b"KEYS\x01\x02UNIQ_KEY\x01b9\x02WAIT\x01true\x02CLUSTER\x01c\x02INNER_NUM\x012\x02"
    assert tuple(record) == ("b", 3, BODY, properties, 0, 1_700_000_000_000, HOST, 0, INNER_BATCH, 0, 0)
    assert (record.messages, record.texts, record.keys) == (2, [], b"m0m1b9")
    assert admitted[2:] == (False, 1, 3, "b9", True, "", 2, "")


UNUSUAL: dict[str, dict[str, str]] = {
    "no times": {"j": ""},
    "no number": {"e": "x"},
    "negative queue": {"e": "-1"},
    "no such queue": {"e": "8"},
    "another topic": {"b": "c"},
    "compressed": {"f": "1"},
    "prepared": {"f": "4"},
    "flag beyond 32 bits": {"h": "2147483648"},
    "time beyond 64 bits": {"g": "9223372036854775808"},
    "times below 0": {"j": "-1"},
    "no unique key": {"i": "WAIT\x01true\x02"},
    "an empty unique key": {"i": "UNIQ_KEY\x01\x02"},
    "no end": {"i": "UNIQ_KEY\x01b9"},
    "two unique keys": {"i": "UNIQ_KEY\x01b9\x02UNIQ_KEY\x010\x02"},
    "an odd unique key": {"i": 'UNIQ_KEY\x01b"9\x02'},
    "a longer name": {"i": "MY_UNIQ_KEY\x01b9\x02"},
    "delay": {"i": "UNIQ_KEY\x01b9\x02DELAY\x013\x02"},
    "timer": {"i": "TIMER_DELAY_SEC\x013\x02UNIQ_KEY\x01b9\x02"},
    "a number": {"i": "UNIQ_KEY\x01b9\x02INNER_NUM\x012\x02"},
    "too long": {"i": f"UNIQ_KEY\x01b9\x02a\x01{'a' * 32_700}\x02"},
}


@pytest.mark.parametrize("changes", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_headers_are_left_to_others(changes: dict[str, str]) -> None:
    assert admit(USUAL | changes) is None


@pytest.mark.parametrize("name", "abcdefghij")
def test_a_missing_field_is_left_to_others(name: str) -> None:
    assert admit({key: value for key, value in USUAL.items() if key != name}) is None


@pytest.mark.parametrize(
    "changes", [{"perm": 4}, {"attributes": {}}, {"topic_filter_type": "MULTI_TAG"}, {"write_queue_nums": 3}]
)
def test_other_topics_are_left_to_others(changes: dict[str, object]) -> None:
    assert admit(USUAL, topics=configs(**changes)) is None
    assert admit(USUAL, topics={}) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        BODY[:-1],
        encrypt_body(BODY, 0, "k", b"k" * 16, b"n" * 12),
        encode_batch([(0, bytes(1000), b"")]),
        encode_batch([(0, b"", b"INNER_NUM\x011\x02")]),
    ],
    ids=["empty", "cut", "encrypted", "too large", "nested"],
)
def test_odd_bodies_are_left_to_others(body: bytes) -> None:
    assert admit(USUAL, body) is None


def headers() -> Iterator[st.SearchStrategy[tuple[str, str]]]:
    numbers = st.sampled_from(["0", "1", "3", "8", "256", "2147483648", "x", "", " 2 "])
    pairs = ["WAIT\x01false\x02", "WAIT\x01true\x02", "TAGS\x01own\x02", "KEYS\x01a b\x02", "KEYS\x01 \x02", "odd"]
    pairs += ["UNIQ_KEY\x01bb\x02", "UNIQ_KEY\x01long\x02", "DELAY\x010\x02", "INNER_NUM\x012\x02", "a\x01\xe9\x02"]
    for name in "efhj":
        yield st.tuples(st.just(name), numbers)
    yield st.tuples(st.just("i"), st.lists(st.sampled_from(pairs), max_size=4).map("".join))


MESSAGES = st.sampled_from([b"UNIQ_KEY\x01m1\x02", b"UNIQ_KEY\x01m2\x02", b"UNIQ_KEY\x01m1\x02TAGS\x01T\x02", b""])


def both(fields: dict[str, str], body: bytes) -> Iterator[tuple[object, ...] | str]:
    """Send a batch with the code for batches, and with that of single messages (310), and return the results."""
    config = BrokerConfig.from_pairs({"autoCreateTopicEnable": "false"})
    topics = TopicTable(TopicConfigTable(configs(), DataVersion()), lambda: 0)
    unused: Any = None
    admission = Admission(
        config,
        topics,
        unused,
        lambda: 0,
        unused,
        TimerRules(config.timers, lambda: 0),
        unused,
    )
    for code in (320, 310):
        try:
            admitted = admission.admit(RemotingCommand(code, dict(fields), body, 7), HOST)
        except (Refused, HeaderError) as error:
            yield str(error)
        else:
            pending = admitted.pending
            seen = (pending.messages, pending.texts, pending.keys) if isinstance(pending, PendingBatch) else ()
            yield tuple(pending), seen, admitted[2:]


@given(st.lists(st.one_of(*headers()), max_size=2), st.lists(MESSAGES, max_size=3))
def test_both_ways_end_equal(changes: list[tuple[str, str]], texts: list[bytes]) -> None:
    quick, long = both(USUAL | dict(changes), encode_batch([(0, b"x", text) for text in texts]))
    assert quick == long
