"""Messages made ready to send: checked, deflated, with a unique id and their properties as text. Pure.

Everything that can be wrong with a message is found here, before a byte is sent.
Neighbour: `producer` adds queue and broker. Source: RocketMQ `Validators`, `MessageBatch.generateFromList`,
`DefaultMQProducerImpl.tryToCompressMessage`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raptormq.client.config import ProducerConfig
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message import Message
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.record import SysFlag
from raptormq.protocol.topic_names import NOT_SENDABLE, RETRY_PREFIX, check_topic

_COMPRESSION_LEVEL = 5
_DELAYS = frozenset({names.DELAY, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"})
_SETTABLE = _DELAYS | {names.SHARDING_KEY, names.UNIQUE_KEY}
_REFUSED = names.RESERVED - _SETTABLE


@dataclass(slots=True)
class Outgoing:
    """What a send request carries, whichever broker gets it."""

    code: RequestCode
    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    message_id: str
    """Unique id; for a list those of all its messages, joined with commas."""
    reconsume_times: int = 0
    """Of a message that a consumer sends to its retry topic."""
    max_reconsume_times: int | None = None
    """The same: over it the broker moves the message to the dead letters."""


def prepare_message(message: Message, new_id: Callable[[], str], config: ProducerConfig) -> Outgoing:
    """Return one message ready to send.

    Raises:
        MessageError: topic, properties or size break a rule of the broker.
    """
    check_sendable(message.topic)
    body, sys_flag = message.body, 0
    if len(body) > config.max_message_bytes:
        raise MessageError(f"a body of {len(body)} bytes is larger than {config.max_message_bytes}")
    if len(body) >= config.compress_over_bytes > 0:
        deflated = zlib.compress(body, _COMPRESSION_LEVEL)
        if len(deflated) < len(body):
            body, sys_flag = deflated, int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    properties, message_id = _properties(message, new_id)
    return Outgoing(RequestCode.SEND_MESSAGE_V2, message.topic, body, sys_flag, message.flag, properties, message_id)


def prepare_batch(messages: Sequence[Message], new_id: Callable[[], str], config: ProducerConfig) -> Outgoing:
    """Return a list of messages ready to send as one request; none of them is deflated.

    Raises:
        MessageError: one of the messages breaks a rule of its own, or the list one of a list; the text names the rule.
    """
    if not messages:
        raise MessageError("a batch needs at least one message")
    first = messages[0]
    check_sendable(first.topic)
    if first.topic.startswith(RETRY_PREFIX):
        raise MessageError("a batch cannot go to a retry topic")
    topic, wait_stored = first.topic, first.wait_stored
    ids: list[str] = []
    records: list[tuple[int, bytes, bytes]] = []
    for message in messages:
        if message.topic != topic:
            raise MessageError(f"all messages of a batch have one topic: {topic} and {message.topic} differ")
        if message.wait_stored != wait_stored:
            raise MessageError("all messages of a batch have the same wait_stored")
        if message.properties and not _DELAYS.isdisjoint(message.properties):
            raise MessageError("a message of a batch cannot be delayed")
        properties, message_id = _properties(message, new_id)
        ids.append(message_id)
        records.append((message.flag, message.body, properties.encode()))
    body = encode_batch(records)
    if len(body) > config.max_message_bytes:
        raise MessageError(f"a batch of {len(body)} bytes is larger than {config.max_message_bytes}")
    batch_properties = {names.WAIT: "true" if wait_stored else "false", names.UNIQUE_KEY: new_id()}
    return Outgoing(
        RequestCode.SEND_BATCH_MESSAGE, topic, body, 0, 0, encode_properties(batch_properties), ",".join(ids)
    )


def check_sendable(topic: str) -> None:
    """Check the topic of a message.

    Raises:
        MessageError: not a topic name, or a topic that the brokers keep to themselves.
    """
    check_topic(topic)
    if topic in NOT_SENDABLE:
        raise MessageError(f"topic {topic} belongs to the brokers, nobody sends to it")


def _properties(message: Message, new_id: Callable[[], str]) -> tuple[str, str]:
    if message.properties and not _REFUSED.isdisjoint(message.properties):
        taken = ", ".join(sorted(_REFUSED & message.properties.keys()))
        raise MessageError(f"the property names {taken} belong to the system")
    properties = message.all_properties()
    message_id = properties.get(names.UNIQUE_KEY)
    if message_id is None:
        message_id = properties[names.UNIQUE_KEY] = new_id()
    return encode_properties(properties), message_id
