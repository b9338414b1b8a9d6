"""Where the fields of many stored records are, found with a handful of numpy operations instead of a parse per record.
Pure.

The layout is drawn in `raptormq.protocol.record`, whose decoder is the reference for this one. A response buffer is
seen through unaligned, overlapping views of big-endian numbers: view[p] is the number that starts at byte p, so one
fancy index reads a field of all records at once.

Neighbours: `decode` turns the positions into Arrow columns without touching single records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
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
    """Fields of n records of `data`; every array has n items, positions are bytes into `data`."""

    data: bytes
    queue_offset: Longs
    physical_offset: Longs
    size: Longs
    """Bytes of the whole record."""
    sys_flag: Longs
    body_crc: Longs
    born_ms: Longs
    store_ms: Longs
    store_host_at: Longs
    """Of the 8 or, with flag STORE_HOST_V6, 20 bytes of the broker's address."""
    body_at: Longs
    body_end: Longs
    properties_at: Longs
    properties_end: Longs

    def __len__(self) -> int:
        return len(self.queue_offset)

    def select(self, chosen: npt.NDArray[Any]) -> RecordIndex:
        """Return the index of the records that a mask or a slice chooses."""
        fields = {name: getattr(self, name)[chosen] for name in self.__dataclass_fields__ if name != "data"}
        return RecordIndex(data=self.data, **fields)

    def damaged_bodies(self) -> Longs:
        """Compare every body with its checksum; return the rows of those that were damaged after they had been sent."""
        view = memoryview(self.data)
        bodies = zip(self.body_at.tolist(), self.body_end.tolist(), strict=True)
        found = np.array([crc32(view[start:end]) for start, end in bodies], np.int64) & 0x7FFFFFFF
        return np.flatnonzero(found != self.body_crc)


def index_records(data: bytes) -> RecordIndex:
    """Index the records that stand back to back in `data`, the body of one or more pull responses.

    Raises:
        RecordError: cut, of another format, or with lengths that do not add up.
    """
    starts, ends = _record_bounds(data)
    fixed = _view(data, _FIXED)[starts]
    magic = fixed["magic"]
    v2 = magic == MAGIC_V2
    if not np.all(v2 | (magic == MAGIC_V1)):
        raise RecordError("a pull response holds something that is not a record")
    sys_flag = fixed["sys_flag"].astype(np.int64)
    store_at = starts + BORN_HOST_AT + _V4_HOST_BYTES + _V6_EXTRA_BYTES * _bit(sys_flag, SysFlag.BORN_HOST_V6)
    store_host_at = store_at + 8
    # Behind the broker's address: reconsume times (4 bytes), prepared transaction offset (8), body length (4).
    length_at = store_host_at + _V4_HOST_BYTES + _V6_EXTRA_BYTES * _bit(sys_flag, SysFlag.STORE_HOST_V6) + 12
    body_at = length_at + 4
    body_end = body_at + read_numbers(data, ">i4", length_at, ends)
    width = 1 + v2.astype(np.int64)
    topic_bytes = np.where(v2, read_numbers(data, ">u2", body_end, ends), read_numbers(data, "u1", body_end, ends))
    properties_at = body_end + width + topic_bytes + 2
    properties_end = properties_at + read_numbers(data, ">i2", properties_at - 2, ends)
    if np.any(body_end < body_at) or np.any(properties_end != ends):
        raise RecordError("body, topic and properties do not fill their record")
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


def _record_bounds(data: bytes) -> tuple[Longs, Longs]:
    """Follow the sizes: the only step that cannot be done for all records at once."""
    bounds = [0]
    position, length, size_at = 0, len(data), _SIZE.unpack_from
    while position + MIN_RECORD_BYTES <= length:
        (size,) = size_at(data, position)
        if size < MIN_RECORD_BYTES:
            raise RecordError(f"a record of {size} bytes cannot be")
        position += size
        bounds.append(position)
    if position != length:
        raise RecordError(f"a pull response of {length} bytes ends inside a record")
    all_bounds = np.array(bounds, dtype=np.int64)
    return all_bounds[:-1], all_bounds[1:]


def _view(data: bytes, dtype: Any) -> npt.NDArray[Any]:
    """Return the overlapping view of `data` as numbers (or structures) that start at every byte."""
    item = np.dtype(dtype)
    return np.ndarray((max(0, len(data) - item.itemsize + 1),), item, data, strides=(1,))


def read_numbers(data: bytes, dtype: str, positions: Longs, ends: Longs) -> Longs:
    """Read the number at each of the positions; they may come from damaged lengths, hence the check.

    Raises:
        RecordError: a number is not inside its record, which ends at `ends`.
    """
    size = np.dtype(dtype).itemsize
    if np.any(positions < 0) or np.any(positions + 1 > ends):
        raise RecordError("a record's lengths point outside of it")
    # Two-byte reads of a field that has one byte in this record stay inside the buffer; their result is not used.
    inside = np.minimum(positions, len(data) - size)
    numbers: Longs = _view(data, dtype)[inside].astype(np.int64)
    return numbers


def _bit(flags: Longs, bit: SysFlag) -> Longs:
    bits: Longs = (flags & int(bit) != 0).astype(np.int64)
    return bits
