"""Preparation of messages for sending: validation, compression, unique ids and encoding of properties. No I/O.

All errors in a message are detected here, before anything is sent. `prepare_message` prepares one message,
`prepare_batch` a list, `prepare_redelivery` a copy for the retry topic of a group, `prepare_single` and
`prepare_merged` the messages of an AutoBatch batch.

`merge_keys` merges the keys of messages into those of a batch. For a batch that is compressed or encrypted as a whole,
brokers index only the keys of the batch; Apache RocketMQ does so for every batch.

`split_messages` splits a list of messages into lists for one request each.

See also: `producer.producer` adds queue and broker, and its `Producer.send_batch` sends each of the split lists;
`producer.accumulator` merges keys within the same limit. Source: RocketMQ `Validators`,
`MessageBatch.generateFromList`, `DefaultMQProducerImpl.tryToCompressMessage`, `ProduceAccumulator.MessageAccumulation`
for keys, and the ``ListSplitter`` of RocketMQ's batch example.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from raptormq.client.config import ProducerConfig
from raptormq.client.message.validation import as_bytes, check_optional_fields, has_optional_fields, invalid_message
from raptormq.client.settings import Count, check_setting
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.batch import MAX_BATCH_RECORDS, OVERHEAD_BYTES, encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.compression import compress
from raptormq.protocol.encryption import encryption_overhead
from raptormq.protocol.message import DELAY_PROPERTIES, Message, MessageExt, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.tags import TAG_SEPARATOR
from raptormq.protocol.topic_names import NOT_SENDABLE, check_group, check_topic, is_derived_topic, retry_topic

MAX_KEYS_CHARS = 4096
"""Maximum characters of the keys of a batch, including separators; with up to 4 bytes each they fit into the
properties."""


def merge_keys(messages: Iterable[Message]) -> list[str]:
    """Return the distinct keys of all messages in order, up to the limit of a batch.

    Keys that do not fit are omitted instead of rejecting the batch, because they only serve for lookups.
    """
    chars = 0
    united: dict[str, None] = {}
    for message in messages:
        for key in message.keys:
            if key not in united:
                chars += len(key) + 1
                if chars > MAX_KEYS_CHARS:
                    return list(united)
                united[key] = None
    return list(united)


DEFAULT_MAX_BYTES = 1024 * 1024
_UNIQUE_KEY_BYTES = 66
"""Size of the unique id property: name, separators and longest value (with an IPv6 address)."""


def split_messages(
    messages: Iterable[Message], max_bytes: int = DEFAULT_MAX_BYTES, *, key_id: str | None = None
) -> Iterator[list[Message]]:
    """Yield the messages in order, in lists of at most `max_bytes` as encoded and 32,767 messages. A larger message is
    alone in its list; brokers accept up to 4 MiB.

    Args:
        messages: messages of one topic.
        max_bytes: largest size of a list.
        key_id: name of the encryption key; encryption makes each message larger. While keys are rotated, the longer
            name.

    Raises:
        ConfigError: `max_bytes` is not a number above 0, or `key_id` is not text.
        MessageError: there is no list, or a message is invalid or belongs to another topic than those before it.
    """
    check_setting("max_bytes", max_bytes, Count)
    check_setting("key_id", key_id, str | None)
    added = _UNIQUE_KEY_BYTES
    if key_id is not None:
        added += encryption_overhead(key_id) + len(encode_properties({names.ENCRYPTION_KEY_ID: key_id}).encode())
    given: object = messages
    if not isinstance(given, Iterable):
        raise MessageError(f"a batch must be a list of messages, not {type(given).__name__}")
    part: list[Message] = []
    part_bytes = 0
    topic = None
    for message in messages:
        size = _size(message) + added
        if topic is None:
            check_sendable(message.topic)
            topic = message.topic
        elif message.topic != topic:
            raise MessageError(f"all messages of a batch must have the same topic: {topic} and {message.topic} differ")
        if part and (part_bytes + size > max_bytes or len(part) == MAX_BATCH_RECORDS):
            yield part
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size
    if part:
        yield part


def _size(message: Message) -> int:
    if not isinstance(message, Message):
        raise invalid_message(message)
    check_optional_fields(message)
    properties = encode_text(message.all_properties()).encode()
    return OVERHEAD_BYTES + len(as_bytes(message.body)) + len(properties)


_SETTABLE = DELAY_PROPERTIES | {names.SHARDING_KEY, names.UNIQUE_KEY}
_UNIQUE_KEY_IS = names.UNIQUE_KEY + names.NAME_SEPARATOR
_PAIR_END = names.PAIR_SEPARATOR.encode()
REFUSED_PROPERTIES = names.SYSTEM - _SETTABLE
"""Names that the properties of a message to send must not have."""
_REDELIVERED = frozenset(
    {names.TAGS, names.KEYS, names.SHARDING_KEY, names.UNIQUE_KEY, names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID}
)
"""System properties that a redelivered message keeps."""
_INSTEAD = {
    names.KEYS: "keys=",
    names.TAGS: "tags=",
    names.WAIT: "wait_stored=",
    names.TRANSACTION_PREPARED: "TransactionProducer",
    names.PRIORITY: "priority=",
    names.CORRELATION_ID: "Producer.request",
    names.REPLY_TO_CLIENT: "Producer.request",
}
"""Reserved property name -> argument or class to use instead."""


@dataclass(slots=True)
class SendRequest:
    """Contents of a send request, independent of the broker."""

    code: RequestCode
    topic: str
    body: bytes
    sys_flag: int
    flag: int
    properties: str
    message_id: str
    """Unique id; for a list, the ids of all messages, joined with commas."""
    born_ms: int
    """Born timestamp in ms since 1970; the same for all attempts."""
    reconsume_times: int = 0
    """Number of deliveries, for a message that a consumer sends to its retry topic."""
    max_reconsume_times: int | None = None
    """Maximum number of deliveries, after which the broker moves the message to the dead letter queue."""
    inner_ids: Sequence[str] = ()
    """Unique ids of the messages of a batch."""
    merged: bool = False
    """True for a batch of AutoBatch, False for a list of the application."""
    encrypted: bool = False
    """True if the body is encrypted."""

    @property
    def count(self) -> int:
        """Number of messages of a batch; 0 for a single message."""
        return len(self.inner_ids)


def compressed(body: bytes, config: ProducerConfig) -> tuple[bytes, int]:
    """Return a body, compressed if it is large enough and shrinks, and its sysFlag."""
    return compress(body, config.compression) if len(body) >= config.compress_over_bytes > 0 else (body, 0)


def prepare_message(message: Message, ids: UniqueIdFactory, now_ms: int, config: ProducerConfig) -> SendRequest:
    """Prepare one message for sending.

    Raises:
        MessageError: topic, properties or size break a rule of the broker.
    """
    body, own_id, common = _checked(message, config)
    body, sys_flag = compressed(body, config)
    message_id = own_id or ids.next_id(now_ms)
    properties = f"{common}{_UNIQUE_KEY_IS}{message_id}{names.PAIR_SEPARATOR}"
    return SendRequest(
        RequestCode.SEND_MESSAGE_V2, message.topic, body, sys_flag, message.flag, properties, message_id, now_ms
    )


def check_message(message: Message, config: ProducerConfig) -> None:
    """Check a message like `prepare_message`, without its compression.

    Raises:
        MessageError: topic, properties or size break a rule of the broker.
    """
    _checked(message, config)


def _checked(message: Message, config: ProducerConfig) -> tuple[bytes, str | None, str]:
    """Return the body of a message, the unique id that the application has set, and the encoded properties without the
    unique id, after all checks.
    """
    if not isinstance(message, Message):
        raise invalid_message(message)
    check_sendable(message.topic)
    if has_optional_fields(message):
        check_optional_fields(message)
    body = as_bytes(message.body)
    if len(body) > config.max_message_bytes:
        raise body_too_large(len(body), config)
    return body, _own_id(message.properties) if message.properties else None, _common_properties(message)


def prepare_redelivery(message: MessageExt, group: str, config: ProducerConfig) -> SendRequest:
    """Prepare a copy of a stored message for the retry topic of a consumer group. The copy keeps id, tag, keys,
    sharding key, original topic and properties of the application; its deliveries are counted anew.

    Raises:
        MessageError: `group` is not a group name, the body is too large, or the message was encrypted and the copy
            would not be.
    """
    given: object = message
    if not isinstance(given, MessageExt):
        raise MessageError(f"expected a received message, not {type(given).__name__}")
    check_group(group)
    found = message.properties
    if names.ENCRYPTION_KEY_ID in found and not config.encrypt:
        raise MessageError(f"message {message.message_id} was encrypted: redeliver it with encrypt=True")
    if len(message.body) > config.max_message_bytes:
        raise body_too_large(len(message.body), config)
    kept = {name: value for name, value in found.items() if name not in names.SYSTEM or name in _REDELIVERED}
    origin = {names.RETRY_TOPIC: message.topic, names.ORIGIN_MESSAGE_ID: message.message_id}
    body, sys_flag = compressed(message.body, config)
    return SendRequest(
        RequestCode.SEND_MESSAGE_V2,
        retry_topic(group),
        body,
        sys_flag,
        message.flag,
        encode_properties(origin | kept),
        message.message_id,
        message.born_timestamp,
    )


def with_sharding_key(message: Message, key: str) -> Message:
    """Return a copy of a message with a sharding key, which consumers use for ordering. An empty key only selects a
    queue, because properties must not be empty.

    Raises:
        MessageError: the value is not a message, or the message has another sharding key.
    """
    if not isinstance(message, Message):
        raise invalid_message(message)
    check_optional_fields(message)
    present = message.properties.get(names.SHARDING_KEY, key)
    if present != key:
        raise MessageError(f"the message has the sharding key {present!r}, and is sent with key={key!r}")
    return replace(message, properties=message.properties | {names.SHARDING_KEY: key}) if key else message


def body_too_large(size: int, config: ProducerConfig) -> MessageError:
    """Return the error for a body over `max_message_bytes`."""
    return MessageError(f"a body of {size} bytes is larger than {config.max_message_bytes}")


def check_encrypted_size(outgoing: SendRequest, config: ProducerConfig) -> SendRequest:
    """Return an encrypted message or batch after checking its size, which encryption has increased.

    Raises:
        MessageError: the encrypted body is larger than `max_message_bytes`.
    """
    size = len(outgoing.body)
    if size <= config.max_message_bytes:
        return outgoing
    what, hint = ("a batch", ": split_messages counts it with key_id=") if outgoing.count else ("a body", "")
    raise MessageError(f"{what} of {size} bytes, encrypted, is larger than {config.max_message_bytes}{hint}")


@lru_cache(maxsize=4096)
def is_mergeable_topic(topic: str) -> bool:
    """Return whether messages to a topic may be merged; messages to retry and dead letter topics may not.

    Raises:
        MessageError: see `check_sendable`.
    """
    check_sendable(topic)
    return not is_derived_topic(topic)


def check_batch_topic(topic: str) -> None:
    """Check the topic of a batch.

    Raises:
        MessageError: see `check_sendable`; or it is a retry or dead letter topic.
    """
    check_sendable(topic)
    if is_derived_topic(topic):
        raise MessageError(f"a batch cannot go to {topic}: retry topics and dead letters take single messages")


def is_mergeable(message: Message, queue: MessageQueue | None) -> bool:
    """Return whether a message may be merged: it has no delay, no priority, and, with a sharding key, an explicit
    queue."""
    if message.is_individual:
        return False
    return queue is not None or names.SHARDING_KEY not in message.properties


@lru_cache(maxsize=4096)
def plain_properties(tags: str | None, wait_stored: bool) -> bytes:
    """Return the encoded properties, up to the value of the unique id, of a message with at most a tag.

    Raises:
        MessageError: the tag is not valid.
    """
    return f"{_tag_properties(tags, wait_stored)}{_UNIQUE_KEY_IS}".encode()


def message_properties(message: Message) -> tuple[str | None, bytes]:
    """Return the unique id set by the application, and the encoded properties up to the value of the unique id.

    Raises:
        MessageError: the properties break a rule of the broker.
    """
    own_id = _own_id(message.properties) if message.properties else None
    return own_id, f"{_common_properties(message)}{_UNIQUE_KEY_IS}".encode()


def prepare_single(
    topic: str, record: tuple[int, bytes, str], sys_flag: int, message_id: str, now_ms: int, config: ProducerConfig
) -> SendRequest:
    """Prepare the only message of a batch, given as flag, body and properties, as a single message."""
    flag, body, properties = record
    if not sys_flag:
        body, sys_flag = compressed(body, config)
    return SendRequest(RequestCode.SEND_MESSAGE_V2, topic, body, sys_flag, flag, properties, message_id, now_ms)


def prepare_merged(
    topic: str,
    body: bytes,
    message_ids: Sequence[str],
    sys_flag: int,
    tags: str | None,
    keys: Iterable[str],
    wait_stored: bool,
    batch_id: str,
    now_ms: int,
) -> SendRequest:
    """Prepare merged messages as one request, with their tag, all their keys and the id of the batch.

    `sys_flag` is the compression of each body.
    """
    united = tuple(keys)
    if united:
        common = _common_properties(Message(topic, b"", tags, united, wait_stored=wait_stored))
    else:
        common = _tag_properties(tags, wait_stored)
    text = f"{common}{_UNIQUE_KEY_IS}{batch_id}{names.PAIR_SEPARATOR}"
    code = RequestCode.SEND_BATCH_MESSAGE
    return SendRequest(code, topic, body, sys_flag, 0, text, batch_id, now_ms, inner_ids=message_ids, merged=True)


def prepare_batch(
    messages: Sequence[Message], ids: UniqueIdFactory, now_ms: int, config: ProducerConfig
) -> SendRequest:
    """Prepare a list of messages as one request; none of them is compressed.

    A batch that may be compressed or encrypted as a whole gets the merged keys of its messages (see `merge_keys`),
    because brokers cannot read them inside the batch.

    Raises:
        MessageError: a message or the list breaks a rule, which the text names.
    """
    if not messages:
        raise MessageError("a batch must have at least one message")
    if len(messages) > MAX_BATCH_RECORDS:
        raise MessageError(
            f"a batch has at most {MAX_BATCH_RECORDS} messages, not {len(messages)}: split the list with split_messages"
        )
    first = messages[0]
    check_batch_topic(first.topic)
    message_ids: list[str] = []
    body = encode_batch(_records(messages, ids, now_ms, message_ids))
    if len(body) > config.max_message_bytes:
        raise MessageError(
            f"a batch of {len(body)} bytes is larger than {config.max_message_bytes}: split the list with "
            "split_messages"
        )
    batch_properties = {
        names.WAIT: "true" if first.wait_stored else "false",
        names.UNIQUE_KEY: ids.next_id(now_ms),
    }
    if first.tags and all(message.tags == first.tags for message in messages):
        batch_properties[names.TAGS] = (
            first.tags
        )  # a broker that stores the list whole needs the tag in the properties of the batch
    if config.encrypt or (config.compress_batches and config.compress_over_bytes > 0):
        united = merge_keys(messages)
        if united:
            batch_properties[names.KEYS] = names.KEY_SEPARATOR.join(united)
    return SendRequest(
        RequestCode.SEND_BATCH_MESSAGE,
        first.topic,
        body,
        0,
        0,
        encode_properties(batch_properties),
        ",".join(message_ids),
        now_ms,
        inner_ids=message_ids,
    )


def check_sendable(topic: str) -> None:
    """Check the topic of a message.

    Raises:
        MessageError: the topic is not a valid name, or is reserved for brokers.
    """
    if not isinstance(topic, str):
        raise MessageError(f"the topic of a message must be text, not {topic!r}")
    _check_topic(topic)


@lru_cache(maxsize=4096)
def _check_topic(topic: str) -> None:
    check_topic(topic)
    if topic in NOT_SENDABLE:
        raise MessageError(f"topic {topic} is reserved for brokers")


def _records(
    messages: Sequence[Message], ids: UniqueIdFactory, now_ms: int, message_ids: list[str]
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the records of a batch and collect their unique ids."""
    topic, wait_stored = messages[0].topic, messages[0].wait_stored
    next_id, note = ids.next_id, message_ids.append
    tags, keys, common = None, None, b""  # messages of a list often share tag and key, so the encoded text is cached
    for message in messages:
        if message.topic != topic:
            raise MessageError(f"all messages of a batch must have the same topic: {topic} and {message.topic} differ")
        if message.wait_stored != wait_stored:
            raise MessageError("all messages of a batch must have the same wait_stored")
        properties = message.properties
        if has_optional_fields(message):
            check_optional_fields(message)
        if message.is_individual:
            what = "have a priority" if message.priority is not None else "be delayed"
            raise MessageError(f"a message of a batch cannot {what}")
        message_id = (_own_id(properties) if properties else None) or next_id(now_ms)
        note(message_id)
        if properties or message.keys != keys or message.tags != tags:
            common = _common_properties(message).encode() + _UNIQUE_KEY_IS.encode()
            tags, keys = message.tags, None if properties else message.keys
        yield message.flag, as_bytes(message.body), common + message_id.encode() + _PAIR_END


def _common_properties(message: Message) -> str:
    """Return the encoded properties without the unique id."""
    if not isinstance(message.wait_stored, bool):
        raise invalid_message(message)
    if not message.properties and not message.keys and not message.delay and message.priority is None:
        try:
            return _tag_properties(message.tags, message.wait_stored)
        except TypeError:  # not a string and not hashable
            raise invalid_message(message) from None
    if message.properties and not REFUSED_PROPERTIES.isdisjoint(message.properties):
        raise _reserved_names(sorted(REFUSED_PROPERTIES & message.properties.keys()))
    properties = message.all_properties()
    properties.pop(names.UNIQUE_KEY, None)
    return encode_text(properties)


def _reserved_names(found: Sequence[str]) -> MessageError:
    """Return the error for reserved property names."""
    instead = [f"{_INSTEAD[name]} in place of {name}" for name in found if name in _INSTEAD]
    forwarded = "for a forwarded message use its user_properties"
    return MessageError(f"the property names {', '.join(found)} are reserved: {', '.join([*instead, forwarded])}")


@lru_cache(maxsize=4096)
def _tag_properties(tags: str | None, wait_stored: bool) -> str:
    return encode_text(Message("", b"", tags, wait_stored=wait_stored).all_properties())


def _own_id(properties: dict[str, str]) -> str | None:
    """Return the unique id that the application has set, or None. It is checked like any other property."""
    message_id = properties.get(names.UNIQUE_KEY)
    if message_id is not None:
        encode_text({names.UNIQUE_KEY: message_id})
    return message_id


def encode_text(properties: dict[str, str]) -> str:
    """Return encoded properties.

    Raises:
        MessageError: the properties are not text or break a rule of the broker, or the tag cannot be used in a filter.
    """
    try:
        text = encode_properties(properties)
        if not text.isascii():
            text.encode()
        if TAG_SEPARATOR in properties.get(names.TAGS, ""):
            raise MessageError(
                f"a message must not have several tags, which only filters may have: {properties[names.TAGS]!r}"
            )
    except TypeError:
        raise MessageError(f"tags and properties of a message must be text: {properties!r} are not") from None
    except UnicodeEncodeError as error:
        raise MessageError(f"tags, keys and properties cannot be encoded as UTF-8: {error}") from None
    return text
