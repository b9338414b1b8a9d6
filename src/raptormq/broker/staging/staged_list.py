"""Staged lists: messages for one queue, stored in ``rmq_sys_STAGED`` until a commit publishes them. Pure functions.

::

    record of rmq_sys_STAGED, queue 0
        properties   STAGED_BY=query:batch  STAGED_FORM=list|whole  STAGED_FLAG=sysFlag  REAL_TOPIC  REAL_QID
        body         length of properties (2 bytes) | properties | batch

``batch`` has the bytes that the producer sent. For the form ``list``, ``properties`` are those that the broker adds to
each message. For the form ``whole`` (queue type BatchCQ) they are the properties of the batch. Keys and tags are only
in the body, so that key queries and filters do not find staged messages.

Every published record has the staged record as its origin, like a committed half message
(:mod:`raptormq.broker.delivered`). A scan of the log after the commit record therefore finds the published records.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from raptormq.broker.delivered.origin import origin_field
from raptormq.broker.tag_code import tag_code, tag_codes
from raptormq.errors import RecordError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import scan_batch, with_valid_utf8
from raptormq.protocol.properties import decode_properties, encode_properties
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import STAGED_TOPIC
from raptormq.storage.queue import PendingList, PendingRecord

_LENGTH = struct.Struct(">H")
_BY, _FORM, _FLAG = "STAGED_BY", "STAGED_FORM", "STAGED_FLAG"
_LIST, _WHOLE = "list", "whole"


def staged(pending: PendingRecord | PendingList, batch_name: str) -> PendingRecord:
    """Return the record that stages an admitted list, or an admitted batch that is stored whole."""
    if isinstance(pending, PendingList):
        form, batch, properties, flag = _LIST, pending.batch, pending.common_properties, 0
    else:
        form, batch, properties, flag = _WHOLE, bytes(pending.body), pending.properties, pending.flag
    text = encode_properties(
        {
            _BY: batch_name,
            _FORM: form,
            _FLAG: str(pending.sys_flag),
            names.REAL_TOPIC: pending.topic,
            names.REAL_QUEUE_ID: str(pending.queue_id),
        }
    )
    return PendingRecord(
        STAGED_TOPIC,
        0,
        b"".join((_LENGTH.pack(len(properties)), properties, batch)),
        text.encode(),
        born_timestamp=pending.born_timestamp,
        born_host=pending.born_host,
        flag=flag,
    )


class StagedList(NamedTuple):
    """Description of a staged record."""

    batch_name: str
    topic: str
    queue_id: int
    stored_at: int
    """Store time of the staged record in ms since 1970."""
    place: int
    """Log offset of the staged record."""


def describe(record: StoredMessage) -> StagedList:
    """Decode the description of a staged record.

    Raises:
        RecordError: ``record`` is not a staged record.
    """
    return _describe(record, decode_properties(record.properties))


def _describe(record: StoredMessage, found: Mapping[str, str]) -> StagedList:
    try:
        return StagedList(
            found[_BY],
            found[names.REAL_TOPIC],
            int(found[names.REAL_QUEUE_ID]),
            record.store_timestamp,
            record.physical_offset,
        )
    except (KeyError, ValueError):
        raise RecordError(f"the record at log offset {record.physical_offset} is not a staged list") from None


def published(record: StoredMessage) -> list[PendingRecord]:
    """Return the records to publish. The result depends on the staged record only.

    Raises:
        RecordError: ``record`` is not a staged record, or is damaged.
    """
    more = decode_properties(record.properties)
    found = _describe(record, more)
    try:
        sys_flag, (length,) = int(more[_FLAG]), _LENGTH.unpack_from(record.body)
        is_whole = more[_FORM] == _WHOLE
    except (KeyError, ValueError, struct.error):
        raise RecordError(f"the staged list at log offset {record.physical_offset} is damaged") from None
    behind = _LENGTH.size + length
    common, batch = bytes(record.body[_LENGTH.size : behind]), memoryview(record.body)[behind:]
    model = PendingRecord(
        found.topic,
        found.queue_id,
        batch,
        common,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=sys_flag,
        prepared_transaction_offset=origin_field(record.physical_offset),
    )
    if is_whole:
        return [model._replace(tag_code=tag_code(common))]
    text = bytes(batch)
    rows = with_valid_utf8(scan_batch(text))
    return [
        model._replace(body=text[body_at:body_end], properties=_joined(properties, common), tag_code=code, flag=flag)
        for (flag, body_at, body_end, properties), code in zip(rows, tag_codes(rows), strict=True)
    ]


def _joined(properties: bytes, common: bytes) -> bytes:
    if not properties or properties.endswith(b"\x02"):
        return properties + common
    return properties + b"\x02" + common
