"""Tag codes of messages, computed from encoded properties (``tagsString2tagsCode``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from raptormq.protocol.batch import BatchRow
from raptormq.protocol.properties import PAIR_SEPARATOR, find_value
from raptormq.protocol.tags import java_hash

_TAGS = b"TAGS\x01"
_PAIR = ord(PAIR_SEPARATOR)


def tag_code(properties: bytes) -> int:
    """Return the hash of the TAGS property, 0 if there is none. If TAGS occurs twice, the last value is used."""
    return _hash(find_value(properties, _TAGS)) if _TAGS in properties else 0


def tag_codes(rows: Sequence[BatchRow]) -> list[int]:
    """Return the tag codes of all messages of a batch."""
    codes: list[int] = []
    for _, _, _, properties in rows:
        before, found, behind = properties.rpartition(_TAGS)
        if not found:
            codes.append(0)
        elif before and before[-1] != _PAIR:  # the end of a longer property name
            codes.append(tag_code(properties))
        else:
            codes.append(_hash(behind.partition(b"\x02")[0]))
    return codes


@lru_cache(maxsize=4096)
def _hash(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "replace")) if tag else 0
