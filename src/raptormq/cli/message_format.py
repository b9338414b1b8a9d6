"""Output formats of messages: the raw body, a preview for tables, or a JSON object."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from raptormq.client import MessageExt

_PREVIEW_CHARS = 40


def raw(message: MessageExt) -> bytes:
    """Return the body with a line feed."""
    return message.body + b"\n"


def as_json(message: MessageExt) -> bytes:
    """Return the :func:`fields` as one line of JSON."""
    return orjson.dumps(fields(message), option=orjson.OPT_APPEND_NEWLINE)


def fields(message: MessageExt) -> dict[str, Any]:
    """Return the message as a JSON value. A body that is not UTF-8 text is in ``body_base64`` instead of ``body``."""
    named: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "tag": message.tags,
        "keys": message.keys,
        "properties": message.properties,
    }
    try:
        named["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        named["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return named


def preview(message: MessageExt) -> str:
    """Return the beginning of the body as one line, or its length if it is not UTF-8 text."""
    try:
        text = message.body.decode("utf-8")
    except UnicodeDecodeError:
        return f"({len(message.body)} bytes)"
    shown = "".join(each if each.isprintable() else " " for each in text[: _PREVIEW_CHARS + 1])
    return shown if len(shown) <= _PREVIEW_CHARS else f"{shown[: _PREVIEW_CHARS - 1]}…"
