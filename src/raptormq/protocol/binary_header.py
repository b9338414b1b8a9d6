"""ROCKETMQ binary encoding of the header (serialise type 1).

Source: Apache RocketMQ ``RocketMQSerializable``. Layout, big-endian::

    code u16 | language u8 | version u16 | opaque i32 | flag i32 | remarkLen i32 | remark UTF-8 | extLen i32 | entries
    entry: keyLen u16 | key UTF-8 | valueLen i32 | value UTF-8

If remarkLen or extLen is 0, the remark or the map is absent. A value of length 0 is decoded as an empty string; Java
decodes it as null.
"""

from __future__ import annotations

import struct

from raptormq.errors import CommandError, TextError
from raptormq.protocol.json_header import Fields

MAX_CODE = 0x7FFF
"""Java peers cannot distinguish larger codes (the POP family) from negative ones."""

_FIXED = struct.Struct(">HBHiii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")


def decode(data: bytes) -> Fields:
    """Decode header bytes.

    Raises:
        CommandError: a length points outside the header.
        TextError: text is not UTF-8.
    """
    code = opaque = flag = 0
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark: str | None = None
        if remark_length:
            remark = _slice(data, position, remark_length).decode()
            position += remark_length
        (ext_length,) = _INT.unpack_from(data, position)
        position += 4
        end = position + ext_length
        if ext_length < 0 or end > len(data):
            raise CommandError(f"{ext_length} bytes of extFields in a header with {len(data) - position} bytes left")
        return code, language, version, opaque, flag, remark, _decode_entries(data, position, end)
    except UnicodeDecodeError as error:
        raise TextError(error, code, opaque, flag) from error
    except struct.error as error:
        raise CommandError(f"binary header is damaged: {error}") from error


def _decode_entries(data: bytes, position: int, end: int) -> dict[str, str]:
    entries: dict[str, str] = {}
    while position < end:
        (length,) = _SHORT.unpack_from(data, position)
        position += 2
        key = _slice(data, position, length).decode()
        position += length
        (length,) = _INT.unpack_from(data, position)
        position += 4
        entries[key] = _slice(data, position, length).decode()
        position += length
    if position != end:
        raise CommandError("the last entry of the header map is truncated")
    return entries


def _slice(data: bytes, position: int, length: int) -> bytes:
    if length < 0 or position + length > len(data):
        raise CommandError(f"length {length} points outside the header")
    return data[position : position + length]


def encode(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str],
) -> bytes:
    """Encode header bytes.

    Raises:
        CommandError: a code, version or key does not fit its 16 bits.
    """
    remark_bytes = remark.encode() if remark else b""
    entries: list[bytes] = []
    try:
        for key, value in ext_fields.items():
            key_bytes, value_bytes = key.encode(), value.encode()
            entries += _SHORT.pack(len(key_bytes)), key_bytes, _INT.pack(len(value_bytes)), value_bytes
        ext = b"".join(entries)
        fixed = _FIXED.pack(code, language, version, opaque, flag, len(remark_bytes))
        return b"".join((fixed, remark_bytes, _INT.pack(len(ext)), ext))
    except struct.error as error:
        raise CommandError(f"header does not fit the binary encoding: {error}") from error
