"""Conversion of Arrow batches to messages, without Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.errors import RowError
from pyspark_raptormq.sink.encoder import RowEncoder
from pyspark_raptormq.sink.options import SinkOptions
from pyspark_raptormq.sink.rows import Place, RowReader
from raptormq.client import Delay, Message
from raptormq.protocol.message_id import UniqueIdFactory

OPTIONS = SinkOptions(Connection(("127.0.0.1:1",)), topic="t")
STRINGS = pa.map_(pa.string(), pa.string())


def batch(**columns: tuple[pa.DataType, list[Any]]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def test_every_column_becomes_its_part_of_the_message() -> None:
    due = dt.datetime(2026, 1, 2, 3, 4, 5, 6999, dt.UTC)
    rows = batch(
        body=(pa.string(), ["a", "b"]),
        tags=(pa.string(), ["x", None]),
        keys=(pa.list_(pa.string()), [["k1", None, "k2"], None]),
        properties=(STRINGS, [[("p", "1"), ("q", None)], None]),
        deliverTime=(pa.timestamp("us", "UTC"), [due, None]),
        shardingKey=(pa.string(), ["s", None]),
    )
    [found] = RowReader(OPTIONS, 0).messages(rows)
    properties = {"p": "1", "__SHARDINGKEY": "s"}
    first = Message("t", b"a", "x", ("k1", "k2"), properties, delay=Delay.until(int(due.timestamp() * 1000)))
    assert found.messages == [first, Message("t", b"b")]
    assert found.places == [Place("s"), Place()]
    assert found.body_bytes == 2


def test_keys_may_be_words() -> None:
    [found] = RowReader(OPTIONS, 0).messages(
        batch(value=(pa.binary(), [b"a", b"b", b"c"]), keys=(pa.string(), [" k1  k2", None, ""]))
    )
    assert [message.keys for message in found.messages] == [("k1", "k2"), (), ()]
    assert found.places is None


def test_messages_share_no_properties() -> None:
    [found] = RowReader(OPTIONS, 0).messages(batch(value=(pa.binary(), [b"a", b"b"]), tags=(pa.string(), ["x", "x"])))
    assert found.messages[0].properties is not found.messages[1].properties


def test_large_types_are_read_alike() -> None:
    rows = batch(value=(pa.large_binary(), [b"a"]), keys=(pa.large_list(pa.large_string()), [["k"]]))
    [found] = RowReader(OPTIONS, 0).messages(rows)
    assert found.messages == [Message("t", b"a", keys=("k",))]


def test_portions_are_bounded_and_rows_are_counted_over_batches() -> None:
    reader = RowReader(OPTIONS, 7)
    large = batch(value=(pa.binary(), [b"x" * 100_000] * 7))
    portions = list(reader.messages(large))
    assert [(each.first, len(each.messages)) for each in portions] == [(1, 3), (4, 3), (7, 1)]
    small = list(reader.messages(batch(value=(pa.binary(), [b""] * 1100))))
    assert [(each.first, len(each.messages)) for each in small] == [(8, 512), (520, 512), (1032, 76)]
    with pytest.raises(RowError, match="row 1109 of partition 7 has no body"):
        list(reader.messages(batch(value=(pa.binary(), [b"", None]))))


def test_a_batch_may_be_a_slice_or_empty() -> None:
    reader = RowReader(OPTIONS, 0)
    whole = batch(value=(pa.string(), ["a", "b", "c"]), queueId=(pa.int32(), [1, None, 3]))
    assert list(reader.messages(whole.slice(0, 0))) == []
    [found] = reader.messages(whole.slice(1))
    assert [message.body for message in found.messages] == [b"b", b"c"]
    assert found.places == [Place(), Place(None, None, 3)]


def test_the_topic_comes_from_the_option_else_from_the_column() -> None:
    rows = batch(value=(pa.string(), ["a", "b"]), topic=(pa.string(), ["x", None]))
    [found] = RowReader(OPTIONS, 0).messages(rows)
    assert [message.topic for message in found.messages] == ["t", "t"]
    by_column = SinkOptions(OPTIONS.connection)
    [found] = RowReader(by_column, 0).messages(rows.slice(0, 1))
    assert [message.topic for message in found.messages] == ["x"]
    with pytest.raises(RowError, match="row 2 of partition 0 has no topic"):
        list(RowReader(by_column, 0).messages(rows))


def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    limited = SinkOptions(OPTIONS.connection, topic="t", max_message_bytes=2048)
    fits = batch(value=(pa.binary(), [b"x" * 2048]))
    assert len(list(RowReader(limited, 0).messages(fits))) == 1
    with pytest.raises(RowError, match="row 2 of partition 0 has a body of 2049 bytes; the limit is 2048"):
        list(RowReader(limited, 0).messages(batch(value=(pa.binary(), [b"", b"x" * 2049]))))


@pytest.mark.parametrize(
    ("column", "kind", "good", "bad", "reason"),
    [
        ("tags", pa.string(), "JFK", "*", r"no filter can select the tag '\*'; a row without a tag has null"),
        ("tags", pa.string(), None, " ", "no filter can select the tag ' '"),
        ("tags", pa.string(), "", "JFK ", "no filter can select the tag 'JFK '"),
        ("keys", pa.list_(pa.string()), ["a", None], ["a b"], "a key must have at least one character and no space"),
        ("keys", pa.list_(pa.string()), [], ["a", ""], "a key must have at least one character and no space"),
        (
            "properties",
            STRINGS,
            [("number", "1"), ("__SHARDINGKEY", "s")],
            [("TAGS", "JFK"), ("number", "1"), ("KEYS", "k")],
            "column properties has the reserved names KEYS, TAGS. Read the source with includeProperties=user",
        ),
    ],
)
def test_row_that_breaks_a_rule_is_refused_by_its_number(
    column: str, kind: pa.DataType, good: Any, bad: Any, reason: str
) -> None:
    rows = batch(value=(pa.binary(), [b"a", b"b", b"c"]), **{column: (kind, [good, good, bad])})
    assert len(list(RowReader(OPTIONS, 4).messages(rows.slice(0, 2)))) == 1
    encoder = RowEncoder(OPTIONS, UniqueIdFactory(b"\x7f\0\0\1", 1, 1), lambda: 0)
    for reader in (RowReader(OPTIONS, 4), RowReader(OPTIONS, 4, encoder)):
        with pytest.raises(RowError, match=f"row 3 of partition 4 cannot be sent: {reason}"):
            list(reader.read(rows))


@pytest.mark.parametrize("topic", ["TBW102", "%RETRY%billing", "%DLQ%billing", "rmq_sys_STAGED", "no topic"])
def test_row_for_a_topic_that_is_not_for_applications_is_refused(topic: str) -> None:
    by_column = SinkOptions(OPTIONS.connection)
    encoder = RowEncoder(by_column, UniqueIdFactory(b"\x7f\0\0\1", 1, 1), lambda: 0)
    for topics in (["t", topic], [topic, topic]):
        rows = batch(value=(pa.binary(), [b"a", b"b"]), topic=(pa.string(), topics))
        with pytest.raises(RowError, match=rf"row {topics.index(topic) + 1} of partition 0 cannot be sent: topic "):
            list(RowReader(by_column, 0, encoder).read(rows))
