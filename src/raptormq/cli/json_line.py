"""Reads a message from one line of JSON, the input of ``raptormq produce --format json``.

Fields, all optional but the body::

    {"body": text | "body_base64": text, "tag": text, "keys": [text], "sharding_key": text, "properties": {name: text},
     "delay_seconds": number | "deliver_at": time, "priority": number}

``raptormq consume --format json`` prints the same fields and those that a broker has assigned, which are ignored. So
the output of one command is input of the other. System properties of such a line, such as the number of retries, are
not sent again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import orjson

from raptormq.cli.options import start_position
from raptormq.client import Delay, Message
from raptormq.client.message import check_optional_fields, message_properties
from raptormq.errors import MessageError
from raptormq.protocol.properties import SHARDING_KEY, SYSTEM

_GIVEN = ("body", "body_base64", "tag", "keys", "sharding_key", "properties", "delay_seconds", "deliver_at", "priority")
_ASSIGNED = frozenset(
    {
        "topic",
        "broker",
        "queue_id",
        "queue_offset",
        "message_id",
        "offset_message_id",
        "born_timestamp",
        "store_timestamp",
    }
)
"""Fields of a consumed message that a broker or producer assigned."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send. All messages with the same sharding key are sent to one queue; None means any queue."""

    message: Message
    sharding_key: str | None


def parse_json_line(topic: str, line: bytes) -> Outgoing:
    """Return the message of a line.

    Raises:
        MessageError: the line is not such an object; the text names the field.
    """
    try:
        fields: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise MessageError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MessageError("not a JSON object with a body")
    unknown = sorted(fields.keys() - _ASSIGNED - set(_GIVEN))
    if unknown:
        raise MessageError(f"unknown field {unknown[0]!r}; the fields are {', '.join(_GIVEN)}")
    properties = _properties(fields)
    sharding_key = _text(fields, "sharding_key")
    if "message_id" in fields:
        sharding_key = sharding_key or properties.get(SHARDING_KEY)
        properties = {name: value for name, value in properties.items() if name not in SYSTEM}
    message = Message(
        topic,
        _body(fields),
        tags=_text(fields, "tag"),
        keys=_keys(fields),
        properties=properties,
        delay=_delay(fields),
        priority=fields.get("priority"),
    )
    check_fields(message)
    return Outgoing(message, sharding_key)


def check_fields(message: Message) -> None:
    """Check everything but topic and body.

    Raises:
        MessageError: a field has a wrong type, a property is reserved, or the properties are too long.
    """
    check_optional_fields(message)
    message_properties(message)


def _body(fields: Mapping[str, Any]) -> bytes:
    text, encoded = _text(fields, "body"), _text(fields, "body_base64")
    if (text is None) == (encoded is None):
        raise MessageError("exactly one of the fields body and body_base64 is required")
    if text is not None:
        return text.encode()
    assert encoded is not None
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise MessageError(f"field body_base64 is not base64: {error}") from None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise MessageError(f"field {name} must be text, not {value!r}")
    return value


def _keys(fields: Mapping[str, Any]) -> tuple[str, ...]:
    keys = fields.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise MessageError(f"field keys must be a list of texts, not {keys!r}")
    return tuple(keys)


def _properties(fields: Mapping[str, Any]) -> dict[str, str]:
    properties = fields.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise MessageError(f"field properties must be an object whose values are texts, not {properties!r}")
    return properties


def _delay(fields: Mapping[str, Any]) -> Delay | None:
    seconds, moment = fields.get("delay_seconds"), fields.get("deliver_at")
    if seconds is not None and moment is not None:
        raise MessageError("the fields delay_seconds and deliver_at are mutually exclusive")
    if seconds is not None:
        if isinstance(seconds, bool):
            raise MessageError(f"field delay_seconds must be a number, not {seconds!r}")
        return Delay.by(seconds)
    if moment is None:
        return None
    try:
        timestamp_ms = start_position(moment)
    except click.BadParameter as error:
        raise MessageError(f"field deliver_at: {error.message}") from None
    if isinstance(timestamp_ms, str):
        raise MessageError(f"field deliver_at must be a time, not {moment!r}")
    return Delay.until(timestamp_ms)
