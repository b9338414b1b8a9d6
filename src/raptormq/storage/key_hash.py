"""The hash of message keys in the index files: Java's ``String.hashCode`` of ``topic#key``, made positive
(Apache RocketMQ ``IndexFile.indexKeyHashMethod``).

It is computed for every message, so the start of a key, which the keys of one producer share, is looked up.
"""

from __future__ import annotations

from functools import lru_cache

from raptormq.protocol.tags import java_hash

_TAIL_BYTES = 12
"""Of a unique key: time and counter, after the part that names the client."""
_MASK = 0xFFFFFFFF
_POWERS = [pow(31, length, 1 << 32) for length in range(1 << 10)]
_head_hash = lru_cache(maxsize=8_192)(lambda head: java_hash(head.decode("ascii")))
_topic_hash = lru_cache(maxsize=8_192)(lambda topic: java_hash(f"{topic}#"))


def key_hash(topic: str, key: bytes) -> int:
    """Return the hash, 0 to 2**31 - 1, of ``key`` (UTF-8) of a message of ``topic``."""
    if len(key) >= len(_POWERS) or not key.isascii():
        return _positive(java_hash(f"{topic}#{key.decode('utf-8', 'replace')}"))
    value = _head_hash(key[:-_TAIL_BYTES])
    for unit in key[-_TAIL_BYTES:]:
        value = value * 31 + unit
    value = (value + _topic_hash(topic) * _POWERS[len(key)]) & _MASK
    return _positive(value - (1 << 32) if value & 0x80000000 else value)


def _positive(value: int) -> int:
    return 0 if value == -(1 << 31) else abs(value)
