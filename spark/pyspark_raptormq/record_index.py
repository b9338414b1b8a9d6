"""Index of the fields of many stored records, built with a few numpy operations instead of parsing each record. No I/O.

The record layout is described in `raptormq.protocol.record`, whose decoder is the reference. The index reads a response
buffer through unaligned, overlapping views of big-endian integers: view[p] is the integer that starts at byte p, so
that one index array reads a field of all records.

`decode` converts the positions into Arrow columns.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal.isal_zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol.record import (
    BORN_HOST_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    SysFlag,
)

Longs = npt.NDArray[np.int64]

_SIZE = struct.Struct(">i")
_FIXED = np.dtype(
    {
        "names": ["size", "magic", "crc", "queue_offset", "physical_offset", "sys_flag", "born"],
        "formats": [">i4", ">i4", ">u4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [0, 4, 8, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, SYS_FLAG_AT, SYS_FLAG_AT + 4],
        "itemsize": BORN_HOST_AT,
    }
)
_V4_HOST_BYTES = 8
_V6_EXTRA_BYTES = 12


@dataclass(frozen=True)
class RecordIndex:
    """Fields of n records in `data`. Every array has n items; positions are byte offsets into `data`."""

    data: bytes
    queue_offset: Longs
    physical_offset: Longs
    size: Longs
    """Size of the record in bytes."""
    sys_flag: Longs
    body_crc: Longs
    born_ms: Longs
    store_ms: Longs
    store_host_at: Longs
    """Position of the broker's address: 8 bytes, or 20 bytes with flag STORE_HOST_V6."""
    body_at: Longs
    body_end: Longs
    properties_at: Longs
    properties_end: Longs

    def __len__(self) -> int:
        return len(self.queue_offset)

    def select(self, chosen: npt.NDArray[Any]) -> RecordIndex:
        """Return an index of the records selected by a mask or by row numbers."""
        fields = {name: getattr(self, name)[chosen] for name in self.__dataclass_fields__ if name != "data"}
        return RecordIndex(data=self.data, **fields)

    @cached_property
    def raw_properties(self) -> pa.Array:
        """The stored properties of each record, as a binary column."""
        return self._slices(self.properties_at, self.properties_end)

    def bodies(self) -> pa.Array:
        """Return the stored bodies as a binary column."""
        return self._slices(self.body_at, self.body_end)

    def may_have_property(self, name: bytes) -> bool:
        """Return whether a record may have this property; `name` ends with its separator.

        Only properties are searched, because a search in bodies takes as long as building all other columns.
        """
        text = self.raw_properties.buffers()[2]
        return text is not None and name in text.to_pybytes()

    def _slices(self, starts: Longs, ends: Longs) -> pa.Array:
        """Return data[start:end] of every record as a binary column.

        Arrow takes every second item of an array of alternating slices and gaps, so each byte is copied once.
        """
        rows = len(starts)
        if not rows:
            return pa.array([], pa.binary())
        places = np.arange(0, 2 * rows, 2)
        if np.any(starts[1:] < starts[:-1]):  # decompressed batches are at the end, but Arrow requires ascending bounds
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], ends[order]
            places[order] = places.copy()
        bounds = np.empty(2 * rows, np.int32)
        bounds[0::2] = starts
        bounds[1::2] = ends
        slices_and_gaps = pa.Array.from_buffers(
            pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        )
        return slices_and_gaps.take(pa.array(places))

    def damaged_bodies(self) -> Longs:
        """Return the rows whose body does not match its checksum."""
        view = memoryview(self.data)
        bodies = zip(self.body_at.tolist(), self.body_end.tolist(), strict=True)
        found = np.array([crc32(view[start:end]) for start, end in bodies], np.int64) & 0x7FFFFFFF
        return np.flatnonzero(found != self.body_crc)


def index_records(data: bytes) -> RecordIndex:
    """Index the consecutive records in `data`, the body of one or more pull responses.

    Raises:
        RecordError: A record is truncated, has another format or inconsistent lengths.
    """
    # This is the only step that loops over the records.
    bounds = np.array(bounds_by_size(data, 0, len(data), MIN_RECORD_BYTES, "a pull response", "a record"), np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    fixed = _view(data, _FIXED)[starts]
    magic = fixed["magic"]
    v2 = magic == MAGIC_V2
    if not np.all(v2 | (magic == MAGIC_V1)):
        raise RecordError("a pull response contains data that is not a record")
    sys_flag = fixed["sys_flag"].astype(np.int64)
    store_at = starts + BORN_HOST_AT + _V4_HOST_BYTES + _V6_EXTRA_BYTES * _bit(sys_flag, SysFlag.BORN_HOST_V6)
    store_host_at = store_at + 8
    # After the broker's address: reconsume times (4 bytes), prepared transaction offset (8), body length (4).
    length_at = store_host_at + _V4_HOST_BYTES + _V6_EXTRA_BYTES * _bit(sys_flag, SysFlag.STORE_HOST_V6) + 12
    body_at = length_at + 4
    body_end = body_at + read_numbers(data, ">i4", length_at, ends)
    width = 1 + v2.astype(np.int64)
    topic_bytes = np.where(v2, read_numbers(data, ">u2", body_end, ends), read_numbers(data, "u1", body_end, ends))
    properties_at = body_end + width + topic_bytes + 2
    properties_end = properties_at + read_numbers(data, ">i2", properties_at - 2, ends)
    if np.any(body_end < body_at) or np.any(properties_at > ends) or np.any(properties_end != ends):
        raise RecordError("a record has inconsistent lengths of body, topic and properties")
    return RecordIndex(
        data=data,
        queue_offset=fixed["queue_offset"].astype(np.int64),
        physical_offset=fixed["physical_offset"].astype(np.int64),
        size=ends - starts,
        sys_flag=sys_flag,
        body_crc=fixed["crc"].astype(np.int64),
        born_ms=fixed["born"].astype(np.int64),
        store_ms=read_numbers(data, ">i8", store_at, ends),
        store_host_at=store_host_at,
        body_at=body_at,
        body_end=body_end,
        properties_at=properties_at,
        properties_end=properties_end,
    )


def bounds_by_size(data: bytes, start: int, end: int, least: int, whole: str, part: str) -> list[int]:
    """Return the bounds of the parts of `data[start:end]`. Each part begins with its size, which is at least `least`.

    `whole` and `part` name the range and a part of it in error messages.

    Raises:
        RecordError: A size is invalid, or the last part is truncated.
    """
    bounds = [start]
    position, size_at = start, _SIZE.unpack_from
    while position + least <= end:
        (size,) = size_at(data, position)
        if size < least:
            raise RecordError(f"{whole} has {part} with an invalid size of {size} bytes")
        position += size
        bounds.append(position)
    if position != end:
        raise RecordError(f"{whole} of {end - start} bytes ends inside {part}")
    return bounds


def _view(data: bytes, dtype: Any) -> npt.NDArray[Any]:
    """Return an overlapping view of `data` with an item (a number or structure) starting at every byte."""
    item = np.dtype(dtype)
    return np.ndarray((max(0, len(data) - item.itemsize + 1),), item, data, strides=(1,))


def read_numbers(data: bytes, dtype: str, positions: Longs, ends: Longs) -> Longs:
    """Read the number at each position. Positions are checked, as they may result from damaged length fields.

    Raises:
        RecordError: A position is outside of its record, which ends at `ends`.
    """
    size = np.dtype(dtype).itemsize
    if np.any(positions < 0) or np.any(positions + 1 > ends):
        raise RecordError("a length field of a record points outside of the record")
    # A two-byte read of a one-byte field must stay inside the buffer; its result is not used.
    inside = np.minimum(positions, len(data) - size)
    numbers: Longs = _view(data, dtype)[inside].astype(np.int64)
    return numbers


def _bit(flags: Longs, bit: SysFlag) -> Longs:
    bits: Longs = (flags & int(bit) != 0).astype(np.int64)
    return bits
