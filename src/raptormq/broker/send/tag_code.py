"""The tag code of a message from the text form of its properties, parsing no others (``tagsString2tagsCode``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from raptormq.protocol.batch import BatchRow
from raptormq.protocol.properties import find_value
from raptormq.protocol.tags import java_hash

_TAGS = b"TAGS\x01"


def tag_code(properties: bytes) -> int:
    """Hash of the TAGS property of a text form, 0 without one; the last one counts."""
    return _hash(find_value(properties, _TAGS)) if _TAGS in properties else 0


def tag_codes(rows: Sequence[BatchRow]) -> list[int]:
    """Tag codes of all messages of a batch."""
    return [tag_code(properties) for _, _, _, properties in rows]


@lru_cache(maxsize=4096)
def _hash(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "replace")) if tag else 0
