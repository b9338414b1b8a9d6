"""The records of a transaction: half message, committed message, op (``TransactionalMessageBridge``,
``EndTransactionProcessor``).

::

    send with TRAN_MSG=true --> half: RMQ_SYS_TRANS_HALF_TOPIC queue 0, REAL_TOPIC, REAL_QID, __transactionId__
    commit   --> copy in REAL_TOPIC/REAL_QID, transaction bits 8, prepared offset = log offset of the half
    decision --> op: RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0, tag d, body "12,": offsets of decided halves

Half messages remain in the log. A half message is open until an op contains its offset. A check renews the half
message: it appends a copy with the new number of checks, and an op for the old one. A discarded half message is copied
to TRANS_CHECK_MAX_TIME_TOPIC. Committed, renewed and discarded copies record their origin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from raptormq.broker.delay.delayed_message import Fit, restore
from raptormq.broker.internal_writer import record_copy
from raptormq.broker.tag_code import tag_code
from raptormq.protocol import properties as names
from raptormq.protocol.copied_properties import merge_properties
from raptormq.protocol.headers.transaction import COMMIT
from raptormq.protocol.properties import decode_properties, find_number, find_property
from raptormq.protocol.record import StoredMessage, SysFlag
from raptormq.protocol.topic_names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from raptormq.storage.queue import PendingRecord

_TRANSACTION_BITS = int(SysFlag.TRANSACTION_ROLLBACK)
_MAX_CHECKS = str((1 << 31) - 1)
_OP_PROPERTIES = b"TAGS\x01d\x02"


def is_half(text: str) -> bool:
    """Return whether properties (text form) contain TRAN_MSG=true, the mark of a half message."""
    return (names.find_property(text, names.TRANSACTION_PREPARED) or "").lower() == "true"


def to_half(record: PendingRecord, unique_key: str) -> PendingRecord:
    """Return ``record`` as a half message.

    Raises:
        MessageError: the properties are too long with the added ones and the number of checks.
    """
    found = decode_properties(record.properties.decode())
    needed = {
        names.TRANSACTION_ID: unique_key,
        names.REAL_TOPIC: record.topic,
        names.REAL_QUEUE_ID: str(record.queue_id),
    }
    merge_properties(found, needed | {names.TRANSACTION_CHECK_TIMES: _MAX_CHECKS})
    return record._replace(
        topic=HALF_TOPIC,
        queue_id=0,
        properties=merge_properties(found, needed).encode(),
        sys_flag=record.sys_flag & ~_TRANSACTION_BITS,
    )


def committed(half: StoredMessage) -> PendingRecord | None:
    """Return the message for consumers, or None if REAL_TOPIC or REAL_QID of ``half`` is missing or invalid."""
    record = restore(half)
    if record is None:
        return None
    return record._replace(sys_flag=half.sys_flag & ~_TRANSACTION_BITS | COMMIT)


def op_record(offset: int, now: int) -> PendingRecord:
    """Return the op that decides the half message at ``offset`` of the half queue."""
    return PendingRecord(
        OP_HALF_TOPIC, 0, b"%d," % offset, _OP_PROPERTIES, tag_code(_OP_PROPERTIES), born_timestamp=now
    )


def decided_offsets(op: StoredMessage) -> list[int]:
    """Return the half offsets in the body of an op. Words that are not numbers are skipped."""
    return [int(word) for word in op.body.split(b",") if word.isdigit()]


def renewed(half: StoredMessage, checks: int, fit: Fit) -> PendingRecord:
    """Return the copy of a half message with the new number of checks, which must survive a restart.

    The properties of a half message that Apache RocketMQ stored may have no space for the number. ``fit`` then drops
    other properties.
    """
    text = fit(decode_properties(half.properties), {names.TRANSACTION_CHECK_TIMES: str(checks)})
    return record_copy(half, HALF_TOPIC, 0, text, once=True)


def discarded(half: StoredMessage) -> PendingRecord:
    """Return the copy of an undecided half message for TRANS_CHECK_MAX_TIME_TOPIC, where operators can find it."""
    return record_copy(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties, once=True)


def check_body(half: StoredMessage) -> StoredMessage:
    """Return the half message with the topic and queue that its producer sent it to, for the body of a check."""
    topic = find_property(half.properties, names.REAL_TOPIC) or half.topic
    return replace(half, topic=topic, queue_id=find_number(half.properties, names.REAL_QUEUE_ID) or 0)


class Producers(NamedTuple):
    """Producers that may receive the check of a half message: members of ``group`` with the permission to send to
    ``topic``. The check contains the message.
    """

    group: str
    topic: str


def producers_of(half: StoredMessage) -> Producers:
    """Return the producers that may receive the check of ``half``."""
    found = (find_property(half.properties, name) or "" for name in (names.PRODUCER_GROUP, names.REAL_TOPIC))
    return Producers(*found)


def check_count(half: StoredMessage) -> int:
    """Return the number of checks of ``half``."""
    return find_number(half.properties, names.TRANSACTION_CHECK_TIMES) or 0


def immunity_ms(half: StoredMessage) -> int | None:
    """Return the time after the born timestamp before the first check (CHECK_IMMUNITY_TIME_IN_SECONDS) in ms, or None
    if the message does not set it.
    """
    seconds = find_number(half.properties, names.CHECK_IMMUNITY_SECONDS)
    return None if seconds is None else seconds * 1000
