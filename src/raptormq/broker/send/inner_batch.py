"""Builds the single record of a batch for a BatchCQ topic (RIP-26, ``SendMessageProcessor.sendBatchMessage``).

:mod:`.admission` checks the request. The body is stored unchanged, compressed or not. This module checks all lengths in
an uncompressed body, because consumers rely on them. The broker adds INNER_NUM and the properties that it adds to every
message. It also adds TAGS if the batch has none and all messages have the same tag; otherwise consumers that filter by
this tag would not receive the batch. The store adds INNER_BASE with the queue offset.
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
from raptormq.protocol.properties import find_property, find_value, may_be_broker_only_in
from raptormq.protocol.record import SysFlag

_SIZE_CRC_LENGTH = struct.Struct(">i4xi4xi")
_SHORT = struct.Struct(">h")
_INNER_NUM = f"{names.INNER_NUM}\x01".encode()
_TAGS = f"{names.TAGS}\x01".encode()
_COMPRESSED = int(SysFlag.COMPRESSED)
_new_tuple = tuple.__new__
ROOM_FOR_BASE = 40
"""Maximum size of INNER_BASE in bytes."""


class HasBrokerOnly(RecordError):
    """A message of a batch may have properties that only brokers set. See
    :func:`~raptormq.protocol.batch.without_broker_only_properties`.
    """


class Wrapper(NamedTuple):
    """Data of the record of a batch."""

    properties: bytes
    messages: int
    texts: list[bytes]
    """Properties of the messages; empty if the body is compressed or encrypted, or ``keys`` is set."""
    keys: bytes
    """Concatenated unique keys of all messages and of the batch; empty unless all have the same length and there are no
    other keys."""


def wrap(body: bytes, text: str, unique_key: str, common: bytes, sys_flag: int, *, is_clean: bool = False) -> Wrapper:
    """Return the record data of a batch with ``body``, properties ``text`` and ``unique_key``. ``is_clean``: no message
    has properties that only brokers set.

    ``common`` contains the properties that the broker adds to every message. The number of messages in a compressed or
    encrypted batch is read from INNER_NUM, because brokers do not decompress bodies and have no encryption keys.

    Raises:
        HasBrokerOnly: a message of an uncompressed batch has properties that only brokers set.
        RecordError: the batch is empty, too large, damaged or nested, or declares a wrong number of messages.
    """
    declared = find_property(text, names.INNER_NUM)
    texts: list[bytes] = []
    tag = keys = b""
    if sys_flag & _COMPRESSED or is_encrypted_body(body):
        count = inner_count(text)
    else:
        has_keys = "KEYS\x01" in text and bool((find_property(text, names.KEYS) or "").strip(names.KEY_SEPARATOR))
        count, texts, keys, tag = look_inside(body, unique_key, has_keys=has_keys, is_clean=is_clean)
        if declared is not None and inner_count(text) != count:
            raise RecordError(f"the batch declares {declared} messages but contains {count}")
        if tag and find_property(text, names.TAGS) is not None:
            tag = b""
    if text and text[-1] != names.PAIR_SEPARATOR:
        text += names.PAIR_SEPARATOR
    number = "" if declared is not None else f"{names.INNER_NUM}\x01{count}\x02"
    properties = text.encode() + common + number.encode()
    if tag:
        properties += b"TAGS\x01%b\x02" % tag
    if len(properties) > names.MAX_PROPERTIES_BYTES - ROOM_FOR_BASE:
        longest = names.MAX_PROPERTIES_BYTES - ROOM_FOR_BASE
        raise RecordError(f"the properties of the batch have {len(properties)} bytes; the limit is {longest}")
    return _new_tuple(Wrapper, (properties, count, texts, keys))


def look_inside(
    body: bytes, unique_key: str, *, has_keys: bool, is_clean: bool = False
) -> tuple[int, list[bytes], bytes, bytes]:
    """Scan the body of an uncompressed batch.

    Return the number of messages, ``texts`` and ``keys`` of :class:`Wrapper`, and the common tag of all messages (empty
    if there is none). ``has_keys`` is true if the batch itself has KEYS. For ``is_clean`` see :func:`wrap`.

    Raises:
        HasBrokerOnly: a message has properties that only brokers set.
        RecordError: the batch is empty, too large, damaged or nested.
    """
    keyed = scan_keyed(body)
    if keyed is not None:
        count, keys, tag = keyed
        if len(keys) == count * len(unique_key) and not has_keys and unique_key.isascii():
            return count, [], keys + unique_key.encode(), _legible(tag)
    texts, tag = _texts_and_tag(body, is_clean=is_clean)
    return len(texts), texts, b"", _legible(tag)


def _legible(tag: bytes) -> bytes:
    """Return ``tag``, or an empty tag if it is not UTF-8: properties with such a tag cannot be decoded."""
    try:
        tag.decode()
    except UnicodeDecodeError:
        return b""
    return tag


def _texts_and_tag(body: bytes, *, is_clean: bool) -> tuple[list[bytes], bytes]:
    """Return the properties of each message, and the common tag of all."""
    alike = scan_uniform(body)
    texts = list(alike.properties) if alike is not None else _examine(body)
    joined = b"".join(texts)
    require_flat(joined, texts)
    if not is_clean and may_be_broker_only_in(joined):
        raise HasBrokerOnly("a message of the batch may have properties that only brokers set")
    return texts, _common_tag(texts, joined)


def require_flat(data: bytes, texts: Iterable[bytes]) -> None:
    """Check that no message is a batch itself: consumers would receive such a batch as one message.

    ``texts`` are the properties of the messages. ``data`` contains all of them.

    Raises:
        RecordError: a message is a batch.
    """
    if _INNER_NUM in data and any(find_value(each, _INNER_NUM) for each in texts):
        raise RecordError("a message of the batch is a batch itself")


def _examine(body: bytes) -> list[bytes]:
    """Return the properties of each message after checking all lengths and CRCs."""
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
            if len(texts) > MAX_BATCH_RECORDS:  # stop early: 190,000 messages fit in 4 MiB
                raise RecordError(f"the batch has more than {MAX_BATCH_RECORDS} messages")
    except struct.error:
        raise RecordError(f"message {len(texts)} of the batch is truncated") from None
    if not texts:
        raise RecordError("the batch is empty")
    return texts


def _common_tag(texts: list[bytes], joined: bytes) -> bytes:
    """Return the common tag of all messages, empty if there is none."""
    tags = {find_value(text, _TAGS) for text in texts} if _TAGS in joined else set()
    return tags.pop() if len(tags) == 1 else b""
