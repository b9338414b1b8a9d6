"""Cuts a list of messages into lists that fit one request each. Pure.

Neighbour: `Producer.send_batch` sends each of them. Source: the ``ListSplitter`` of RocketMQ's batch example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raptormq.client.content import as_bytes, check_parts, misfit
from raptormq.client.outgoing import check_sendable, encode_text
from raptormq.client.settings import Count, check_setting
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES
from raptormq.protocol.encryption import added_bytes
from raptormq.protocol.message import Message
from raptormq.protocol.properties import encode_properties

DEFAULT_MAX_BYTES = 1024 * 1024
_UNIQUE_KEY_BYTES = 66
"""Name, separators and longest value (an IPv6 address) of the id that sending adds."""


def split_messages(
    messages: Iterable[Message], max_bytes: int = DEFAULT_MAX_BYTES, *, key_id: str | None = None
) -> Iterator[list[Message]]:
    """Yield the messages in order, in lists of at most `max_bytes` as they travel and 32,767 messages; one that is
    larger is alone in its list, and brokers take up to 4 MiB.

    Args:
        messages: of one topic.
        max_bytes: of a list.
        key_id: the name of the key that they will be encrypted with, which makes each of them larger; the longer name,
            where keys are being rotated.

    Raises:
        ConfigError: `max_bytes` is no number above 0, or `key_id` is no text.
        MessageError: there is no list, or a message is none, or is for another topic than those before it.
    """
    check_setting("max_bytes", max_bytes, Count)
    check_setting("key_id", key_id, str | None)
    added = _UNIQUE_KEY_BYTES
    if key_id is not None:
        added += added_bytes(key_id) + len(encode_properties({names.ENCRYPTION_KEY_ID: key_id}).encode())
    given: object = messages
    if not isinstance(given, Iterable):
        raise MessageError(f"a batch is a list of messages, not {type(given).__name__}")
    part: list[Message] = []
    part_bytes = 0
    topic = None
    for message in messages:
        size = _size(message) + added
        if topic is None:
            check_sendable(message.topic)
            topic = message.topic
        elif message.topic != topic:
            raise MessageError(f"all messages of a batch have one topic: {topic} and {message.topic} differ")
        if part and (part_bytes + size > max_bytes or len(part) == MAX_BATCH_RECORDS):
            yield part
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size
    if part:
        yield part


def _size(message: Message) -> int:
    if not isinstance(message, Message):
        raise misfit(message)
    check_parts(message)
    properties = encode_text(message.all_properties()).encode()
    return OVERHEAD_BYTES + len(as_bytes(message.body)) + len(properties)
