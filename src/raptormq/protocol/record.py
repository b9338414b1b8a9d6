"""The stored message: the record of the commit log and of every pull and view response.

Source: Apache RocketMQ ``MessageDecoder``, ``CommitLog``. Layout, big-endian (offsets for IPv4 hosts)::

     0  TOTALSIZE i32            whole record
     4  MAGIC i32                v1 0xDAA320A7, v2 0xDAA320AB (topic length in 2 bytes instead of 1)
     8  BODYCRC i32              CRC-32(body) & 0x7FFFFFFF, over the bytes as stored (possibly compressed)
    12  QUEUEID i32
    16  FLAG i32                 the application's
    20  QUEUEOFFSET i64          assigned at the append
    28  PHYSICALOFFSET i64       assigned at the append
    36  SYSFLAG i32              see SysFlag
    40  BORNTIMESTAMP i64        ms
    48  BORNHOST ip 4|16, port i32
    56  STORETIMESTAMP i64       ms, assigned at the append
    64  STOREHOST ip 4|16, port i32
    72  RECONSUMETIMES i32
    76  PREPARED_TRANSACTION_OFFSET i64
    84  BODYLEN i32, body
        TOPICLEN u8 (v1) | u16 (v2), topic UTF-8
        PROPLEN i16, properties UTF-8 (see properties.py)

If a segment has no room for the next record, it ends with a filler: ``remaining i32 | BLANK_MAGIC i32 | anything``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

from isal.isal_zlib import crc32

from raptormq.errors import ChecksumError, RecordError

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)
BLANK_BYTES = 8
"""Every record leaves at least this much of its segment free, for the filler."""

QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_HOST_AT = 48
MIN_RECORD_BYTES = 91
"""A v1 record with IPv4 hosts and empty topic, body and properties."""
MAX_V1_TOPIC_BYTES = 127


class SysFlag(IntFlag):
    """Bits of SYSFLAG (Apache RocketMQ ``MessageSysFlag``)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    COMPRESSION_MASK = 0x700


_SIZE_MAGIC = struct.Struct(">ii")
_UNTIL_BORN_HOST = struct.Struct(">iiIiiqqiq")
_AFTER_HOSTS = struct.Struct(">iqi")
_FIXED_V4 = struct.Struct(">iiIiiqqiq8sq8siqi")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_V6_HOSTS = 0x30
_V6_MORE = 12
"""Bytes that the address of an IPv6 host has more than that of an IPv4 host."""
_WRONG_CRC = "the body has a wrong CRC"

Bytes = bytes | bytearray | memoryview


@dataclass(slots=True)
class StoredMessage:
    """A decoded record. ``properties`` is the text form, hosts are packed ``ip | port`` (8 or 20 bytes)."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    flag: int = 0
    sys_flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp: int = 0
    store_timestamp: int = 0
    born_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    store_host: bytes = b"\x7f\0\0\1\0\0\0\0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    total_size: int = 0


def encode_record(message: StoredMessage) -> bytes:
    """Encode a record with the offsets and times of ``message``; ``total_size`` is computed.

    The host bits of ``sys_flag`` follow from the lengths of the hosts.

    Raises:
        RecordError: topic, properties or a host do not fit into their fields.
    """
    topic, properties = message.topic.encode(), message.properties.encode()
    if len(topic) > 0xFFFF or len(properties) > 0x7FFF:
        raise RecordError(f"topic of {len(topic)} or properties of {len(properties)} bytes do not fit into a record")
    if len(message.born_host) not in (8, 20) or len(message.store_host) not in (8, 20):
        raise RecordError("a host address must have 8 or 20 bytes")
    v2 = len(topic) > MAX_V1_TOPIC_BYTES
    sys_flag = message.sys_flag & ~_V6_HOSTS
    sys_flag |= int(SysFlag.BORN_HOST_V6) if len(message.born_host) == 20 else 0
    sys_flag |= int(SysFlag.STORE_HOST_V6) if len(message.store_host) == 20 else 0
    hosts = len(message.born_host) + len(message.store_host)
    total = MIN_RECORD_BYTES - 16 + hosts + len(message.body) + len(topic) + v2 + len(properties)
    return b"".join(
        (
            _UNTIL_BORN_HOST.pack(
                total,
                MAGIC_V2 if v2 else MAGIC_V1,
                crc32(message.body) & 0x7FFFFFFF,
                message.queue_id,
                message.flag,
                message.queue_offset,
                message.physical_offset,
                sys_flag,
                message.born_timestamp,
            ),
            message.born_host,
            _LONG.pack(message.store_timestamp),
            message.store_host,
            _AFTER_HOSTS.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
            message.body,
            len(topic).to_bytes(2 if v2 else 1, "big"),
            topic,
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def record_size(data: Bytes, position: int = 0) -> int:
    """Return TOTALSIZE of the record at ``position`` after checking magic and bounds.

    Raises:
        RecordError: not the start of a record, or the record is longer than the buffer.
    """
    if position + MIN_RECORD_BYTES > len(data):
        raise RecordError(f"{len(data) - position} bytes are too few for a record")
    size, magic = _SIZE_MAGIC.unpack_from(data, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"not a record: magic {magic & 0xFFFFFFFF:#x}")
    if size < MIN_RECORD_BYTES or position + size > len(data):
        raise RecordError(f"a record of {size} bytes does not fit into {len(data) - position} bytes")
    return int(size)


def decode_record(data: Bytes, position: int = 0, *, check_crc: bool = True) -> StoredMessage:
    """Decode the record that starts at ``position``. Nothing outside its ``total_size`` bytes is read.

    Raises:
        RecordError: the record is truncated, of another format, or has inconsistent lengths or (with ``check_crc``) a
            damaged body.
    """
    message, crc, body_at, body_end = _decode(data, position)
    message.body = bytes(data[body_at:body_end])
    if check_crc and crc != crc32(message.body) & 0x7FFFFFFF:
        raise ChecksumError(_WRONG_CRC)
    return message


def decode_view(data: memoryview, position: int = 0) -> tuple[StoredMessage, memoryview]:
    """Decode a record without copying its body: `StoredMessage.body` is empty, the body is returned as a slice of
    ``data``.

    Raises:
        RecordError: see `decode_record`. A wrong CRC raises ChecksumError.
    """
    message, crc, body_at, body_end = _decode(data, position)
    body = data[body_at:body_end]
    if crc != crc32(body) & 0x7FFFFFFF:
        raise ChecksumError(_WRONG_CRC)
    return message, body


def encoded_texts(record: Bytes) -> bytes:
    """Return topic and properties of a record as they are encoded, with their lengths. Nothing is checked."""
    host_bits = record[SYS_FLAG_AT + 3] & _V6_HOSTS
    length_at = _FIXED_V4.size - 4 + _V6_MORE * host_bits.bit_count()
    (body_length,) = _INT.unpack_from(record, length_at)
    return bytes(record[length_at + 4 + body_length :])


def _decode(data: Bytes, position: int) -> tuple[StoredMessage, int, int, int]:
    """Return the message without its body, and CRC, start and end of the body."""
    size = record_size(data, position)
    end = position + size
    try:
        (
            _,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born,
            born_host,
            stored,
            store_host,
            times,
            prepared,
            body_length,
        ) = _FIXED_V4.unpack_from(data, position)
        body_at = position + _FIXED_V4.size
        if sys_flag & _V6_HOSTS:
            born_host, stored, store_host, body_at = _decode_hosts(data, position + BORN_HOST_AT, sys_flag)
            times, prepared, body_length = _AFTER_HOSTS.unpack_from(data, body_at - _AFTER_HOSTS.size)
        body_end = body_at + body_length
        if body_length < 0 or body_end > end:
            raise RecordError(f"a body of {body_length} bytes does not fit into the record")
        topic, properties = _decode_texts(bytes(data[body_end:end]), 1 if magic == MAGIC_V1 else 2)
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(f"the record is damaged: {error}") from error
    message = StoredMessage(
        topic,
        queue_id,
        b"",
        properties,
        flag,
        sys_flag,
        queue_offset,
        physical_offset,
        born,
        stored,
        born_host,
        store_host,
        times,
        prepared,
        size,
    )
    return message, crc, body_at, body_end


def _decode_hosts(data: Bytes, at: int, sys_flag: int) -> tuple[bytes, int, bytes, int]:
    """Return the born host at ``at``, the store time, the store host, and the position of the body."""
    born_host, at = _host(data, at, bool(sys_flag & SysFlag.BORN_HOST_V6))
    (stored,) = _LONG.unpack_from(data, at)
    store_host, at = _host(data, at + 8, bool(sys_flag & SysFlag.STORE_HOST_V6))
    return born_host, stored, store_host, at + _AFTER_HOSTS.size


def _decode_texts(tail: bytes, width: int) -> tuple[str, str]:
    """Return topic and properties from the bytes after the body. The length of the topic has ``width`` bytes."""
    topic_end = width + int.from_bytes(tail[:width], "big")
    (properties_length,) = _SHORT.unpack_from(tail, topic_end)
    if properties_length < 0 or topic_end + 2 + properties_length != len(tail):
        raise RecordError("topic and properties do not fill the record")
    return tail[width:topic_end].decode(), tail[topic_end + 2 :].decode()


def _host(data: Bytes, at: int, v6: bool) -> tuple[bytes, int]:
    length = 20 if v6 else 8
    return bytes(data[at : at + length]), at + length


def iter_records(data: Bytes, *, check_crc: bool = True) -> Iterator[StoredMessage]:
    """Decode consecutive records, as in a pull response.

    Raises:
        RecordError: at the first record that cannot be decoded; those before it have been yielded.
    """
    position = 0
    while position < len(data):
        message = decode_record(data, position, check_crc=check_crc)
        position += message.total_size
        yield message
