"""What a transactional message is before and after the decision (``TransactionalMessageBridge``,
``EndTransactionProcessor``).

::

    send with TRAN_MSG=true --> half: RMQ_SYS_TRANS_HALF_TOPIC queue 0, REAL_TOPIC, REAL_QID, __transactionId__
    commit   --> copy in REAL_TOPIC/REAL_QID, transaction bits 8, prepared offset = the half's place in the log
    decision --> op: RMQ_SYS_TRANS_OP_HALF_TOPIC queue 0, tag d, body "12,": offsets of settled halves

Halves stay in the log; what is open is what no op names. A half that is asked about is written anew, one that is given
up goes to TRANS_CHECK_MAX_TIME_TOPIC; each copy names its origin as the committed message does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from raptormq.broker.delay.postponing import Fit, restore
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
_MOST_CHECKS = str((1 << 31) - 1)
_OP_PROPERTIES = b"TAGS\x01d\x02"


def is_half(text: str) -> bool:
    """Whether properties (text form) make a message half of a transaction; a retried one is so no more."""
    return (names.find_property(text, names.TRANSACTION_PREPARED) or "").lower() == "true"


def to_half(record: PendingRecord, unique_key: str) -> PendingRecord:
    """Return ``record`` as it waits for the decision.

    Raises:
        MessageError: the properties get too long by those that are added, or by the number of questions to come.
    """
    found = decode_properties(record.properties.decode())
    needed = {
        names.TRANSACTION_ID: unique_key,
        names.REAL_TOPIC: record.topic,
        names.REAL_QUEUE_ID: str(record.queue_id),
    }
    merge_properties(found, needed | {names.TRANSACTION_CHECK_TIMES: _MOST_CHECKS})
    return record._replace(
        topic=HALF_TOPIC,
        queue_id=0,
        properties=merge_properties(found, needed).encode(),
        sys_flag=record.sys_flag & ~_TRANSACTION_BITS,
    )


def committed(half: StoredMessage) -> PendingRecord | None:
    """Return the message that consumers get, None when nothing says where it belongs."""
    record = restore(half)
    if record is None:
        return None
    return record._replace(sys_flag=half.sys_flag & ~_TRANSACTION_BITS | COMMIT)


def op_record(offset: int, now: int) -> PendingRecord:
    """Return the record that settles the half at ``offset`` of the queue of halves."""
    return PendingRecord(
        OP_HALF_TOPIC, 0, b"%d," % offset, _OP_PROPERTIES, tag_code(_OP_PROPERTIES), born_timestamp=now
    )


def settled_by(op: StoredMessage) -> list[int]:
    """Return the offsets that an op names; what is no number in it is left out."""
    return [int(word) for word in op.body.split(b",") if word.isdigit()]


def asked_again(half: StoredMessage, checks: int, fit: Fit) -> PendingRecord:
    """Return the half as it is written anew with each question: the number of questions must outlive a restart. One
    that Apache RocketMQ has taken may have no room for it, and is as ``fit`` makes it.
    """
    text = fit(decode_properties(half.properties), {names.TRANSACTION_CHECK_TIMES: str(checks)})
    return record_copy(half, HALF_TOPIC, 0, text, once=True)


def given_up(half: StoredMessage) -> PendingRecord:
    """Return the half as operators find it when its producer never decided."""
    return record_copy(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties, once=True)


def question(half: StoredMessage) -> StoredMessage:
    """Return the half as the producer sees it in a question: in the topic and queue it was sent to."""
    topic = find_property(half.properties, names.REAL_TOPIC) or half.topic
    return replace(half, topic=topic, queue_id=find_number(half.properties, names.REAL_QUEUE_ID) or 0)


class Producers(NamedTuple):
    """Who may be asked about a half: members of ``group`` who may send to ``topic``; the question holds the message."""

    group: str
    topic: str


def producers_of(half: StoredMessage) -> Producers:
    """Return who may be asked about ``half``."""
    found = (find_property(half.properties, name) or "" for name in (names.PRODUCER_GROUP, names.REAL_TOPIC))
    return Producers(*found)


def checks_so_far(half: StoredMessage) -> int:
    """How often its producer was asked about ``half``."""
    return find_number(half.properties, names.TRANSACTION_CHECK_TIMES) or 0


def immunity_ms(half: StoredMessage) -> int | None:
    """How long after its birth a half is not asked about, where the message says so itself."""
    seconds = find_number(half.properties, names.CHECK_IMMUNITY_SECONDS)
    return None if seconds is None else seconds * 1000
