"""Which properties the copy of a message keeps if not all of them fit.

A copy (of a retried, delayed, popped or checked message, or one that gets another id) has additional properties, and
the message may already have all 32,767 bytes. No producer would see an error and send fewer properties, so the copy is
made anyway, with the body and the properties that fit. Properties are removed until the rest fits, in this order:

1. optional properties of the copy;
2. properties of the application;
3. KEYS, the sharding key and the ids of a batch (:data:`_LOOKED_UP`), which delivery does not need;
4. TAGS;
5. system properties that the copy does not need.

Within a class the largest is removed first. Properties that the copy needs are kept. The property ``__LEFT_OUT`` names
the removed properties of classes 2 to 5, in at most :data:`MAX_LEFT_OUT_BYTES`, and counts the removed properties whose
names do not fit. A copy of the copy extends the value::

    __LEFT_OUT 0x01 note,picture,+3 0x02

Apache RocketMQ refuses such copies with code 13 and redelivers the message for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from raptormq.errors import MessageError
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import (
    INNER_IDS,
    KEYS,
    LEFT_OUT,
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    SHARDING_KEY,
    SYSTEM,
    TAGS,
    join_properties,
    reencode_properties,
)

MAX_LEFT_OUT_BYTES = 512
"""Maximum size of the value of ``__LEFT_OUT``."""
ROOM_AT_BROKERS = 1_024
"""Bytes that a client leaves free in a copy for properties that brokers add: region, cluster, and the original topic
and queue.
"""

_LOOKED_UP = frozenset({KEYS, SHARDING_KEY, INNER_IDS})
_BETWEEN = ","
_MORE = "+"
_MORE_DIGITS = 9
_PAIR_OVERHEAD = len(NAME_SEPARATOR) + len(PAIR_SEPARATOR)
_MARK_ROOM = len(LEFT_OUT) + _PAIR_OVERHEAD + MAX_LEFT_OUT_BYTES


class FittedProperties(NamedTuple):
    """Properties that fit."""

    text: str
    """The text form."""
    left_out: tuple[str, ...] = ()
    """Names of the removed properties, in the order of their removal."""


def merge_properties(found: Mapping[str, str], needed: Mapping[str, str]) -> str:
    """Return the text form of decoded properties, with ``needed`` replacing properties of the same name.

    Raises:
        MessageError: the properties are too long. If the sender cannot get this error, use :func:`fit_properties`.
    """
    return reencode_properties({**found, **needed})


def fit_properties(
    found: Mapping[str, str],
    needed: Mapping[str, str],
    optional: Mapping[str, str] | None = None,
    limit: int = MAX_PROPERTIES_BYTES,
) -> FittedProperties:
    """Return those properties of a message that fit into its copy.

    Args:
        found: the message's properties, as :func:`~raptormq.protocol.properties.decode_properties` returns them.
        needed: properties that the copy needs; they replace properties of the same name.
        optional: properties that the copy does not need; they replace properties of the same name too.
        limit: maximum bytes of the text form in UTF-8.

    Raises:
        MessageError: ``needed`` alone is longer than ``limit``.
    """
    more = optional or {}
    text = join_properties({**found, **more, **needed})
    if _fits(text, limit):
        return FittedProperties(text)
    if more and _fits(text := join_properties({**found, **needed}), limit):
        return FittedProperties(text)
    kept = {**found, **needed}
    before = kept.pop(LEFT_OUT, "")
    sizes = {name: len(name.encode()) + len(value.encode()) + _PAIR_OVERHEAD for name, value in kept.items()}
    size, room = sum(sizes.values()), limit - _MARK_ROOM
    left_out: list[str] = []
    for name in sorted(kept.keys() - needed.keys(), key=lambda name: (_rank(name), -sizes[name], name)):
        if size <= room:
            break
        del kept[name]
        size -= sizes[name]
        left_out.append(name)
    if size > room:
        raise MessageError(f"the properties that a copy needs have {size} bytes, more than {room}")
    kept[LEFT_OUT] = _mark(before, left_out)
    return FittedProperties(join_properties(kept), tuple(left_out))


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit // 4 or len(text.encode()) <= limit


def _rank(name: str) -> int:
    """Return the class of a property. Lower classes are removed first."""
    if name not in SYSTEM:
        return 0
    if name == TAGS:
        return 2
    return 1 if name in _LOOKED_UP else 3


def _mark(before: str, left_out: Iterable[str]) -> str:
    """Return the value of ``__LEFT_OUT``: the names in ``left_out`` and those in ``before``, its value in an earlier
    copy.
    """
    named: list[str] = []
    more, room = 0, MAX_LEFT_OUT_BYTES - len(_BETWEEN) - len(_MORE) - _MORE_DIGITS
    for name in dict.fromkeys(chain(filter(None, before.split(_BETWEEN)), left_out)):
        if name.startswith(_MORE) and (count := parse_natural(name[len(_MORE) :], _MORE_DIGITS)) is not None:
            more += count
        elif (size := len(name.encode()) + len(_BETWEEN)) <= room:
            named.append(name)
            room -= size
        else:
            more += 1
    if more:
        named.append(f"{_MORE}{min(more, 10**_MORE_DIGITS - 1)}")
    return _BETWEEN.join(named)
