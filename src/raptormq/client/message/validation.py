"""Validation of messages before they are added to a batch or sent. No I/O.

See also: `producer.producer`, `message.send_request` and `producer.accumulator` validate; topics and properties are
checked in `message.send_request`. Java clients need no such checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raptormq.errors import ClientError, MessageError
from raptormq.protocol.message import Delay, Message, MessageQueue
from raptormq.protocol.properties import KEY_SEPARATOR

_INT32 = range(-(2**31), 2**31)
_QUEUE_IDS = range(2**31)


def as_bytes(body: object) -> bytes:
    """Return a body as bytes. Other buffers are copied.

    Raises:
        MessageError: the body is not a buffer.
    """
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise MessageError(f"the body of a message must be bytes, not {type(body).__name__}")


def has_optional_fields(message: Message) -> bool:
    """Return whether a message has a flag, keys, properties, a delay or a priority. An invalid flag also counts; it is
    rejected later.
    """
    flag = message.flag
    if type(flag) is not int or flag != 0 or message.priority is not None:
        return True
    return bool(message.keys or message.properties or message.delay)


def check_optional_fields(message: Message) -> None:
    """Check flag, keys, properties, delay and priority, but not the text of properties.

    Raises:
        MessageError: the flag does not fit 32 bits, the keys are not several texts, or another field has a wrong type.
    """
    flag: object = message.flag
    if not isinstance(flag, int) or flag not in _INT32:
        raise MessageError(f"the flag of a message must be a 32-bit integer, not {flag!r}")
    keys: Any = message.keys
    try:
        spaces = KEY_SEPARATOR.join(keys).count(KEY_SEPARATOR)
        fit = not isinstance(keys, str) and spaces <= max(len(keys) - 1, 0) and "" not in keys
    except TypeError:
        fit = False
    if not fit:
        raise MessageError(f"the keys of a message must be a tuple of non-empty texts without spaces, not {keys!r}")
    properties: object = message.properties
    if not isinstance(properties, Mapping):
        raise MessageError(f"the properties of a message must be a dict, not {properties!r}")
    delay: object = message.delay
    if not isinstance(delay, Delay | None):
        raise MessageError(f"the delay of a message must be a Delay, not {delay!r}")
    priority: object = message.priority
    if priority is not None and (type(priority) is not int or not 0 <= priority < 1 << 31):
        raise MessageError(f"the priority of a message must be a whole number from 0 to 2147483647, not {priority!r}")


def invalid_message(message: object) -> MessageError:
    """Return the error for a value that is not a message, or for a message with an invalid field."""
    if not isinstance(message, Message):
        hint = (
            "; send_batch sends a list"
            if isinstance(message, Sequence) and not isinstance(message, bytes | str)
            else ""
        )
        return MessageError(f"expected a Message, not {type(message).__name__}{hint}")
    return MessageError(
        "topic and tags of a message must be text, and its wait_stored True or False, not "
        f"{message.topic!r}, {message.tags!r}, {message.wait_stored!r}"
    )


def as_messages(messages: object) -> Sequence[Message]:
    """Return messages as a list.

    Raises:
        MessageError: a value is not a message.
    """
    if not isinstance(messages, Iterable):
        raise MessageError(f"a batch must be a list of messages, not {type(messages).__name__}")
    listed = list(messages)
    for kind in set(map(type, listed)):
        if not issubclass(kind, Message):
            raise MessageError(f"a batch must contain only messages; this one also contains {kind.__name__}")
    return listed


def check_destination(queue: object, topic: str, key: object = None) -> None:
    """Validate the queue of a send, or the key that selects a queue; None means any queue.

    Raises:
        MessageError: the queue is not a queue, belongs to another topic or has an invalid id; or the key is not text.
    """
    if key is not None and not isinstance(key, str):
        raise MessageError(f"the key that selects a queue must be text, not {key!r}")
    if queue is None:
        return
    if not isinstance(queue, MessageQueue):
        raise MessageError(f"the queue must be a MessageQueue, not {queue!r}")
    if queue.topic != topic:
        raise MessageError(f"a message for topic {topic} cannot go to {queue}")
    number: object = queue.queue_id
    if not isinstance(number, int) or number not in _QUEUE_IDS:
        raise MessageError(f"the id of a queue must be a number from 0 to {_QUEUE_IDS[-1]}, not {number!r}")


def as_queues(queues: object) -> set[MessageQueue]:
    """Return queues as a set.

    Raises:
        ClientError: a value is not a queue.
    """
    listed = list(queues) if isinstance(queues, Iterable) else None
    if listed is None or not all(isinstance(queue, MessageQueue) for queue in listed):
        raise ClientError(f"expected a list of MessageQueue, not {queues!r}")
    return set(listed)
