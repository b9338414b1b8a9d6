"""Arrow batches encoded column by column contain the same messages as those converted row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pyspark_raptormq.connection import Connection
from pyspark_raptormq.sink.encoder import EncodedPortion, EncodedRows, RowEncoder
from pyspark_raptormq.sink.options import SinkOptions
from pyspark_raptormq.sink.rows import RowReader, Rows
from raptormq.client import Message
from raptormq.client.message import MAX_KEYS_CHARS
from raptormq.protocol.message_id import UniqueIdFactory

OPTIONS = SinkOptions(Connection(("127.0.0.1:1",)), topic="t")
KEYS = pa.list_(pa.string())
BYTES, TEXT = pa.binary(), pa.string()
UNIQUE_KEY = "UNIQ_KEY"


def batch(**columns: tuple[pa.DataType, list[Any]]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def encoder(options: SinkOptions = OPTIONS) -> RowEncoder:
    return RowEncoder(options, UniqueIdFactory(b"\x7f\0\0\1", 1, 2), lambda: 0)


def encoded(rows: pa.RecordBatch, options: SinkOptions = OPTIONS) -> list[EncodedRows]:
    portions = encoder(options).encode(rows, 1)
    assert portions is not None
    return [each for portion in portions for each in portion.batches]


def messages_of(batches: Sequence[EncodedRows]) -> list[Message]:
    """Return the messages without their ids, which must be those of the batch."""
    found = [message for each in batches for message in each.batch.messages()]
    ids = [each for rows in batches for each in rows.batch.message_ids]
    assert [message.properties.pop(UNIQUE_KEY) for message in found] == ids
    assert len(set(ids)) == len(ids)
    return found


def by_row(rows: pa.RecordBatch, options: SinkOptions = OPTIONS) -> list[Message]:
    return [message for portion in RowReader(options, 0).messages(rows) for message in portion.messages]


@pytest.mark.parametrize(
    "rows",
    [
        batch(value=(BYTES, [b"a", b"", b"ccc"])),
        batch(body=(TEXT, ["ä", "b", "c"])),
        batch(value=(pa.large_binary(), [b"a", b"bb"]), keys=(pa.large_list(pa.large_string()), [["k"], ["l", "m"]])),
        batch(value=(BYTES, [b"a", b"b"]), tags=(TEXT, ["JFK", "JFK"])),
        batch(value=(BYTES, [b"a", b"b"]), tags=(TEXT, [None, None])),
        batch(value=(BYTES, [b"a", b"b"]), tags=(TEXT, ["", ""])),
        batch(value=(BYTES, [b"a", b"b", b"c", b"d"]), keys=(KEYS, [["ü", "all"], None, [], ["k4", "all"]])),
        batch(value=(BYTES, [b"a", b"b", b"c"]), keys=(TEXT, [" k1  k2", None, ""]), tags=(TEXT, ["x"] * 3)),
        batch(value=(BYTES, [b"a", b"b", b"c", b"d"]), keys=(KEYS, [["1"], ["2"], ["3"], ["4"]])).slice(1, 2),
    ],
    ids=["bodies", "strings", "large", "tag", "no tag", "empty tag", "keys", "words", "slice"],
)
def test_the_messages_are_the_same_as_row_by_row(rows: pa.RecordBatch) -> None:
    [found] = encoded(rows)
    assert messages_of([found]) == by_row(rows)
    assert (found.first, found.last) == (1, rows.num_rows)
    assert found.batch.tags == by_row(rows)[0].tags
    assert found.batch.keys == list(dict.fromkeys(key for message in by_row(rows) for key in message.keys))


def test_the_topic_may_come_from_the_column() -> None:
    rows = batch(value=(BYTES, [b"a", b"b"]), topic=(TEXT, ["x", "x"]))
    options = replace(OPTIONS, topic=None)
    assert messages_of(encoded(rows, options)) == by_row(rows, options)
    [portion] = list(encoder(options).encode(rows, 1) or ())
    assert (portion.topics, portion.row_count, portion.body_bytes) == ({"x"}, 2, 2)
    assert messages_of(encoded(rows)) == by_row(rows)


def test_batches_are_as_large_as_permitted_and_rows_are_counted() -> None:
    options = replace(OPTIONS, batch_max_bytes=10_000)
    rows = batch(value=(BYTES, [b"x" * (number % 900) for number in range(1000)]))
    found = encoded(rows, options)
    assert messages_of(found) == by_row(rows)
    sizes = [len(each.batch.body) for each in found]
    assert max(sizes) <= 10_000
    assert min(sizes[:-1]) > 9_000
    starts = [each.first for each in found]
    assert starts == [1, *(each.last + 1 for each in found[:-1])]
    assert found[-1].last == 1000


def test_the_keys_of_a_batch_fit_into_its_properties() -> None:
    rows = batch(value=(BYTES, [b""] * 300), keys=(KEYS, [[f"{number:0100}"] for number in range(300)]))
    found = encoded(rows)
    assert messages_of(found) == by_row(rows)
    chars = [sum(len(key) + 1 for key in each.batch.keys) for each in found]
    assert max(chars) <= MAX_KEYS_CHARS
    assert min(chars[:-1]) > MAX_KEYS_CHARS - 101


def test_staged_batches_do_not_list_their_keys() -> None:
    rows = batch(value=(BYTES, [b""] * 300), keys=(KEYS, [[f"{number:0100}"] for number in range(300)]))
    [found] = encoded(rows, replace(OPTIONS, exactly_once=True))
    assert messages_of([found]) == by_row(rows)
    assert not found.batch.keys


def test_ids_differ_between_many_rows() -> None:
    """Only 65,536 ids of a millisecond are distinct."""
    times = iter(range(100))
    options = replace(OPTIONS, batch_max_bytes=4 * 1024 * 1024)
    rows = batch(value=(BYTES, [b"x"] * 150_000))
    portions = RowEncoder(options, UniqueIdFactory(bytes(4), 1, 2), lambda: next(times)).encode(rows, 1)
    assert portions is not None
    assert len(messages_of([each for portion in portions for each in portion.batches])) == 150_000


@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        ({"tags": (TEXT, ["x", "y"])}, {}),
        ({"tags": (TEXT, ["x", None])}, {}),
        ({"tags": (TEXT, ["a||b"] * 2)}, {}),
        ({"tags": (TEXT, ["a\x02b"] * 2)}, {}),
        ({"tags": (TEXT, ["x" * 3000] * 2)}, {}),
        ({"topic": (TEXT, ["x", "y"])}, {"topic": None}),
        ({"topic": (TEXT, [None, None])}, {"topic": None}),
        ({"keys": (KEYS, [["k"], [""]])}, {}),
        ({"keys": (KEYS, [["k"], [None]])}, {}),
        ({"keys": (KEYS, [["k"], ["a\x01b"]])}, {}),
        ({"keys": (KEYS, [["k"], ["order 17"]])}, {}),
        ({"keys": (KEYS, [["k"], ["x "]])}, {}),
        ({"keys": (KEYS, [["k"], [" "]])}, {}),
        ({"topic": (TEXT, ["%RETRY%g"] * 2)}, {"topic": None}),
        ({}, {"topic": "%DLQ%g"}),
        ({"keys": (KEYS, [["k"], ["a" * MAX_KEYS_CHARS]])}, {}),
        ({"value": (BYTES, [b"", None])}, {}),
        ({"value": (BYTES, [b"", b"x" * 1024 * 128])}, {}),
        ({"value": (BYTES, [b"", b"x" * 2048])}, {"max_message_bytes": 2048}),
        ({"shardingKey": (TEXT, ["x", "x"])}, {}),
        ({"queueId": (pa.int32(), [1, 1])}, {}),
        ({"properties": (pa.map_(TEXT, TEXT), [None, None])}, {}),
        ({"deliverTime": (pa.timestamp("us", "UTC"), [None, None])}, {}),
        ({}, {"compress_batches": True}),
        ({}, {"encrypt": True}),
    ],
)
def test_other_rows_are_left(columns: dict[str, Any], changes: dict[str, Any]) -> None:
    plain = {"value": (BYTES, [b"a", b"b"])}
    assert encoder().encode(batch(**plain), 1) is not None
    assert encoder(replace(OPTIONS, **changes)).encode(batch(**plain | columns), 1) is None


def test_after_the_first_messages_nothing_is_encoded_any_more() -> None:
    """Encoded rows would overtake messages that the producer has not sent yet."""
    plain = batch(value=(BYTES, [b"a", b"b"]))
    mixed = batch(value=(BYTES, [b"a", b"b"]), tags=(TEXT, ["x", "y"]))
    reader = RowReader(OPTIONS, 0, encoder())
    assert list(reader.read(plain.slice(0, 0))) == []
    kinds = [type(portion) for rows in (plain, plain, mixed, plain) for portion in reader.read(rows)]
    assert kinds == [EncodedPortion, EncodedPortion, Rows, Rows]


def test_rows_are_numbered_over_both_kinds() -> None:
    plain = batch(value=(BYTES, [b"a", b"b"]))
    mixed = batch(value=(BYTES, [b"a", b"b"]), tags=(TEXT, ["x", "y"]))
    reader = RowReader(OPTIONS, 0, encoder())
    [first], [second], [third] = (list(reader.read(rows)) for rows in (plain, plain, mixed))
    assert isinstance(first, EncodedPortion)
    assert isinstance(second, EncodedPortion)
    assert isinstance(third, Rows)
    assert (first.batches[0].first, second.batches[0].first, third.first) == (1, 3, 5)
