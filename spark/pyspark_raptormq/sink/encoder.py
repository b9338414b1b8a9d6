"""Encoding of Arrow batches as batches of messages, column by column, without an object per row. No I/O.

Arrow joins the parts of all records, and the result is cut into requests. A record (`raptormq.protocol.batch`)::

    head | body | length of the properties | keys, if the column has some | tag and unique id, all of one length

Rows that cannot be encoded like this are left to `rows.RowReader`, which creates a `Message` for each and finds errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_raptormq.sink.options import SinkOptions
from pyspark_raptormq.sink.row_rules import tag_fault, topic_fault
from raptormq.client import EncodedBatch
from raptormq.client.message import MAX_KEYS_CHARS, plain_properties
from raptormq.errors import MessageError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import KEY_SEPARATOR, KEYS, NAME_SEPARATOR, PAIR_SEPARATOR

_Numbers = npt.NDArray[np.int64]
_COLUMNS = frozenset({"value", "body", "topic", "tags", "keys"})
_HEAD_FIELDS = 5
_BATCHES = 8
"""Number of batches that are encoded together. More would take memory, fewer would take more calls of Arrow."""
_MAX_TAG_CHARS = 2048
_SEPARATORS = f"[{NAME_SEPARATOR}{PAIR_SEPARATOR}]"


class EncodedRows(NamedTuple):
    """Consecutive rows, encoded as one batch of messages."""

    first: int
    """Number of the first row within the task, counted from 1."""
    batch: EncodedBatch

    @property
    def last(self) -> int:
        """Number of the last row."""
        return self.first + len(self.batch.message_ids) - 1


class EncodedPortion(NamedTuple):
    """Several batches of consecutive rows, all of one topic."""

    batches: list[EncodedRows]
    body_bytes: int

    @property
    def topics(self) -> set[str]:
        """Set with the topic of all rows, as in `Rows`."""
        return {self.batches[0].batch.topic}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.batches[-1].last - self.batches[0].first + 1


class _Columns(NamedTuple):
    """Columns of rows that have the same topic and the same tag."""

    topic: str
    tag: str | None
    bodies: pa.Array
    keys: pa.Array | None
    """The keys of each row with separators, empty if there are none."""


class RowEncoder:
    """Encodes Arrow batches.

    Args:
        options: topic and limits.
        ids: creates the unique ids; not used by another thread.
        clock_ms: returns the time in ms since 1970.
    """

    def __init__(self, options: SinkOptions, ids: UniqueIdFactory, clock_ms: Callable[[], int]) -> None:
        self._topic = options.topic
        self._max_bytes = min(options.batch_max_bytes, options.max_message_bytes)
        self._is_possible = not (options.encrypt or options.compress_batches)
        self._with_keys = not options.exactly_once
        """Whether batches list the keys of their messages. Brokers that stage a batch read them in the messages."""
        self._ids = ids
        self._clock_ms = clock_ms

    def encode(self, batch: pa.RecordBatch, first: int) -> Iterator[EncodedPortion] | None:
        """Encode all rows of an Arrow batch; None if `RowReader` has to convert them. `first` is the number of the
        first row.

        Rows can be encoded if all have the same topic and the same tag or none, and if each fits into a batch.
        """
        columns = self._columns(batch)
        if columns is None:
            return None
        common = np.frombuffer(plain_properties(columns.tag, True), np.uint8)
        body_bytes = pc.binary_length(columns.bodies).to_numpy().astype(np.int64)
        properties_bytes = np.full(len(body_bytes), len(common) + self._ids.id_length + len(PAIR_SEPARATOR))
        key_bytes = np.zeros(len(body_bytes), np.int64)
        if columns.keys is not None:
            key_bytes = pc.binary_length(columns.keys).to_numpy().astype(np.int64)
            properties_bytes += key_bytes + np.where(key_bytes > 0, len(KEYS) + len(NAME_SEPARATOR + PAIR_SEPARATOR), 0)
        sizes = OVERHEAD_BYTES + body_bytes + properties_bytes
        if sizes.max() >= self._max_bytes or key_bytes.max() >= MAX_KEYS_CHARS:
            return None
        ends = self._ends(sizes, key_bytes)
        return self._portions(columns, common, (sizes, body_bytes, properties_bytes), ends, first)

    def _columns(self, batch: pa.RecordBatch) -> _Columns | None:
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        if not self._is_possible or not batch.num_rows or not found.keys() <= _COLUMNS:
            return None
        bodies = body_column(found)
        topic = self._topic if self._topic is not None else _only(found["topic"])
        tag = _only(found["tags"]) if "tags" in found else ""
        keys = _joined_keys(found["keys"]) if "keys" in found else None
        if bodies.null_count or not topic or tag is None or len(tag) > _MAX_TAG_CHARS:
            return None
        if topic_fault(topic) is not None or (tag and tag_fault(tag) is not None):
            return None
        if "keys" in found and (keys is None or pc.any(pc.match_substring_regex(keys, _SEPARATORS)).as_py()):
            return None
        try:
            plain_properties(tag or None, True)
        except MessageError:
            return None
        return _Columns(topic, tag or None, bodies.cast(pa.binary()), keys)

    def _ends(self, sizes: _Numbers, key_bytes: _Numbers) -> list[int]:
        """Return the ends of the batches as row indices. A batch has at most `batchMaxBytes`. Its properties have room
        for the keys of its messages, if it lists them."""
        size_sums, key_sums = np.cumsum(sizes), np.cumsum(key_bytes + len(KEY_SEPARATOR))
        ends, start = [0], 0
        while start < len(sizes):
            size_before, keys_before = (size_sums[start - 1], key_sums[start - 1]) if start else (0, 0)
            end = int(np.searchsorted(size_sums, size_before + self._max_bytes, "right"))
            if self._with_keys and key_bytes.any():
                end = min(end, int(np.searchsorted(key_sums, keys_before + MAX_KEYS_CHARS, "right")))
            start = min(end, start + MAX_BATCH_RECORDS)
            ends.append(start)
        return ends

    def _portions(
        self,
        columns: _Columns,
        common: npt.NDArray[np.uint8],
        lengths: tuple[_Numbers, _Numbers, _Numbers],
        ends: list[int],
        first: int,
    ) -> Iterator[EncodedPortion]:
        sizes, body_bytes, properties_bytes = lengths
        for bounds in _runs(ends):
            start, end = bounds[0], bounds[-1]
            ids = self._ids.next_ids(self._clock_ms(), end - start)
            heads = np.zeros((end - start, _HEAD_FIELDS), ">i4")
            heads[:, 0] = sizes[start:end]
            heads[:, -1] = body_bytes[start:end]
            parts = [_rows(heads.view(np.uint8)), columns.bodies.slice(start, end - start)]
            parts.append(_rows(properties_bytes[start:end].astype(">i2").view(np.uint8).reshape(-1, 2)))
            keys = None if columns.keys is None else columns.keys.slice(start, end - start)
            if keys is not None:
                property_ = pc.binary_join_element_wise(KEYS + NAME_SEPARATOR, keys, PAIR_SEPARATOR, "")
                parts.append(pc.if_else(pc.equal(keys, ""), "", property_).cast(pa.binary()))
            parts.append(_rows(_tails(common, ids)))
            records = pc.binary_join_element_wise(*parts, b"")
            _, offsets, data = records.buffers()
            at = np.frombuffer(offsets, np.int32)
            batches = []
            for begin, stop in pairwise(bound - start for bound in bounds):
                body = data.slice(at[begin], at[stop] - at[begin]).to_pybytes()
                distinct = [] if keys is None or not self._with_keys else _distinct(keys.slice(begin, stop - begin))
                found = EncodedBatch(columns.topic, body, ids[begin:stop], columns.tag, distinct)
                batches.append(EncodedRows(first + start + begin, found))
            yield EncodedPortion(batches, int(body_bytes[start:end].sum()))


def _runs(ends: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the bounds of the batches that are encoded together. The number of their rows is limited, because only
    65,536 ids of a millisecond are distinct."""
    number = 0
    while number + 1 < len(ends):
        last = min(number + _BATCHES, len(ends) - 1)
        while last > number + 1 and ends[last] - ends[number] > MAX_BATCH_RECORDS:
            last -= 1
        yield ends[number : last + 1]
        number = last


def body_column(columns: dict[str, pa.Array]) -> pa.Array:
    """Return the column with the bodies."""
    return columns["value"] if "value" in columns else columns["body"]


def _only(column: pa.Array) -> str | None:
    """Return the value that all rows have, an empty text for null; None if the rows differ."""
    distinct = pc.unique(column)
    return (distinct[0].as_py() or "") if len(distinct) == 1 else None


def _joined_keys(column: pa.Array) -> pa.Array | None:
    """Return the joined keys of each row, an empty text without keys. Return None if a key is empty, null or contains
    the separator, so that `RowReader` converts the rows."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        words = [KEY_SEPARATOR.join(text.split()) if text else "" for text in column.to_pylist()]
        return pa.array(words, pa.string())
    column = column.cast(pa.list_(pa.string()))
    keys = column.flatten()
    if keys.null_count or pc.any(pc.equal(keys, "")).as_py():
        return None
    if pc.any(pc.match_substring(keys, KEY_SEPARATOR)).as_py():
        return None
    return pc.fill_null(pc.binary_join(column, KEY_SEPARATOR), "")


def _distinct(keys: pa.Array) -> list[str]:
    words = KEY_SEPARATOR.join(filter(None, keys.to_pylist()))
    return list(dict.fromkeys(words.split(KEY_SEPARATOR))) if words else []


def _tails(common: npt.NDArray[np.uint8], ids: list[str]) -> npt.NDArray[np.uint8]:
    """Return the end of each record: tag, unique id and the separator after it."""
    text = np.frombuffer("".join(ids).encode(), np.uint8).reshape(len(ids), -1)
    tails = np.empty((len(ids), len(common) + text.shape[1] + 1), np.uint8)
    tails[:, : len(common)] = common
    tails[:, len(common) : -1] = text
    tails[:, -1] = ord(PAIR_SEPARATOR)
    return tails


def _rows(table: npt.NDArray[np.uint8]) -> pa.Array:
    """Return the rows of a table of bytes as an array of binary values."""
    count, width = table.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(table)])
