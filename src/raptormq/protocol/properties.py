"""Message properties: their text form and the well-known names (Apache RocketMQ ``MessageConst``, ``MessageDecoder``).

Text form, UTF-8, at most 32,767 bytes::

    name 0x01 value 0x02 name 0x01 value 0x02 …        (the last 0x02 may be absent)

Names and values are never empty. If a name occurs twice, the last value counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from raptormq.errors import MessageError
from raptormq.protocol.naturals import parse_natural

NAME_SEPARATOR = "\x01"
PAIR_SEPARATOR = "\x02"
MAX_PROPERTIES_BYTES = 32_767

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
UNIQUE_KEY = "UNIQ_KEY"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INSTANCE_ID = "INSTANCE_ID"
CLUSTER = "CLUSTER"
POP_CHECKPOINT = "POP_CK"
POP_CHECKPOINT_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
REPLY_TTL_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DELETE_KEY = "TIMER_DEL_UNIQKEY"
PRIORITY = "_SYS_MSG_PRIORITY_"
DLQ_REASON = "DLQ_REASON"
"""Reason why a consumer has given up a message; specific to RaptorMQ's client."""
LITE_TOPIC = "__LITE_TOPIC"
ENCRYPTION_KEY_ID = "__ENCRYPTION_KEY"
"""RaptorMQ only: the key of an encrypted body, see `encryption`. A batch has it too if it is encrypted or contains
encrypted bodies.
"""

INNER_IDS = "__INNER_IDS"
"""RaptorMQ only: the unique ids of the messages in a batch that brokers cannot read, see `inner_ids`."""

LEFT_OUT = "__LEFT_OUT"
"""RaptorMQ only: names of the properties that did not fit into a copy of the message, see `copied_properties`."""

INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTIES_CRC = "__CRC32#"

KEY_SEPARATOR = " "
_PAIR_BYTE = ord(PAIR_SEPARATOR)

RESERVED = frozenset(
    {
        "KEYS",
        "TAGS",
        "WAIT",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "REAL_QID",
        "TRAN_MSG",
        "PGROUP",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "BUYER_ID",
        "ORIGIN_MESSAGE_ID",
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "RECONSUME_TIME",
        "MSG_REGION",
        "TRACE_ON",
        "UNIQ_KEY",
        "EXTEND_UNIQ_INFO",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "POP_CK",
        "POP_CK_OFFSET",
        "1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "DUP_INFO",
        "INNER_NUM",
        "INNER_BASE",
        "CLUSTER",
        "MSG_TYPE",
        "INSTANCE_ID",
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "ARRIVE_TIME",
        "PUSH_REPLY_TIME",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL",
        "DLQ_ORIGIN_TOPIC",
        "DLQ_ORIGIN_MESSAGE_ID",
        "__SHARDINGKEY",
        "__transactionId__",
        "TRANSACTION_CHECK_TIMES",
        "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "__CRC32#",
        "ORIGIN_GROUP",
        "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
    }
)
"""Names that an application must not set as its own properties."""
SYSTEM = RESERVED | {DLQ_REASON, ENCRYPTION_KEY_ID, INNER_IDS, LEFT_OUT}
"""`RESERVED` and the names specific to RaptorMQ. All other names belong to the application."""

BROKER_ONLY = frozenset(
    {
        POP_CHECKPOINT,  # PopMessageProcessor, for messages of retry topics; SendMessageProcessor deletes it
        POP_CHECKPOINT_OFFSET,  # reserved
        FIRST_POP_TIME,  # PopReviveService
        REAL_TOPIC,  # HookUtils, TransactionalMessageBridge: topic and queue of delayed and half messages
        REAL_QUEUE_ID,
        TIMER_OUT_MS,  # HookUtils
        TIMER_ENQUEUE_MS,  # TimerMessageStore
        TIMER_DEQUEUE_MS,
        TIMER_ROLL_TIMES,
        TRANSACTION_CHECK_TIMES,  # TransactionalMessageServiceImpl
        PREPARED_QUEUE_OFFSET,  # TransactionalMessageBridge
        INNER_BASE,  # BatchConsumeQueue
        INNER_MULTI_QUEUE_OFFSET,  # LmqDispatch
        PUSH_REPLY_TIME,  # ReplyMessageProcessor
        PROPERTIES_CRC,  # CommitLog, which deletes it before the append
    }
)
"""Names whose values only brokers set, with the class of Apache RocketMQ that sets them. Brokers drop them from what
clients send, and a client uses their values only where a broker has set them. MSG_REGION, TRACE_ON and CLUSTER are not
in this set: brokers append them to every message, and the last value counts. All other names of `SYSTEM` may be set by
clients (Message, MessageAccessor and MessageClientIDSetter of the Java client), among them RETRY_TOPIC,
ORIGIN_MESSAGE_ID and TIMER_DEL_UNIQKEY.
"""

POP_PROPERTIES = frozenset({POP_CHECKPOINT, POP_CHECKPOINT_OFFSET, FIRST_POP_TIME})
"""Names of `BROKER_ONLY` that belong to one delivery by POP. Copies of messages do not have those of the original."""

_INT_MAX = (1 << 31) - 1
_INT_DIGITS = len(str(_INT_MAX))


def encode_properties(properties: Mapping[str, str]) -> str:
    """Return the text form; the caller encodes it as UTF-8.

    Raises:
        MessageError: a name or value is empty or contains a separator, or the text is too long.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if not name or not value:
            raise MessageError(f"the property {name!r} has an empty {'value' if name else 'name'}")
        parts += name, NAME_SEPARATOR, value, PAIR_SEPARATOR
    text = "".join(parts)
    if text.count(NAME_SEPARATOR) != len(properties) or text.count(PAIR_SEPARATOR) != len(properties):
        raise MessageError("a property contains one of the separators \\x01 and \\x02")
    _check_length(text)
    return text


def reencode_properties(decoded: Mapping[str, str]) -> str:
    """Return the text form of what :func:`decode_properties` returned, with added properties.

    Unlike :func:`encode_properties` it accepts what other clients have sent, such as a name separator inside a value,
    as Apache RocketMQ does.

    Raises:
        MessageError: the text is too long.
    """
    text = join_properties(decoded)
    _check_length(text)
    return text


def join_properties(decoded: Mapping[str, str]) -> str:
    """Return the text form without checking its length."""
    return "".join(f"{name}{NAME_SEPARATOR}{value}{PAIR_SEPARATOR}" for name, value in decoded.items())


def _check_length(text: str) -> None:
    if len(text) > MAX_PROPERTIES_BYTES // 4 and len(text.encode()) > MAX_PROPERTIES_BYTES:
        raise MessageError(f"the properties are longer than {MAX_PROPERTIES_BYTES} bytes")


def decode_properties(text: str) -> dict[str, str]:
    """Return the properties of a text form. Pairs without a name or a value are skipped, as in Apache RocketMQ."""
    properties: dict[str, str] = {}
    for pair in text.split(PAIR_SEPARATOR):
        name, separator, value = pair.partition(NAME_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    return properties


def pattern_of(wanted: Iterable[str]) -> str:
    """Return a regular expression that finds names in a text form, for the hot path of brokers. It may also find the
    end of a longer name, or a part of a value. All names contain an underscore behind their first character.

    A search goes from underscore to underscore, and most underscores differ in the character before them. It takes the
    time of about four searches for single names.
    """
    ends: dict[str, list[str]] = {}
    for name in sorted(wanted):
        at = name.index("_", 1)
        ends.setdefault(name[:at], []).append(re.escape(name[at + 1 :]))
    befores = "".join(sorted({begin[-1] for begin in ends}))
    found = "|".join(f"(?<={re.escape(begin)}_)(?:{'|'.join(each)})" for begin, each in ends.items())
    return f"_(?<=[{befores}]_)(?:{found}){NAME_SEPARATOR}"


_BROKER_ONLY_IN = re.compile(pattern_of(BROKER_ONLY).encode())


def may_be_broker_only_in(data: bytes) -> bool:
    """Return whether encoded text forms may contain names of `BROKER_ONLY`."""
    return _BROKER_ONLY_IN.search(data) is not None


def without_broker_only(text: str) -> str:
    """Return a text form without the pairs whose names are in `BROKER_ONLY`. Other pairs are unchanged."""
    pairs = text.split(PAIR_SEPARATOR)
    return PAIR_SEPARATOR.join(pair for pair in pairs if pair.partition(NAME_SEPARATOR)[0] not in BROKER_ONLY)


def without_pop_properties(decoded: Mapping[str, str]) -> dict[str, str]:
    """Return decoded properties without those in `POP_PROPERTIES`."""
    return {name: value for name, value in decoded.items() if name not in POP_PROPERTIES}


def find_property(text: str, name: str) -> str | None:
    """Return one property of a text form without parsing the others, for the hot path of brokers. The last occurrence
    counts.
    """
    start = text.rfind(PAIR_SEPARATOR + name + NAME_SEPARATOR)
    if start < 0:
        if not text.startswith(name + NAME_SEPARATOR):
            return None
        start = -1
    start += len(name) + 2
    end = text.find(PAIR_SEPARATOR, start)
    return (text[start:end] if end >= 0 else text[start:]) or None


def has_key(text: str, key: str) -> bool:
    """Whether a message with these properties has the key, either as its unique key or in KEYS."""
    return key in (find_property(text, KEYS) or "").split(KEY_SEPARATOR) or key == find_property(text, UNIQUE_KEY)


def find_number(text: str, name: str) -> int | None:
    """Return a property that is a number from 0 to 2^31 - 1, or None if it is missing or anything else."""
    number = parse_natural(find_property(text, name), _INT_DIGITS)
    return number if number is not None and number <= _INT_MAX else None


def find_value(text: bytes, name: bytes) -> bytes:
    r"""Return one property of the UTF-8 text form, empty if it is missing. The last occurrence counts. ``name`` ends
    with its separator, as in ``b"TAGS\x01"``.
    """
    at = text.rfind(name)
    while at > 0 and text[at - 1] != _PAIR_BYTE:  # the end of a longer name
        at = text.rfind(name, 0, at)
    if at < 0:
        return b""
    at += len(name)
    end = text.find(b"\x02", at)
    return text[at:end] if end >= 0 else text[at:]
