"""Unpacking of inner batches (queue type BatchCQ) in an index of stored records: one row per message. No I/O.

The messages of a batch inherit its times and have their own bodies and properties. Their layout is described in
`raptormq.protocol.batch`, the batch record in `raptormq.protocol.inner_batch`. For a task that starts inside a batch,
the broker unpacks the batch and assigns log offsets to its messages. This module assigns the same offsets, because
broker message ids contain them. Uncompressed batches are indexed in place; decompressed batches are appended to the
response buffer.

Uses `record_index`; used by `decode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_raptormq.damage import Damage
from pyspark_raptormq.record_index import Longs, RecordIndex, bounds_by_size, read_numbers
from raptormq.errors import RecordError
from raptormq.protocol.batch import OVERHEAD_BYTES
from raptormq.protocol.compression import decompress
from raptormq.protocol.inner_batch import INNER_BATCH, inner_count
from raptormq.protocol.properties import INNER_NUM, NAME_SEPARATOR, find_property
from raptormq.protocol.record import SysFlag

_PLAIN_BYTES = 32 * 1024 * 1024
"""Size of decompressed batches at which a part of the index ends. Compressed batches may expand a thousandfold."""
_OF_THE_BATCH = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
_COMPRESSED = int(SysFlag.COMPRESSED)
_CRC_AT, _BODY_AT = 8, 20
_NESTED = f"{INNER_NUM}{NAME_SEPARATOR}".encode()


@dataclass(frozen=True, slots=True)
class _Part:
    """Consecutive rows of an index that are unpacked together."""

    index: RecordIndex
    batched: npt.NDArray[np.bool_]
    """True for each row of the index that is an inner batch."""
    rows: range
    plain: dict[int, bytes]
    """Decompressed bodies by row."""


def without_inner_batches(index: RecordIndex, damage: Damage) -> Iterator[RecordIndex]:
    """Yield the index in parts, in order, with each inner batch replaced by its messages.

    Raises:
        RecordError: A batch is truncated, cannot be decompressed, has a wrong CRC, contains another batch, or has
            another number of messages than its properties state; and `damage` does not permit skipping it.
    """
    batched = index.sys_flag & INNER_BATCH == INNER_BATCH
    if not batched.any():
        yield index
        return
    first = grown = 0
    plain: dict[int, bytes] = {}
    dropped: set[int] = set()
    for row in np.flatnonzero(batched).tolist():
        sys_flag = int(index.sys_flag[row])
        if not sys_flag & _COMPRESSED:
            continue
        try:
            plain[row] = decompress(index.data[index.body_at[row] : index.body_end[row]], sys_flag)
        except RecordError as error:
            damage.report(int(index.queue_offset[row]), error)
            dropped.add(row)
            continue
        grown += len(plain[row])
        if grown >= _PLAIN_BYTES:
            yield _without_damaged(_Part(index, batched, range(first, row + 1), plain), dropped, damage)
            first, grown, plain = row + 1, 0, {}
    if first < len(index):
        yield _without_damaged(_Part(index, batched, range(first, len(index)), plain), dropped, damage)


def _without_damaged(part: _Part, dropped: set[int], damage: Damage) -> RecordIndex:
    """Return the messages of a part without damaged batches; add the rows of these to `dropped`.

    All batches are unpacked together. Only if that fails, each batch is checked separately.
    """
    try:
        return _expanded(part, dropped)
    except RecordError:
        pass
    for row in part.rows:
        if part.batched[row] and row not in dropped:
            plain = {row: part.plain[row]} if row in part.plain else {}
            try:
                _expanded(replace(part, rows=range(row, row + 1), plain=plain), set())
            except RecordError as error:
                damage.report(int(part.index.queue_offset[row]), error)
                dropped.add(row)
    return _expanded(part, dropped)


def _expanded(part: _Part, dropped: set[int]) -> RecordIndex:
    """Return the messages of a part, without the rows in `dropped`."""
    index, batched, plain = part.index, part.batched, part.plain
    bodies, positions, behind = [index.data], {}, len(index.data)
    for row, body in plain.items():
        positions[row] = behind
        bodies.append(body)
        behind += len(body)
    data = b"".join(bodies) if plain else index.data
    counts = np.ones(len(part.rows), np.int64)
    starts: list[int] = []
    ends: list[int] = []
    for place, row in enumerate(part.rows):
        if row in dropped:
            counts[place] = 0
        elif batched[row]:
            start = positions.get(row, int(index.body_at[row]))
            end = start + len(plain[row]) if row in plain else int(index.body_end[row])
            bounds = bounds_by_size(data, start, end, OVERHEAD_BYTES, "a batch", "a message")
            _check_count(index, row, len(bounds) - 1)
            counts[place] = len(bounds) - 1
            starts += bounds[:-1]
            ends += bounds[1:]
    rows = np.repeat(np.array(part.rows, np.int64), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    messages = index.select(rows)
    inner = batched[rows]
    _fill_in(messages, data, inner, np.array(starts, np.int64), np.array(ends, np.int64))
    messages.queue_offset[:] += numbers
    places = numbers + 1  # distances of the messages' log offsets from the start of their batch, if it is long enough
    messages.physical_offset[:] += np.where(inner & (places < messages.size), places, 0)
    messages.sys_flag[inner] &= ~_OF_THE_BATCH
    messages = replace(messages, data=data)
    if messages.may_have_property(_NESTED):
        _refuse_nested(messages, inner)
    return messages


def _fill_in(messages: RecordIndex, data: bytes, inner: npt.NDArray[np.bool_], starts: Longs, ends: Longs) -> None:
    """Set the positions of bodies and properties in the rows `inner`."""
    body_at = starts + _BODY_AT
    body_end = body_at + read_numbers(data, ">i4", starts + _BODY_AT - 4, ends)
    properties_at = body_end + 2
    stated = read_numbers(data, ">i2", body_end, ends)
    if np.any(body_end < body_at) or np.any(properties_at + stated != ends) or np.any(stated < 0):
        raise RecordError("a message of a batch has inconsistent lengths of body and properties")
    _check_crcs(data, read_numbers(data, ">i4", starts + _CRC_AT, ends), body_at, body_end)
    messages.body_at[inner] = body_at
    messages.body_end[inner] = body_end
    messages.properties_at[inner] = properties_at
    messages.properties_end[inner] = ends


def _check_crcs(data: bytes, stated: Longs, body_at: Longs, body_end: Longs) -> None:
    """Verify the CRCs of messages that have one. Most producers do not set it."""
    for row in np.flatnonzero(stated).tolist():
        if crc32(data[body_at[row] : body_end[row]]) & 0x7FFFFFFF != stated[row]:
            raise RecordError("a message of a batch has a wrong CRC")


def _check_count(index: RecordIndex, row: int, count: int) -> None:
    properties = index.data[index.properties_at[row] : index.properties_end[row]].decode("utf-8", "replace")
    if count != inner_count(properties):
        offset = index.queue_offset[row]
        raise RecordError(f"the batch at queue offset {offset} has {count} messages, not the number in its properties")


def _refuse_nested(messages: RecordIndex, inner: npt.NDArray[np.bool_]) -> None:
    """Raise `RecordError` if one of the rows `inner` is itself a batch, like `unwrap` of the protocol module."""
    for properties in messages.raw_properties.filter(pa.array(inner)).to_pylist():
        if find_property(properties.decode("utf-8", "replace"), INNER_NUM) is not None:
            raise RecordError("an inner batch contains another one")
