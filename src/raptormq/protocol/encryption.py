"""End-to-end encryption of bodies (AES-GCM), of single messages or of whole batches.

An encrypted body, big-endian::

     0  "RMQE"
     4  VERSION u8 = 1
     5  COMPRESSION u16     compression of the plain body: bits of SYSFLAG, 0 = none
     7  KEYIDLEN u8, key id UTF-8
        NONCE 12 bytes      random, so one key may be used for 2**32 messages or batches
        ciphertext, tag 16 bytes

Everything before the nonce is authenticated with the ciphertext. Bodies are compressed before they are encrypted.
COMPRESSION records this instead of SYSFLAG, so that no reader without the key tries to decompress. The property
`properties.ENCRYPTION_KEY_ID` names the key for brokers and tools. Brokers neither have keys nor need them.

A batch that is stored whole (`inner_batch`) is encrypted as one body, which is the body of its record. On other topics
every message of a batch is encrypted separately.
"""

from __future__ import annotations

import struct

from raptormq.errors import ConfigError, RecordError, WrongKey
from raptormq.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from raptormq.protocol.record import Bytes

_MAGIC = b"RMQE"
_VERSION = 1
_HEAD = struct.Struct(">4sBHB")
NONCE_BYTES = 12
_TAG_BYTES = 16
KEY_BYTES = (16, 24, 32)
"""Allowed key lengths in bytes: AES-128, AES-192, AES-256."""
MAX_KEY_ID_BYTES = 255


def is_encrypted_body(body: Bytes) -> bool:
    """Whether a body begins like an encrypted one. The body of an unencrypted batch cannot begin like that, because its
    first record would be too large."""
    return body[: len(_MAGIC)] == _MAGIC


def encrypt_body(plain: Bytes, compression: int, key_id: str, key: bytes, nonce: bytes) -> bytes:
    """Encrypt a body that is compressed as the bits `compression` say. `nonce` must be used once with `key`.

    Raises:
        ConfigError: the package cryptography is not installed.
    """
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, and an optional dependency
    except ImportError as error:
        raise _not_installed(error) from None

    name = key_id.encode()
    head = _HEAD.pack(_MAGIC, _VERSION, compression, len(name)) + name
    ciphertext: bytes = AESGCM(key).encrypt(nonce, bytes(plain), head)
    return b"".join((head, nonce, ciphertext))


def encryption_overhead(key_id: str) -> int:
    """Return the bytes that encryption with a key of this name adds to a body."""
    return _HEAD.size + len(key_id.encode()) + NONCE_BYTES + _TAG_BYTES


def key_id_of(body: Bytes) -> str:
    """Return the name of the key that a body is encrypted with.

    Raises:
        RecordError: the body is not encrypted, of another version, or truncated.
    """
    return _split(body)[1]


def decrypt_body(body: Bytes, key: bytes, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the decrypted and decompressed body.

    Raises:
        RecordError: the body is damaged, encrypted with another key (WrongKey), or longer than `max_bytes`.
        ConfigError: the package cryptography is not installed.
    """
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise _not_installed(error) from None

    compression, key_id, nonce_at = _split(body)
    data = bytes(body)
    try:
        plain: bytes = AESGCM(key).decrypt(
            data[nonce_at : nonce_at + NONCE_BYTES], data[nonce_at + NONCE_BYTES :], data[:nonce_at]
        )
    except InvalidTag:
        raise WrongKey(f"the body is damaged or was not encrypted with the key {key_id}") from None
    return decompress(plain, compression, max_bytes)


def _split(body: Bytes) -> tuple[int, str, int]:
    """Return the compression, the key id and the position of the nonce."""
    try:
        magic, version, compression, length = _HEAD.unpack_from(body)
        nonce_at = _HEAD.size + length
        if magic != _MAGIC or version != _VERSION or len(body) < nonce_at + NONCE_BYTES + _TAG_BYTES:
            raise RecordError("the body is not encrypted, as its properties declare, or is truncated")
        return compression, bytes(body[_HEAD.size : nonce_at]).decode(), nonce_at
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(f"the encrypted body is damaged: {error}") from None


def _not_installed(error: ImportError) -> ConfigError:
    return ConfigError(f"encryption needs the package cryptography; run pip install 'raptormq[encryption]': {error}")
