"""Tags: the attribute by which brokers filter, and its hash in the consume queue.

Source: Apache RocketMQ ``MessageExtBrokerInner.tagsString2tagsCode`` (Java ``String.hashCode``) and ``FilterAPI``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from raptormq.errors import MessageError

SUBSCRIBE_ALL = "*"
TAG_SEPARATOR = "||"
_CONDITION = re.compile(r"&&|\||[=<>'()]|\s(?:and|or|in|is|like|between)\s", re.IGNORECASE)
"""Characters of a condition. No message has a tag that contains them, so a subscription with them matches nothing."""


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: ``h = 31 * h + unit`` over UTF-16 units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def tag_hash(tags: str | None) -> int:
    """Return the tag code of a consume queue item: the hash of the whole TAGS property, 0 without one."""
    return java_hash(tags) if tags else 0


def parse_expression(expression: str) -> frozenset[str]:
    """Split ``"A || B"`` into its tags. An empty set means all messages.

    Raises:
        MessageError: the expression has only separators.
    """
    text = expression.strip()
    if text in ("", SUBSCRIBE_ALL):
        return frozenset()
    tags = frozenset(part.strip() for part in text.split(TAG_SEPARATOR)) - {""}
    if not tags:
        raise MessageError(f"the subscription {expression!r} has no tag; use '*' or 'A || B'")
    return frozenset() if SUBSCRIBE_ALL in tags else tags


def find_condition(expression: str) -> str | None:
    """Return the first part of a tag expression that is a condition and not a tag, such as ``price > 100`` or
    ``A && B``; None when there is none. Brokers accept such an expression and match nothing.

    Raises:
        MessageError: the expression has only separators.
    """
    return next((tag for tag in sorted(parse_expression(expression)) if _CONDITION.search(tag)), None)
