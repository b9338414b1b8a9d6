"""A batch that is stored whole, as one record: what the topics of ``queue.type=BatchCQ`` keep (RIP-26).

The wrapper is an ordinary record (:mod:`~raptormq.protocol.record`) whose parts mean::

    SYSFLAG      has NEED_UNWRAP | INNER_BATCH; COMPRESSED when the whole body is compressed
    QUEUEOFFSET  of the first message, the others follow it
    body         the messages, each as in SEND_BATCH_MESSAGE (:mod:`~raptormq.protocol.batch`)
    properties   of the batch: UNIQ_KEY and TAGS of its own, KEYS of all its messages,
                 INNER_NUM  number of messages, 1 to 32,767
                 INNER_BASE queue offset of the first one, the same as QUEUEOFFSET
                 __INNER_IDS  of our producers, when nobody can look inside (:mod:`~raptormq.protocol.inner_ids`)

Source: Apache RocketMQ ``MessageDecoder.decodeMessage``, ``SendMessageProcessor.sendBatchMessage``, ``MessageSysFlag``.
"""

from __future__ import annotations

from raptormq.errors import RecordError
from raptormq.protocol.batch import MAX_BATCH_RECORDS, decode_batch
from raptormq.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from raptormq.protocol.copied_properties import fit_properties
from raptormq.protocol.language import Language
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import INNER_NUM, decode_properties, find_property
from raptormq.protocol.record import StoredMessage, SysFlag

# Plain integers: operators of IntFlag cost a microsecond each.
INNER_BATCH = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
"""Both bits; a reader that knows inner batches takes a record apart only when it has both."""
_COMPRESSED = int(SysFlag.COMPRESSED)
_OF_THE_WRAPPER = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
_COUNT_DIGITS = 5
_FIRST_VERSION = 413
"""Apache RocketMQ 5.0.0: clients from there on take inner batches apart."""
_LANGUAGES = (Language.JAVA, Language.PYTHON)
"""Languages whose clients do, once they announce such a version; those in Go, C++ and Node do not."""


def is_inner_batch(sys_flag: int) -> bool:
    """True for the wrapper of an inner batch."""
    return sys_flag & INNER_BATCH == INNER_BATCH


def understands_inner_batches(language: int, version: int) -> bool:
    """True when the client that sent a command with these header fields takes inner batches apart itself."""
    return version >= _FIRST_VERSION and language in _LANGUAGES


def understands_encrypted_batches(language: int, version: int) -> bool:
    """True when that client is RaptorMQ's, which decrypts inner batches. To any other the ciphertext would be one
    message, and it would acknowledge all of them with it.
    """
    return language == Language.PYTHON and version >= _FIRST_VERSION


def inner_count(properties: str) -> int:
    """Return how many messages a wrapper with these properties says that it holds.

    Raises:
        RecordError: it does not say, or no number that a batch can have.
    """
    text = find_property(properties, INNER_NUM) or ""
    count = parse_natural(text, _COUNT_DIGITS) or 0
    if not 0 < count <= MAX_BATCH_RECORDS:
        raise RecordError(f"an inner batch with {INNER_NUM}={text!r:.40}")
    return count


def inner_message_offset(physical: int, size: int, number: int) -> int:
    """Return the place in the log that a message is given which the log has inside a batch only: ids are made of it,
    and RaptorMQ's brokers find the message by it.

    Message ``number``, from 0 on, of a wrapper of ``size`` bytes at ``physical`` is "at" the ``number + 1``-th byte
    behind the wrapper's first one. A wrapper is longer than that unless it is compressed; where it is not, the place is
    the wrapper's.
    """
    return physical + number + 1 if number + 1 < size else physical


def plain_body(wrapper: StoredMessage, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the messages of an inner batch as they were before compression.

    Raises:
        RecordError: it is damaged or grows beyond ``max_bytes``.
    """
    if not wrapper.sys_flag & _COMPRESSED:
        return wrapper.body
    return decompress(wrapper.body, wrapper.sys_flag, max_bytes)


def _text(properties: bytes) -> str:
    """Return properties as the Java client has them: what is not UTF-8 is replaced, and may be longer then."""
    try:
        return properties.decode()
    except UnicodeDecodeError:
        text = properties.decode("utf-8", "replace")
    return fit_properties(decode_properties(text), {}).text


def unwrap(wrapper: StoredMessage, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[StoredMessage]:
    """Return the messages of an inner batch, in the order of their queue offsets.

    Flag, properties and body are each message's own, everything else is the wrapper's. A body compressed by the batch
    is inflated up to ``max_bytes``.

    Raises:
        RecordError: the body cannot be inflated or taken apart, has a wrong CRC, nests a batch, or holds another number
            of messages than INNER_NUM says.
    """
    records = decode_batch(plain_body(wrapper, max_bytes), MAX_BATCH_RECORDS, check_crc=True)
    if len(records) != inner_count(wrapper.properties):
        raise RecordError(f"the inner batch at {wrapper.physical_offset} holds {len(records)} messages, not as it says")
    sys_flag = wrapper.sys_flag & ~_OF_THE_WRAPPER
    messages: list[StoredMessage] = []
    for offset, (flag, body, own) in enumerate(records, wrapper.queue_offset):
        properties = _text(own)
        if find_property(properties, INNER_NUM) is not None:
            raise RecordError("an inner batch holds another one")
        messages.append(
            StoredMessage(
                wrapper.topic, wrapper.queue_id, body, properties, flag, sys_flag, offset, wrapper.physical_offset,
                wrapper.born_timestamp, wrapper.store_timestamp, wrapper.born_host, wrapper.store_host,
            )
        )  # fmt: skip
    return messages
