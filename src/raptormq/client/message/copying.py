"""Copies of messages: the field values of a received message, to construct a copy of a subclass of `MessageExt`
(`values_of`), and a copy of a message to send that its application cannot change (`snapshot`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, MutableSet
from copy import copy
from dataclasses import fields
from operator import attrgetter
from typing import Any

from raptormq.protocol.message import Message, MessageExt

values_of: Callable[[MessageExt], tuple[Any, ...]] = attrgetter(*(each.name for each in fields(MessageExt)))
"""Returns the values of the fields of `MessageExt`, in their order."""


def snapshot(message: Message) -> Message:
    """Return a copy of a message for a send that is not encoded yet. The application may change the message and its
    values afterwards. `bytes` are not copied. Invalid values are returned as they are, and rejected later.
    """
    if type(message) is not Message:
        return _snapshot_of_other(message)
    body, keys, properties = message.body, message.keys, message.properties
    return Message(
        message.topic,
        body if type(body) is bytes else _unshared(body),
        message.tags,
        keys if type(keys) is tuple else _unshared(keys),
        {**properties} if type(properties) is dict else _unshared(properties),
        message.flag,
        message.wait_stored,
        message.delay,
        message.priority,
    )


def _snapshot_of_other(message: Message) -> Message:
    given: object = message
    if not isinstance(given, Message):
        return message
    copied = copy(message)  # takes several times as long as the constructor
    copied.body, copied.keys, copied.properties = map(_unshared, (message.body, message.keys, message.properties))
    return copied


def _unshared(value: Any) -> Any:
    """Return a copy of a mutable value, or an immutable value itself."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, MutableSequence | MutableSet):
        return tuple(value)
    return dict(value) if isinstance(value, Mapping) else value
