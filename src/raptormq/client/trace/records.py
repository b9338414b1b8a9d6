r"""The text of message traces. Pure functions that format the contexts of interceptors as lines.

Fields end with ``\x01``, lines with ``\x02``::

    Pub             time, region, group, topic, id, tag, keys, store host, body bytes, cost, type, offset id, success
    SubBefore       time, region, group, request id, id, reconsume times, keys
    SubAfter        request id, id, cost, success, keys, code, time, group
    EndTransaction  time, region, group, topic, id, tag, keys, store host, type, transaction id, state, from check

Times are milliseconds since 1970, costs milliseconds per message. A missing tag or key is the word ``null``. The
request id joins the lines before and after one call. A trace message has the ids and keys of its lines as keys, by
which brokers find it.

Source: RocketMQ `TraceDataEncoder`, `TraceBean`, `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`,
`EndTransactionTraceHookImpl`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raptormq.client.interceptors import ConsumeContext, ConsumeStatus, EndTransactionContext, SendContext
from raptormq.client.results import SendResult, SendStatus, TransactionState
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.headers.send import DEFAULT_REGION
from raptormq.protocol.message import DELAY_PROPERTIES, Message, MessageExt
from raptormq.protocol.message_id import parse_offset_id

MAX_BODY_BYTES = 118_000
"""Maximum body size in bytes of a trace message; a single longer line is sent alone."""
MAX_KEYS_BYTES = 16_000
"""Maximum size in bytes of the keys of a trace message: half of the limit for properties."""
_FIELD_END, _LINE_END = "\x01", "\x02"
_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class _MessageType(enum.IntEnum):
    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAY = 3


class _ReturnCode(enum.IntEnum):
    """How a listener call has ended."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    FAILED = 4


class TraceRecord(NamedTuple):
    """One line about one message."""

    line: str
    keys: tuple[str, ...]
    """The id of the message, then its keys."""


class TraceData(NamedTuple):
    """Body and keys of one trace message."""

    body: bytes
    keys: tuple[str, ...]


def sent_record(context: SendContext, began_ms: int) -> TraceRecord | None:
    """Return the line about a send. `None` if the send has failed or has no outcome, because the message then has no
    position, or if the broker permits no traces.
    """
    message, result, message_id = context.message, context.result, context.message_id
    if result is None or message_id is None or not result.trace_on:
        return None
    kind = _MessageType.NORMAL
    if context.in_transaction:
        kind = _MessageType.HALF
    elif message.delay is not None or not DELAY_PROPERTIES.isdisjoint(message.properties):
        kind = _MessageType.DELAY
    offset_id = _offset_id_of(result, context)
    return _record(
        message,
        message_id,
        "Pub",
        began_ms,
        result.region_id,
        context.group,
        message.topic,
        message_id,
        _text(message.tags),
        _keys_of(message),
        _host_of(offset_id),
        len(message.body),
        round(context.duration * 1000),
        kind.value,
        offset_id,
        _bool(result.status is SendStatus.SEND_OK),
    )


def consuming_records(context: ConsumeContext, request_id: str, now_ms: int) -> list[TraceRecord]:
    """Return a line for each message that is given to a listener or a loop, unless its broker permits no traces."""
    return [
        _record(
            message,
            message.message_id,
            "SubBefore",
            now_ms,
            message.properties.get(names.MSG_REGION) or DEFAULT_REGION,
            context.group,
            request_id,
            message.message_id,
            message.reconsume_times,
            _keys_of(message),
        )
        for message in context.messages
        if _is_traced(message)
    ]


def consumed_records(context: ConsumeContext, request_id: str, now_ms: int) -> list[TraceRecord]:
    """Return a line for each message when the call has ended."""
    failed = {message.message_id for message in context.failed}
    is_settled = context.status in {ConsumeStatus.CONSUMED, ConsumeStatus.RETRIED}
    cost = round(context.duration * 1000 / max(len(context.messages), 1))
    records = []
    for message in context.messages:
        if _is_traced(message):
            is_consumed = is_settled and message.message_id not in failed
            fields = (request_id, message.message_id, cost, _bool(is_consumed), _keys_of(message))
            code = _ReturnCode.SUCCESS if is_consumed else _failure_of(context)
            end = (code.value, now_ms, context.group)
            records.append(_record(message, message.message_id, "SubAfter", *fields, *end))
    return records


def ended_transaction_record(context: EndTransactionContext, now_ms: int) -> TraceRecord:
    """Return the line about the decision on a transaction."""
    message = context.message
    return _record(
        message,
        context.message_id,
        "EndTransaction",
        now_ms,
        DEFAULT_REGION,
        context.group,
        message.topic,
        context.message_id,
        _text(message.tags),
        _keys_of(message),
        _host_of(context.offset_message_id),
        _MessageType.COMMIT.value,
        context.message_id,
        _STATES[context.state],
        _bool(context.from_check),
    )


def pack(records: Iterable[TraceRecord]) -> Iterator[TraceData]:
    """Join lines to trace messages within the limits. A key that is too long is left out."""
    lines: list[bytes] = []
    keys: dict[str, None] = {}
    size = keys_size = 0
    for record in records:
        line = record.line.encode()
        added = {key: len(key.encode()) + 1 for key in record.keys if key not in keys}
        if lines and (size + len(line) > MAX_BODY_BYTES or keys_size + sum(added.values()) > MAX_KEYS_BYTES):
            yield TraceData(b"".join(lines), tuple(keys))
            lines, keys, size, keys_size = [], {}, 0, 0
            added = {key: len(key.encode()) + 1 for key in record.keys}
        lines.append(line)
        size += len(line)
        for key, length in added.items():
            if keys_size + length <= MAX_KEYS_BYTES:
                keys[key] = None
                keys_size += length
    if lines:
        yield TraceData(b"".join(lines), tuple(keys))


def _record(message: Message | MessageExt, message_id: str, *fields: object) -> TraceRecord:
    return TraceRecord(_FIELD_END.join(map(str, fields)) + _LINE_END, (message_id, *message.keys))


def _is_traced(message: MessageExt) -> bool:
    return message.properties.get(names.TRACE_SWITCH) != "false"


def _failure_of(context: ConsumeContext) -> _ReturnCode:
    if isinstance(context.error, TimeoutError):
        return _ReturnCode.TIMEOUT
    return _ReturnCode.FAILED if context.error is None else _ReturnCode.EXCEPTION


def _offset_id_of(result: SendResult, context: SendContext) -> str:
    """Return the offset id of a message; that of the whole batch if its list was stored as one."""
    ids = result.offset_message_id.split(",")
    return ids[context.index] if len(ids) == context.count else ids[0]


def _host_of(offset_id: str) -> str:
    try:
        place = parse_offset_id(offset_id)
    except MessageError:
        return ""
    return f"{place.host}:{place.port}"


def _keys_of(message: Message | MessageExt) -> str:
    return _text(names.KEY_SEPARATOR.join(message.keys))


def _text(text: str | None) -> str:
    return text or "null"


def _bool(value: bool) -> str:
    return "true" if value else "false"
