"""Encrypts messages before sending and decrypts them after receiving, with `raptormq.protocol.encryption`.

Key sources may be classes of the application. Their exceptions and invalid results are converted into client errors.
See also: `producer.sender` encrypts messages, `producer.batch_encoding` whole batches; `message.decoding` and
`producer.request_reply` decrypt.
"""

from __future__ import annotations

import os
from dataclasses import replace

from raptormq.client.config import ProducerConfig
from raptormq.client.message.send_request import SendRequest, compressed
from raptormq.client.security import EncryptionKeys, is_key_name
from raptormq.errors import ConfigError, KeyMissing, RaptorMQError, WrongKey
from raptormq.protocol import properties as names
from raptormq.protocol.batch import decode_batch, encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.encryption import KEY_BYTES, NONCE_BYTES, decrypt_body, encrypt_body, key_id_of
from raptormq.protocol.properties import encode_properties
from raptormq.protocol.record import Bytes


class Encryptor:
    """Encrypts messages and batches with the current key."""

    def __init__(self, keys: EncryptionKeys, config: ProducerConfig) -> None:
        self._keys = keys
        self._config = config

    def encrypt(self, outgoing: SendRequest) -> SendRequest:
        """Encrypt a message, or each message of a batch. Already encrypted bodies are not changed.

        Raises:
            ConfigError: there is no key to encrypt with.
        """
        if outgoing.encrypted:
            return outgoing
        key_id, key = _current(self._keys)
        mark = encode_properties({names.ENCRYPTION_KEY_ID: key_id})
        if outgoing.code != RequestCode.SEND_BATCH_MESSAGE:
            body = self._encrypt(outgoing.body, outgoing.sys_flag, key_id, key)
        else:
            own = mark.encode()
            body = encode_batch(
                (record.flag, self._encrypt(record.body, outgoing.sys_flag, key_id, key), record.properties + own)
                for record in decode_batch(outgoing.body)
            )
        return replace(outgoing, body=body, sys_flag=0, properties=outgoing.properties + mark, encrypted=True)

    def encrypt_whole(self, outgoing: SendRequest) -> SendRequest:
        """Encrypt a batch as a whole.

        Raises:
            ConfigError: there is no key to encrypt with.
        """
        key_id, key = _current(self._keys)
        mark = encode_properties({names.ENCRYPTION_KEY_ID: key_id})
        body = self._encrypt(outgoing.body, 0, key_id, key)
        return replace(outgoing, body=body, properties=outgoing.properties + mark, encrypted=True)

    def _encrypt(self, body: bytes, sys_flag: int, key_id: str, key: bytes) -> bytes:
        if not sys_flag:
            body, sys_flag = compressed(body, self._config)
        return encrypt_body(body, sys_flag, key_id, key, os.urandom(NONCE_BYTES))


_verified: set[tuple[str, bytes]] = set()
"""Keys (name and bytes) that have successfully decrypted a body."""


def decrypt(body: Bytes, keys: EncryptionKeys | None) -> bytes:
    """Decrypt a body.

    If decryption fails with a key that has never decrypted a body, the key is assumed to be wrong, not the body.
    Otherwise a client with a wrong key would skip all messages as damaged.

    Raises:
        KeyMissing: the client has no keys, or its key with this name is missing, unreadable or wrong.
        RecordError: the body is damaged.
    """
    key_id = key_id_of(body)
    if keys is None:
        raise KeyMissing(f"a message is encrypted with the key {key_id!r}, and this client has no keys")
    key = _known(keys, key_id)
    try:
        plain = decrypt_body(body, key)
    except WrongKey as error:
        if (key_id, key) in _verified:
            raise
        raise KeyMissing(f"{error}; the key of this client has decrypted nothing yet") from error
    except ConfigError as error:
        raise KeyMissing(f"a message is encrypted with the key {key_id!r}: {error}") from error
    _verified.add((key_id, key))
    return plain


def _current(keys: EncryptionKeys) -> tuple[str, bytes]:
    """Return the key to encrypt with.

    Raises:
        ConfigError: there is no current key, or it is invalid.
    """
    try:
        key_id, key = keys.current()
        if not is_key_name(key_id):
            raise ValueError(f"{key_id!r:.40} is not a valid key name")
        _check(key)
    except RaptorMQError:
        raise
    except Exception as error:
        raise ConfigError(f"there is no key to encrypt with: {error!r}") from error
    return key_id, key


def _known(keys: EncryptionKeys, key_id: str) -> bytes:
    """Return the key with the name `key_id`.

    Raises:
        KeyMissing: the key does not exist or cannot be read now.
    """
    try:
        key = keys.key(key_id)
        _check(key)
    except KeyMissing:
        raise
    except Exception as error:  # also for errors of the client, because readers handle only KeyMissing
        raise KeyMissing(f"the key {key_id!r} cannot be read: {error!r}") from error
    return key


def _check(key: object) -> None:
    if not isinstance(key, bytes) or len(key) not in KEY_BYTES:
        raise ValueError("the key from the key source must have 16, 24 or 32 bytes")
