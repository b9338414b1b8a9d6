"""Received messages as output: the body alone, or one JSON object per line."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from raptormq.client import MessageExt


def raw(message: MessageExt) -> bytes:
    """Return the body and a line feed."""
    return message.body + b"\n"


def as_json(message: MessageExt) -> bytes:
    """Return one line of JSON; a body that is not UTF-8 text comes as ``body_base64`` instead of ``body``."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "tag": message.tags,
        "keys": message.keys,
        "properties": message.properties,
    }
    try:
        fields["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
