"""The hash of message keys in the index files: Java's ``String.hashCode`` of ``topic#key``, made positive
(Apache RocketMQ ``IndexFile.indexKeyHashMethod``).

It is computed for every message that is stored, so for many keys at a time, with numpy: 0.1 us a key instead of 2 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from raptormq.protocol.tags import java_hash

LONGEST = 1_023
"""Longer keys are hashed one by one."""
_BLANK = ord(" ")
_POWERS = np.array([pow(31, length, 1 << 32) for length in range(LONGEST + 1)], dtype=np.uint32)
_SMALLEST = np.iinfo(np.int32).min
_topic_hash = lru_cache(maxsize=8_192)(lambda topic: java_hash(f"{topic}#") & 0xFFFFFFFF)


def key_hash(topic: str, key: str) -> int:
    """Return the hash, 0 to 2**31 - 1, of one key."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == -(1 << 31) else abs(value)


def key_hashes(topics: Sequence[str], keys: Sequence[bytes]) -> NDArray[np.int32]:
    """Return the hashes of ``keys`` (UTF-8), which belong to messages of ``topics``; one row each."""
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    if not len(keys) or lengths.max() > LONGEST or not b"".join(keys).isascii():
        pairs = zip(topics, keys, strict=True)
        return np.array([key_hash(topic, key.decode("utf-8", "replace")) for topic, key in pairs], dtype=np.int32)
    starts, hashes = topic_hashes(topics), np.empty(len(keys), dtype=np.int32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        joined = b"".join([keys[row] for row in rows.tolist()])
        units = np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), length)
        hashes[rows] = hash_units(starts[rows], units)
    return hashes


def word_hashes(topics: Sequence[str], values: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the hashes of all words, parted by blanks, of ``values`` (UTF-8), which belong to messages of ``topics``,
    and, for each, the index of its value, ascending.

    Messages may have hundreds of words: they are cut out of the joined values, so that none becomes an object.
    """
    joined = b" ".join(values) + b" "
    data = np.frombuffer(joined, dtype=np.uint8)
    ends = np.flatnonzero(data == _BLANK)
    begins = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1] + 1))
    rows = np.flatnonzero(ends > begins)
    begins, lengths = begins[rows], (ends - begins)[rows]
    value_ends = np.cumsum(np.fromiter(map(len, values), dtype=np.int64, count=len(values)) + 1)
    owners = np.searchsorted(value_ends, begins, side="right")
    if not len(rows) or lengths.max() > LONGEST or not joined.isascii():
        words = [word for word in joined.split(b" ") if word]
        return key_hashes([topics[owner] for owner in owners.tolist()], words), owners
    starts, hashes = topic_hashes(topics)[owners], np.empty(len(rows), dtype=np.int32)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        units = sliding_window_view(data, length)[begins[alike]]
        hashes[alike] = hash_units(starts[alike], units)
    return hashes, owners


def topic_hashes(topics: Sequence[str]) -> NDArray[np.uint32]:
    """Return what :func:`hash_units` starts with, for each topic."""
    if topics and topics.count(topics[0]) == len(topics):  # as nearly always
        return np.full(len(topics), _topic_hash(topics[0]), dtype=np.uint32)
    return np.fromiter(map(_topic_hash, topics), dtype=np.uint32, count=len(topics))


def hash_units(starts: NDArray[np.uint32], units: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return the hashes of keys of one length, the rows of ``units``, which are ASCII.

    What all of them begin with, as the unique keys of one client do, is hashed once.
    """
    length, first = units.shape[1], units[0]
    powers = _POWERS[:length][::-1]
    differ = np.flatnonzero(first != units[-1])
    begin = int(differ[0]) if len(differ) else length
    if not (units[:, :begin] == first[:begin]).all():
        begin = 0
    values = units[:, begin:].astype(np.uint32) @ powers[begin:]
    values += starts * _POWERS[length] + first[:begin].astype(np.uint32) @ powers[:begin]
    signed = values.view(np.int32)
    signed[signed == _SMALLEST] = 0
    return np.abs(signed)
