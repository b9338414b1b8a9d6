"""Conversion of Arrow batches into messages, column by column, for rows that `encoder` cannot encode. No I/O.

The columns are described in `schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_raptormq.errors import RowError
from pyspark_raptormq.sink.encoder import EncodedPortion, RowEncoder, body_column
from pyspark_raptormq.sink.options import SinkOptions
from pyspark_raptormq.sink.row_rules import keys_fault, properties_fault, tag_fault, topic_fault
from raptormq.client import Delay, Message
from raptormq.protocol.properties import SHARDING_KEY

_T = TypeVar("_T")
_SLICE_ROWS = 512
_SLICE_BYTES = 256 * 1024


class Place(NamedTuple):
    """Queue selection of a row. Without any value the producer selects the queue."""

    sharding_key: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None


class Rows(NamedTuple):
    """Messages of consecutive rows."""

    first: int
    """Number of the first row within the task, counted from 1."""
    messages: list[Message]
    places: list[Place] | None
    """One item per message; None if no column selects queues."""
    body_bytes: int

    @property
    def topics(self) -> set[str]:
        """The topics of the messages."""
        return {message.topic for message in self.messages}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.messages)


class RowReader:
    """Converts the Arrow batches of one task into encoded batches or messages.

    After the first Arrow batch that the encoder cannot encode, all further rows become messages too. The producer
    sends messages after a delay, so encoded rows would overtake them.

    Args:
        options: topic and limits.
        partition: partition number of the task, for error messages.
        encoder: encodes batches; without it all rows become messages.
    """

    def __init__(self, options: SinkOptions, partition: int, encoder: RowEncoder | None = None) -> None:
        self._options = options
        self._partition = partition
        self._encoder = encoder
        self._next_row = 1

    def read(self, batch: pa.RecordBatch) -> Iterator[Rows | EncodedPortion]:
        """Yield the rows of a batch in portions: encoded ones, or messages of about 256 KiB.

        Raises:
            RowError: A row has no body, a body that is too large, or no topic, or breaks one of the `row_rules`.
        """
        if not batch.num_rows:
            return
        encoded = self._encoder.encode(batch, self._next_row) if self._encoder is not None else None
        if encoded is None:
            self._encoder = None
            yield from self.messages(batch)
        else:
            self._next_row += batch.num_rows
            yield from encoded

    def messages(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Yield the messages of a batch in portions of about 256 KiB.

        Raises:
            RowError: A row has no body, a body that is too large, or no topic, or breaks one of the `row_rules`.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        lengths = pc.fill_null(pc.binary_length(body_column(columns)), 0).to_numpy(zero_copy_only=False)
        start, size = 0, 0
        for index, length in enumerate(lengths.tolist()):
            size += length
            if size >= _SLICE_BYTES or index + 1 - start >= _SLICE_ROWS:
                yield self._rows(batch.slice(start, index + 1 - start), size)
                start, size = index + 1, 0
        if start < batch.num_rows:
            yield self._rows(batch.slice(start), size)

    def place_of(self, row: int) -> str:
        """Return the description of a row for error messages."""
        return f"row {row} of partition {self._partition}"

    def _rows(self, batch: pa.RecordBatch, body_bytes: int) -> Rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        first, self._next_row = self._next_row, self._next_row + batch.num_rows
        bodies = self._bodies(body_column(columns), first)
        topics = self._topics(columns, batch.num_rows, first)
        details = [name for name in ("tags", "keys", "properties", "deliverTime") if name in columns]
        if not details:
            messages = list(map(Message, topics, bodies))
        else:
            none: Sequence[Any] = [None] * batch.num_rows
            tags = self._tags(columns["tags"], first) if "tags" in columns else none
            keys = self._keys(columns["keys"], first) if "keys" in columns else [()] * batch.num_rows
            properties = self._properties(columns["properties"], first) if "properties" in columns else None
            messages = [
                Message(topic, body, tag or None, key, {} if properties is None else properties[index])
                for index, (topic, body, tag, key) in enumerate(zip(topics, bodies, tags, keys, strict=True))
            ]
            if "deliverTime" in columns:
                for message, at_us in zip(messages, columns["deliverTime"].cast(pa.int64()).to_pylist(), strict=True):
                    if at_us is not None:
                        message.delay = Delay.until(at_us // 1000)
        if "shardingKey" in columns:
            for message, sharding_key in zip(messages, _strings(columns["shardingKey"]), strict=True):
                if sharding_key:  # a property must not be empty
                    message.properties[SHARDING_KEY] = sharding_key
        return Rows(first, messages, _places(columns), body_bytes)

    def _bodies(self, column: pa.Array, first: int) -> list[bytes]:
        if column.null_count:
            row = first + pc.index(column.is_null(), True).as_py()
            raise RowError(f"{self.place_of(row)} has no body: it is null")
        limit = self._options.max_message_bytes
        lengths = pc.binary_length(column)
        if pc.max(lengths).as_py() > limit:
            index = pc.index(pc.greater(lengths, limit), True).as_py()
            raise RowError(
                f"{self.place_of(first + index)} has a body of {lengths[index].as_py()} bytes; the limit is {limit} "
                "(option maxMessageBytes, and maxMessageSize of the brokers)"
            )
        bodies: list[bytes] = column.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
        return bodies

    def _topics(self, columns: dict[str, pa.Array], rows: int, first: int) -> list[str]:
        if self._options.topic is not None:
            return [self._options.topic] * rows  # checked with the options
        column = columns["topic"]
        if column.null_count:
            row = first + pc.index(column.is_null(), True).as_py()
            raise RowError(f"{self.place_of(row)} has no topic: it is null, and option topic is not set")
        topics = _strings(column)
        self._check(topics, set(topics), topic_fault, first)
        return topics

    def _tags(self, column: pa.Array, first: int) -> list[str | None]:
        tags = _strings(column)
        self._check(tags, {tag for tag in tags if tag}, tag_fault, first)
        return tags

    def _keys(self, column: pa.Array, first: int) -> list[tuple[str, ...]]:
        """Return the keys of an array column, or the space-separated keys of a string column, as in RocketMQ."""
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            return [tuple(words.split()) if words else () for words in _strings(column)]
        keys = [tuple(key for key in keys if key is not None) if keys else () for keys in column.to_pylist()]
        self._check(keys, set(keys), keys_fault, first)
        return keys

    def _properties(self, column: pa.Array, first: int) -> list[dict[str, str]]:
        properties = [
            {name: value for name, value in pairs if value is not None} if pairs else {} for pairs in column.to_pylist()
        ]
        names = [frozenset(each) for each in properties]
        self._check(names, set(names), properties_fault, first)
        return properties

    def _check(self, values: list[_T], distinct: set[_T], fault_of: Callable[[_T], str | None], first: int) -> None:
        """Check the distinct values of a column; `first` is the row of the first value.

        Raises:
            RowError: A value breaks a rule.
        """
        faults = {value: fault for value in distinct if (fault := fault_of(value)) is not None}
        if faults:
            index = next(index for index, value in enumerate(values) if value in faults)
            raise RowError(f"{self.place_of(first + index)} cannot be sent: {faults[values[index]]}")


def _strings(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _places(columns: dict[str, pa.Array]) -> list[Place] | None:
    if "shardingKey" in columns:
        return [Place(sharding_key=key) for key in _strings(columns["shardingKey"])]
    if "queueId" not in columns:
        return None
    numbers = columns["queueId"].to_pylist()
    brokers = _strings(columns["brokerName"]) if "brokerName" in columns else [None] * len(numbers)
    return [Place(None, broker, number) for broker, number in zip(brokers, numbers, strict=True)]
