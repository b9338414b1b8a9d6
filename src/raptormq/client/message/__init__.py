"""Messages before sending and after receiving: validation, encoding, decoding, encryption, batches.

Free of network access; every function depends only on its arguments.
"""

from __future__ import annotations

from raptormq.client.message.copying import snapshot, values_of
from raptormq.client.message.decoding import decode_batches, decode_messages, message_count
from raptormq.client.message.encoded_batch import EncodedBatch, prepare_encoded, prepare_only
from raptormq.client.message.encryption import Encryptor, decrypt
from raptormq.client.message.message_batch import DecodedMessages, MessageBatch
from raptormq.client.message.send_request import (
    MAX_KEYS_CHARS,
    REFUSED_PROPERTIES,
    SendRequest,
    body_too_large,
    check_encrypted_size,
    check_message,
    check_sendable,
    compressed,
    is_mergeable,
    is_mergeable_topic,
    message_properties,
    plain_properties,
    prepare_batch,
    prepare_merged,
    prepare_message,
    prepare_redelivery,
    prepare_single,
    split_messages,
    with_sharding_key,
)
from raptormq.client.message.validation import (
    as_bytes,
    as_messages,
    as_queues,
    check_destination,
    check_optional_fields,
    invalid_message,
)

__all__ = [
    "MAX_KEYS_CHARS",
    "REFUSED_PROPERTIES",
    "DecodedMessages",
    "EncodedBatch",
    "Encryptor",
    "MessageBatch",
    "SendRequest",
    "as_bytes",
    "as_messages",
    "as_queues",
    "body_too_large",
    "check_destination",
    "check_encrypted_size",
    "check_message",
    "check_optional_fields",
    "check_sendable",
    "compressed",
    "decode_batches",
    "decode_messages",
    "decrypt",
    "invalid_message",
    "is_mergeable",
    "is_mergeable_topic",
    "message_count",
    "message_properties",
    "plain_properties",
    "prepare_batch",
    "prepare_encoded",
    "prepare_merged",
    "prepare_message",
    "prepare_only",
    "prepare_redelivery",
    "prepare_single",
    "snapshot",
    "split_messages",
    "values_of",
    "with_sharding_key",
]
