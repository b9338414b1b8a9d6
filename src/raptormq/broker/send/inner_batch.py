"""Builds the single record of a batch for a BatchCQ topic (RIP-26, ``SendMessageProcessor.sendBatchMessage``).

:mod:`.admission` has checked the request. The body is stored unchanged, compressed or not. All lengths in it are
checked here once, because consumers rely on them. The broker adds its own properties (as for any message), INNER_NUM,
and TAGS if the batch has none and all messages have the same tag; otherwise subscribers to that tag would miss the
batch. INNER_BASE is added with the queue offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES, scan_uniform
from raptormq.protocol.encryption import is_encrypted_body
from raptormq.protocol.inner_batch import inner_count
from raptormq.protocol.keyed_batch import scan_keyed
from raptormq.protocol.properties import find_property, find_value
from raptormq.protocol.record import SysFlag

_SIZE_CRC_LENGTH = struct.Struct(">i4xi4xi")
_SHORT = struct.Struct(">h")
_INNER_NUM = f"{names.INNER_NUM}\x01".encode()
_TAGS = f"{names.TAGS}\x01".encode()
_COMPRESSED = int(SysFlag.COMPRESSED)
_new_tuple = tuple.__new__
ROOM_FOR_BASE = 40
"""Maximum size of INNER_BASE in bytes."""


class Wrapper(NamedTuple):
    """Data for the record of a batch."""

    properties: bytes
    messages: int
    texts: list[bytes]
    """Properties of the messages; empty if the body is opaque or ``keys`` is set."""
    keys: bytes
    """Concatenated unique keys of all messages and of the batch, if all have one length and there are no other keys;
    else empty."""


def wrap(body: bytes, text: str, unique_key: str, common: bytes, sys_flag: int) -> Wrapper:
    """Return the record data of a batch with ``body``, properties ``text`` and ``unique_key``; ``common`` holds the
    properties that the broker adds to every message.

    The number of messages of a compressed or encrypted batch is taken from INNER_NUM: brokers do not decompress bodies
    and have no encryption keys.

    Raises:
        RecordError: the batch is empty, too large, damaged or nested, or declares a wrong number of messages.
    """
    said = find_property(text, names.INNER_NUM)
    texts: list[bytes] = []
    tag = keys = b""
    if sys_flag & _COMPRESSED or is_encrypted_body(body):
        count = inner_count(text)
    else:
        has_keys = "KEYS\x01" in text and bool((find_property(text, names.KEYS) or "").strip(names.KEY_SEPARATOR))
        count, texts, keys, tag = look_inside(body, unique_key, has_keys=has_keys)
        if said is not None and inner_count(text) != count:
            raise RecordError(f"the batch declares {said} messages and holds {count}")
        if tag and find_property(text, names.TAGS) is not None:
            tag = b""
    if text and text[-1] != names.PAIR_SEPARATOR:
        text += names.PAIR_SEPARATOR
    number = "" if said is not None else f"{names.INNER_NUM}\x01{count}\x02"
    properties = text.encode() + common + number.encode()
    if tag:
        properties += b"TAGS\x01%b\x02" % tag
    if len(properties) > names.MAX_PROPERTIES_BYTES - ROOM_FOR_BASE:
        raise RecordError(f"the properties of the batch have {len(properties)} bytes, too many to be stored")
    return _new_tuple(Wrapper, (properties, count, texts, keys))


def look_inside(body: bytes, unique_key: str, *, has_keys: bool) -> tuple[int, list[bytes], bytes, bytes]:
    """Return for an uncompressed batch the number of messages, ``texts`` and ``keys`` as in :class:`Wrapper`, and the
    common tag of all messages, empty if there is none. ``has_keys`` says whether the batch has KEYS. Raises as
    :func:`wrap`.
    """
    keyed = scan_keyed(body)
    if keyed is not None:
        count, keys, tag = keyed
        if len(keys) == count * len(unique_key) and not has_keys and unique_key.isascii():
            return count, [], keys + unique_key.encode(), _legible(tag)
    texts, tag = _texts_and_tag(body)
    return len(texts), texts, b"", _legible(tag)


def _legible(tag: bytes) -> bytes:
    """Drop a tag that is not UTF-8: it cannot be subscribed to, and properties with it cannot be decoded."""
    try:
        tag.decode()
    except UnicodeDecodeError:
        return b""
    return tag


def _texts_and_tag(body: bytes) -> tuple[list[bytes], bytes]:
    """Return the properties of each message, and the common tag of all."""
    alike = scan_uniform(body)
    texts = list(alike.properties) if alike is not None else _examine(body)
    joined = b"".join(texts)
    require_flat(joined, texts)
    return texts, _common_tag(texts, joined)


def require_flat(data: bytes, texts: Iterable[bytes]) -> None:
    """Check that no message is a batch itself; ``texts`` are the properties of the messages, all contained in ``data``.

    Raises:
        RecordError: a message is a batch, which would be delivered as one message.
    """
    if _INNER_NUM in data and any(find_value(each, _INNER_NUM) for each in texts):
        raise RecordError("a message of the batch is a batch")


def _examine(body: bytes) -> list[bytes]:
    """Return the properties of each message after checking all lengths. This is the only per-message cost."""
    unpack, unpack_short = _SIZE_CRC_LENGTH.unpack_from, _SHORT.unpack_from
    texts: list[bytes] = []
    append = texts.append
    position, end = 0, len(body)
    try:
        while position < end:
            size, crc, length = unpack(body, position)
            properties_at = position + 22 + length
            position += size
            if length < 0 or size < OVERHEAD_BYTES or position > end:
                raise RecordError(f"message {len(texts)} of the batch is truncated or has a wrong size")
            if unpack_short(body, properties_at - 2)[0] != position - properties_at:
                raise RecordError(f"message {len(texts)} of the batch has inconsistent lengths")
            if crc and crc != crc32(body[properties_at - 2 - length : properties_at - 2]) & 0x7FFFFFFF:
                raise RecordError(f"message {len(texts)} of the batch has a wrong CRC")
            append(body[properties_at:position])
            if len(texts) > MAX_BATCH_RECORDS:  # stop early: 4 MiB hold 190,000
                raise RecordError(f"a batch of more than {MAX_BATCH_RECORDS} messages")
    except struct.error:
        raise RecordError(f"message {len(texts)} of the batch is truncated") from None
    if not texts:
        raise RecordError("the batch is empty")
    return texts


def _common_tag(texts: list[bytes], joined: bytes) -> bytes:
    """Return the common tag of all messages, empty if there is none."""
    tags = {find_value(text, _TAGS) for text in texts} if _TAGS in joined else set()
    return tags.pop() if len(tags) == 1 else b""
