"""A batch that is stored whole, as one record, in topics with ``queue.type=BatchCQ`` (RIP-26).

The wrapper is an ordinary record (:mod:`~raptormq.protocol.record`) with these contents::

    SYSFLAG      has NEED_UNWRAP | INNER_BATCH; COMPRESSED if the whole body is compressed
    QUEUEOFFSET  of the first message, the others follow it
    body         the messages, each as in SEND_BATCH_MESSAGE (:mod:`~raptormq.protocol.batch`)
    properties   of the batch: UNIQ_KEY and TAGS of its own, KEYS of all its messages,
                 INNER_NUM  number of messages, 1 to 32,767
                 INNER_BASE queue offset of the first one, the same as QUEUEOFFSET
                 __INNER_IDS  from RaptorMQ's producers, if brokers cannot read the body
                              (:mod:`~raptormq.protocol.inner_ids`)

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
"""Both bits. Readers that support inner batches unpack a record only if both are set."""
_COMPRESSED = int(SysFlag.COMPRESSED)
_OF_THE_WRAPPER = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
_COUNT_DIGITS = 5
_FIRST_VERSION = 413
"""Apache RocketMQ 5.0.0, the first version whose clients unpack inner batches."""
_LANGUAGES = (Language.JAVA, Language.PYTHON)
"""Languages whose clients unpack inner batches from that version on. Clients in Go, C++ and Node do not."""


def is_inner_batch(sys_flag: int) -> bool:
    """Whether this is the SYSFLAG of the wrapper of an inner batch."""
    return sys_flag & INNER_BATCH == INNER_BATCH


def understands_inner_batches(language: int, version: int) -> bool:
    """Whether a client with these header fields unpacks inner batches."""
    return version >= _FIRST_VERSION and language in _LANGUAGES


def understands_encrypted_batches(language: int, version: int) -> bool:
    """Whether a client with these header fields is RaptorMQ's, which decrypts inner batches. Any other client would
    treat the ciphertext as one message, and acknowledge the whole batch with it.
    """
    return language == Language.PYTHON and version >= _FIRST_VERSION


def inner_count(properties: str) -> int:
    """Return INNER_NUM, the number of messages in a wrapper with these properties.

    Raises:
        RecordError: INNER_NUM is missing or not a valid number of messages.
    """
    text = find_property(properties, INNER_NUM) or ""
    count = parse_natural(text, _COUNT_DIGITS) or 0
    if not 0 < count <= MAX_BATCH_RECORDS:
        raise RecordError(f"an inner batch has the invalid {INNER_NUM}={text!r:.40}")
    return count


def inner_message_offset(physical: int, size: int, number: int) -> int:
    """Return the log offset that is assigned to a message inside a batch. It is used in message ids, and RaptorMQ's
    brokers find the message by it.

    Message ``number`` (from 0) of a wrapper of ``size`` bytes at ``physical`` has the offset ``physical + number + 1``.
    The wrapper is normally longer than ``number + 1`` bytes. If it is not, because it is compressed, the offset is that
    of the wrapper.
    """
    return physical + number + 1 if number + 1 < size else physical


def plain_body(wrapper: StoredMessage, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the decompressed messages of an inner batch.

    Raises:
        RecordError: the body is damaged, or larger than ``max_bytes``.
    """
    if not wrapper.sys_flag & _COMPRESSED:
        return wrapper.body
    return decompress(wrapper.body, wrapper.sys_flag, max_bytes)


def _text(properties: bytes) -> str:
    """Decode properties as the Java client does: invalid UTF-8 is replaced, which may make them longer."""
    try:
        return properties.decode()
    except UnicodeDecodeError:
        text = properties.decode("utf-8", "replace")
    return fit_properties(decode_properties(text), {}).text


def unwrap(wrapper: StoredMessage, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[StoredMessage]:
    """Return the messages of an inner batch, in the order of their queue offsets.

    Each message has its own flag, properties and body. All other fields are those of the wrapper. A compressed body is
    decompressed up to ``max_bytes``.

    Raises:
        RecordError: the body cannot be decompressed or parsed, has a wrong CRC or a nested batch, or the number of
            messages differs from INNER_NUM.
    """
    records = decode_batch(plain_body(wrapper, max_bytes), MAX_BATCH_RECORDS, check_crc=True)
    if len(records) != inner_count(wrapper.properties):
        raise RecordError(
            f"the inner batch at {wrapper.physical_offset} holds {len(records)} messages, a different number "
            "than INNER_NUM"
        )
    sys_flag = wrapper.sys_flag & ~_OF_THE_WRAPPER
    messages: list[StoredMessage] = []
    for offset, (flag, body, own) in enumerate(records, wrapper.queue_offset):
        properties = _text(own)
        if find_property(properties, INNER_NUM) is not None:
            raise RecordError("an inner batch contains another one")
        messages.append(
            StoredMessage(
                wrapper.topic, wrapper.queue_id, body, properties, flag, sys_flag, offset, wrapper.physical_offset,
                wrapper.born_timestamp, wrapper.store_timestamp, wrapper.born_host, wrapper.store_host,
            )
        )  # fmt: skip
    return messages
