"""Damaged messages and batches: an error, or skipped with a warning and counted."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.damage import Damage
from pyspark_raptormq.decode import RecordDecoder
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from raptormq.client import PullResult, PullStatus
from raptormq.errors import RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.inner_batch import INNER_BATCH, is_inner_batch, unwrap
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.record import StoredMessage, SysFlag, encode_record
from tests.spark.sample_records import COMPRESSIONS, QUEUE, buffer_of, message, properties_text

ZLIB = int(SysFlag.COMPRESSED)


def batch(offset: int, *own: str, stated: int | None = None) -> StoredMessage:
    """Return a batch whose messages have their offsets as bodies, with these properties."""
    records = [(0, b"%d" % number, text.encode()) for number, text in enumerate(own, offset)]
    properties = properties_text(INNER_NUM=str(len(own) if stated is None else stated))
    return message(offset, encode_batch(records), properties, sys_flag=INNER_BATCH)


def compressed(whole: StoredMessage) -> StoredMessage:
    whole.body, whole.sys_flag = zlib.compress(whole.body), whole.sys_flag | ZLIB
    return whole


def cut(whole: StoredMessage) -> StoredMessage:
    whole.body = whole.body[:-1]
    return whole


NESTED = properties_text(INNER_NUM="1")
DAMAGED: dict[str, Callable[[], StoredMessage]] = {
    "cut": lambda: cut(batch(4, "", "")),
    "count": lambda: batch(4, "", "", stated=3),
    "nested": lambda: batch(4, "", NESTED),
    "nested, compressed": lambda: compressed(batch(4, NESTED, "")),
    "not compressed": lambda: cut(compressed(batch(4, "", ""))),
    "message": lambda: message(4, b"not zlib", sys_flag=ZLIB),
}


def offsets(data: bytes, damage: Damage | None, columns: tuple[str, ...] = ("queueOffset", "value")) -> list[int]:
    decoder = RecordDecoder(QUEUE, columns, damage=damage)
    found: list[int] = []
    for part in decoder.decode(data, 0, 2**62):
        found += part.column("queueOffset").to_pylist()
        if "value" in columns:
            assert part.column("value").to_pylist() == [b"%d" % offset for offset in found[-part.num_rows :]]
    return found


@pytest.mark.parametrize("kind", DAMAGED)
def test_one_is_an_error_or_left_out_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    data = buffer_of(
        message(0, b"0"), batch(1, "", "", ""), DAMAGED[kind](), compressed(batch(6, "", "")), batch(8, "")
    )
    with pytest.raises(RecordError, match=r"offset 4 of flights@broker-a:3 is damaged.*failOnDamage to false"):
        offsets(data, None)
    damage = Damage(QUEUE, fail=False)
    assert offsets(data, damage) == [0, 1, 2, 3, 6, 7, 8]
    assert damage.left_out == 1
    (line,) = caplog.messages
    assert line.startswith("offset 4 of flights@broker-a:3 is damaged: ")


def test_nothing_but_damage_is_nothing() -> None:
    for kind in DAMAGED.values():
        assert offsets(buffer_of(kind()), Damage(QUEUE, fail=False)) == []


def test_a_body_that_nobody_wants_is_not_looked_into() -> None:
    assert offsets(buffer_of(DAMAGED["message"]()), None, ("queueOffset",)) == [4]


def test_a_nested_batch_is_one_by_its_properties_not_by_its_body() -> None:
    body = encode_batch([(0, NESTED.encode(), b"")])
    harmless = message(4, body, properties_text(INNER_NUM="1"), sys_flag=INNER_BATCH)
    assert offsets(buffer_of(harmless), None, ("queueOffset",)) == [4]


def test_records_that_do_not_have_their_crc_are_left_out() -> None:
    records = [bytearray(encode_record(each)) for each in (message(0, b"0"), batch(1, "", ""), message(3, b"3"))]
    records[1][100] ^= 1
    records[2][-11] ^= 1  # before the topic with its length and the length of empty properties
    data = b"".join(records)
    with pytest.raises(RecordError, match=r"offset 1 of .* CRC"):
        offsets(data, None)
    damage = Damage(QUEUE, fail=False)
    assert offsets(data, damage) == [0]
    assert damage.left_out == 2


@st.composite
def damaged_queues(draw: st.DrawFn) -> list[StoredMessage]:
    """Batches, some of them compressed or with a wrong byte, and single messages."""
    stored: list[StoredMessage] = []
    offset = 0
    for count in draw(st.lists(st.integers(0, 4), min_size=1, max_size=6)):
        whole = batch(offset, *["TAGS\x01a\x02"] * count) if count else message(offset, b"%d" % offset)
        way = draw(st.sampled_from([0, *COMPRESSIONS])) if count else 0
        if way:
            whole.body, whole.sys_flag = COMPRESSIONS[way](whole.body), whole.sys_flag | way
        if count and draw(st.booleans()):
            body = bytearray(whole.body)
            body[draw(st.integers(0, len(body) - 1))] ^= 1 << draw(st.integers(0, 7))
            whole.body = bytes(body)
        stored.append(whole)
        offset += count or 1
    return stored


@given(damaged_queues())
def test_what_is_left_is_what_the_protocol_can_read(stored: list[StoredMessage]) -> None:
    expected: list[tuple[int, bytes]] = []
    left_out = 0
    for record in stored:
        try:
            single = unwrap(record) if is_inner_batch(record.sys_flag) else [record]
            expected += [(each.queue_offset, each.body) for each in single]
        except RecordError:
            left_out += 1
    damage = Damage(QUEUE, fail=False)
    parts = RecordDecoder(QUEUE, ("queueOffset", "value"), damage=damage).decode(buffer_of(*stored), 0, 2**62)
    rows: list[dict[str, Any]] = [row for part in parts for row in part.to_pylist()]
    assert [(row["queueOffset"], row["value"]) for row in rows] == expected
    assert damage.left_out == left_out


class OneAnswer:
    """A queue with one response."""

    def __init__(self, body: bytes, end: int) -> None:
        self._result = PullResult(QUEUE, PullStatus.FOUND, end, 0, end, body)

    def start_pull(self, _: MessageQueue, *__: object) -> Future[PullResult]:
        future: Future[PullResult] = Future()
        future.set_result(self._result)
        return future


def test_a_task_says_how_much_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    count = 50
    source = OneAnswer(buffer_of(*(batch(offset, NESTED) for offset in range(count)), message(count)), count + 1)
    lenient = SourceOptions(Connection(("127.0.0.1:1",)), topics=("t",), columns=("queueOffset",), fail_on_damage=False)
    (found,) = scan(QueueRange(QUEUE, 0, count + 1), lenient, source)
    assert found.to_pydict() == {"queueOffset": [count]}
    assert caplog.messages[-1] == "flights@broker-a:3: skipped 50 damaged messages and batches"
    assert len(caplog.messages) == 21
    with pytest.raises(RecordError, match="failOnDamage"):
        list(scan(QueueRange(QUEUE, 0, count + 1), replace(lenient, fail_on_damage=True), source))


def test_without_damage_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Damage(QUEUE).sum_up()
    assert caplog.messages == []
