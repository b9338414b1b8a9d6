"""Messages for several queues of a broker in one request: SEND_QUEUE_BATCHES (30320), specific to RaptorMQ.

Apache RocketMQ responds with code 3 (not supported), and the client then sends every part separately. RIP-27 planned
this as its second phase: with thousands of queues, the batch of one queue is too small for a separate request.

The header (:class:`~raptormq.protocol.headers.send.QueueBatchesRequestHeader`) has the fields common to all parts, and
the names of their topics, joined with ``;``. The body is a sequence of parts, big-endian, no padding::

    KIND u8 | TOPIC u16 | QUEUEID i32 | SYSFLAG i32 | FLAG i32 | PROPLEN u16 | BODYLEN u32 | properties UTF-8 | body

    KIND   0  a list: what SEND_BATCH_MESSAGE (320) carries, its body drawn in :mod:`~raptormq.protocol.batch`
           1  a message, or a batch in its stored form: what SEND_MESSAGE_V2 (310) carries
    TOPIC  index of the topic in the names of the header

Each part is an independent send under the rules of its kind: it is stored or refused regardless of the others. The
response has code 0 if the request can be decoded, and its body has one part for each part of the request, in the same
order::

    CODE u16 | WHOLE u8 | QUEUEID i32 | QUEUEOFFSET i64 | TEXTLEN u32 | text UTF-8

    CODE         the code of the response to a single send: 0, 10, 11 and 12 mean stored
    WHOLE        1: the list was stored as one batch
    QUEUEOFFSET  of the first message
    text         offset message ids, joined with commas; the remark if nothing was stored

The header of the response contains the fields common to all parts. Any other code of the response applies to all parts:
nothing was stored. The broker waits for the disk if any part requires it. Parts with a delivery time get no recall
handle.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from raptormq.errors import BodyError, MessageError
from raptormq.protocol.properties import MAX_PROPERTIES_BYTES

_PART = struct.Struct(">BHiiiHI")
_ANSWER = struct.Struct(">HBiqI")
TOPIC_SEPARATOR = ";"
"""Not allowed in names of topics."""
MAX_PARTS = 16_384
"""Maximum parts of a request, which bounds the time that a broker spends on it."""


class PartKind(IntEnum):
    """What a part carries."""

    LIST = 0
    MESSAGE = 1


_KINDS = {int(kind): kind for kind in PartKind}


class Part(NamedTuple):
    """The messages for one queue."""

    kind: PartKind
    topic_index: int
    queue_id: int
    sys_flag: int
    flag: int
    properties: str
    body: bytes


class PartResponse(NamedTuple):
    """The result of one part."""

    code: int
    stored_as_batch: bool = False
    queue_id: int = -1
    queue_offset: int = -1
    text: str = ""


def encode_parts(parts: Iterable[Part]) -> bytes:
    """Return the body of a request.

    Raises:
        MessageError: the properties are too long, or there are more than 65,536 topics.
    """
    pieces: list[bytes] = []
    pack = _PART.pack
    for kind, topic_index, queue_id, sys_flag, flag, properties, body in parts:
        text = properties.encode()
        if len(text) > MAX_PROPERTIES_BYTES or topic_index > 0xFFFF:
            raise MessageError(f"{len(text)} bytes of properties for topic {topic_index} do not fit into a request")
        pieces += pack(kind, topic_index, queue_id, sys_flag, flag, len(text), len(body)), text, body
    return b"".join(pieces)


def decode_parts(data: bytes, topic_count: int) -> list[Part]:
    """Return the parts of a request whose header names ``topic_count`` topics.

    Raises:
        BodyError: there are no parts or more than :data:`MAX_PARTS`, or a part is truncated, of an unknown kind, for a
            topic that the header does not name, or has properties that are not UTF-8.
    """
    parts: list[Part] = []
    unpack, kinds, at, end, overhead = _PART.unpack_from, _KINDS, 0, len(data), _PART.size
    new = tuple.__new__  # half the time of the NamedTuple constructor, which is a Python function
    try:
        while at < end:
            kind, topic_index, queue_id, sys_flag, flag, properties_length, length = unpack(data, at)
            body_at = at + overhead + properties_length
            text = data[at + overhead : body_at].decode()
            at = body_at + length
            if at > end or kind not in kinds or topic_index >= topic_count or len(parts) >= MAX_PARTS:
                raise BodyError(_complaint(len(parts), kind, topic_index, cut=at > end))
            fields = kinds[kind], topic_index, queue_id, sys_flag, flag, text, data[body_at:at]
            parts.append(new(Part, fields))
    except struct.error:
        raise BodyError(f"part {len(parts)} of the request is truncated") from None
    except UnicodeDecodeError:
        raise BodyError(f"the properties of part {len(parts)} are not UTF-8") from None
    if not parts:
        raise BodyError("the request has no parts")
    return parts


def _complaint(number: int, kind: int, topic_index: int, *, cut: bool) -> str:
    if cut:
        return f"part {number} of the request is truncated"
    if number >= MAX_PARTS:
        return f"the request has more than {MAX_PARTS} parts"
    if kind not in _KINDS:
        return f"part {number} of the request has the unknown kind {kind}"
    return f"part {number} of the request is for topic {topic_index}, which the header does not name"


def encode_part_responses(answers: Iterable[PartResponse]) -> bytes:
    """Return the body of the response."""
    pieces: list[bytes] = []
    pack = _ANSWER.pack
    for code, stored_as_batch, queue_id, queue_offset, text in answers:
        encoded = text.encode()
        pieces += pack(code, stored_as_batch, queue_id, queue_offset, len(encoded)), encoded
    return b"".join(pieces)


def decode_part_responses(data: bytes, count: int) -> list[PartResponse]:
    """Return the results of ``count`` parts.

    Raises:
        BodyError: a result is truncated or not UTF-8, or there are not ``count`` of them.
    """
    answers: list[PartResponse] = []
    unpack, new, at, end, overhead = _ANSWER.unpack_from, tuple.__new__, 0, len(data), _ANSWER.size
    try:
        while at < end:
            code, whole, queue_id, queue_offset, length = unpack(data, at)
            text_at = at + overhead
            at = text_at + length
            if at > end:
                raise BodyError(f"the response to part {len(answers)} is truncated")
            answers.append(new(PartResponse, (code, whole != 0, queue_id, queue_offset, data[text_at:at].decode())))
    except struct.error:
        raise BodyError(f"the response to part {len(answers)} is truncated") from None
    except UnicodeDecodeError:
        raise BodyError(f"the response to part {len(answers)} is not UTF-8") from None
    if len(answers) != count:
        raise BodyError(f"the response has {len(answers)} results for {count} parts")
    return answers
