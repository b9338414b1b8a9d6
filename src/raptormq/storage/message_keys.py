"""The hashes of all keys of many messages at a time: the unique key of each, then the words of its KEYS.

What messages look like decides how fast this is. Nearly all have one unique key, and all unique keys of a client have
one length: then they are cut out of the joined properties as one matrix, for 0.2 us a message instead of 1.5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raptormq.protocol.properties import find_value
from raptormq.storage.key_hash import LONGEST, hash_units, key_hashes, topic_hashes

_UNIQUE_KEY = b"UNIQ_KEY\x01"
_KEYS = b"KEYS\x01"
_PAIR = 2


def hashes_of_keys(topics: Sequence[str], texts: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return hashes and, for each, the index of its message, ascending.

    ``texts[i]`` are the properties of a message of ``topics[i]`` in their UTF-8 text form.
    """
    joined = b"".join(texts)
    units = _same_length_unique_keys(joined, texts)
    if units is not None:
        hashes, owners = hash_units(topic_hashes(topics), units), np.arange(len(texts))
    else:
        unique = [find_value(text, _UNIQUE_KEY) for text in texts]
        owners = np.flatnonzero(np.fromiter(map(len, unique), dtype=np.int64, count=len(unique)))
        hashes = _hashes(topics, [key for key in unique if key], owners)
    if _KEYS not in joined:
        return hashes, owners
    words: list[bytes] = []
    owners_of_words: list[int] = []
    for index, text in enumerate(texts):
        if _KEYS in text:
            found = find_value(text, _KEYS).split()
            words += found
            owners_of_words += [index] * len(found)
    word_owners = np.array(owners_of_words, dtype=np.int64)
    all_owners = np.concatenate((owners, word_owners))
    order = np.argsort(all_owners, kind="stable")
    return np.concatenate((hashes, _hashes(topics, words, word_owners)))[order], all_owners[order]


def _hashes(topics: Sequence[str], keys: Sequence[bytes], owners: NDArray[np.int64]) -> NDArray[np.int32]:
    return key_hashes([topics[owner] for owner in owners.tolist()], keys)


def _same_length_unique_keys(joined: bytes, texts: Sequence[bytes]) -> NDArray[np.uint8] | None:
    """Return the unique keys as the rows of a matrix; None unless every message has exactly one, all of one length and
    in ASCII.
    """
    pieces = joined.split(_UNIQUE_KEY)
    count = len(texts)
    if len(pieces) != count + 1 or not count:
        return None
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=count)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    before = np.fromiter(map(len, pieces), dtype=np.int64, count=count + 1)[:-1]
    keys_at = np.cumsum(before + len(_UNIQUE_KEY))
    names_at = keys_at - len(_UNIQUE_KEY)
    size = pieces[1].find(b"\x02")
    data = np.frombuffer(joined, dtype=np.uint8)
    if (
        not 0 < size <= LONGEST
        or (names_at < begins).any()
        or (keys_at + size >= ends).any()
        or ((data[names_at - 1] != _PAIR) & (names_at != begins)).any()  # the end of a longer name
    ):
        return None
    units: NDArray[np.uint8] = np.lib.stride_tricks.sliding_window_view(data, size)[keys_at]
    if (data[keys_at + size] != _PAIR).any() or (units == _PAIR).any() or (units >= 0x80).any():
        return None
    return units
