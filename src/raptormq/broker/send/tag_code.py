"""The tag code of a message from the text form of its properties, parsing no others (``tagsString2tagsCode``)."""

from __future__ import annotations

from functools import lru_cache

from raptormq.protocol.properties import PAIR_SEPARATOR
from raptormq.protocol.tags import java_hash

_TAGS = b"TAGS\x01"
_PAIR_BYTE = ord(PAIR_SEPARATOR)


def tag_code(properties: bytes) -> int:
    """Hash of the TAGS property of a text form, 0 without one; the last one counts."""
    at = properties.rfind(_TAGS)
    while at > 0 and properties[at - 1] != _PAIR_BYTE:  # the end of a longer name
        at = properties.rfind(_TAGS, 0, at)
    if at < 0:
        return 0
    end = properties.find(b"\x02", at)
    return _hash(properties[at + 5 : end] if end >= 0 else properties[at + 5 :])


@lru_cache(maxsize=4096)
def _hash(tag: bytes) -> int:
    return java_hash(tag.decode("utf-8", "replace")) if tag else 0
