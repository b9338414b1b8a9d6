"""Which properties the copy of a message keeps where not all of them have room.

A copy - retried, delayed, popped, asked about, given another id - has properties of its own beside those that its
message came with, and a message may have come with all 32,767 bytes. Nobody is there any more who could be told to send
less, so the copy is made all the same: with its body and with what fits. Left out, until it does, are

1. what the copy would have gained and can do without;
2. properties of the application;
3. KEYS, the sharding key and the ids of a batch (:data:`_LOOKED_UP`), by which nothing is delivered;
4. TAGS;
5. properties of the system that the copy does not need,

the largest of each class first. What the copy needs stays. The property ``__LEFT_OUT`` names what is missing of 2 to 5,
in :data:`MAX_LEFT_OUT_BYTES` at most, and counts what it has no room to name; a copy of the copy adds to it::

    __LEFT_OUT 0x01 note,picture,+3 0x02

Source: none. Apache RocketMQ refuses such copies (13), and hands the message to its consumer for ever.
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
"""Bytes of the value of ``__LEFT_OUT`` at most."""
ROOM_AT_BROKERS = 1_024
"""What is left free for brokers in a copy that a client sends: region, cluster, and where it belongs while it waits."""

_LOOKED_UP = frozenset({KEYS, SHARDING_KEY, INNER_IDS})
_BETWEEN = ","
_MORE = "+"
_MORE_DIGITS = 9
_PAIR_OVERHEAD = len(NAME_SEPARATOR) + len(PAIR_SEPARATOR)
_MARK_ROOM = len(LEFT_OUT) + _PAIR_OVERHEAD + MAX_LEFT_OUT_BYTES


class FittedProperties(NamedTuple):
    """Properties that have room."""

    text: str
    """The text form."""
    left_out: tuple[str, ...] = ()
    """Names of what is missing, in the order in which it was left out."""


def merge_properties(found: Mapping[str, str], needed: Mapping[str, str]) -> str:
    """Return the text form of decoded properties, those that are ``needed`` in place of others of their name.

    Raises:
        MessageError: they have no room; for messages whose sender hears of it, all others :func:`fitted`.
    """
    return reencode_properties({**found, **needed})


def fit_properties(
    found: Mapping[str, str],
    needed: Mapping[str, str],
    optional: Mapping[str, str] | None = None,
    limit: int = MAX_PROPERTIES_BYTES,
) -> FittedProperties:
    """Return what has room of the properties of a message (``found``) in a copy.

    Args:
        found: as :func:`~raptormq.protocol.properties.decode_properties` returns them.
        needed: what the copy cannot do without; in place of others of their name.
        optional: what it can do without, but for that the same.
        limit: bytes of the text form in UTF-8.

    Raises:
        MessageError: what is needed alone is longer than that.
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
        raise MessageError(f"the properties that a copy needs are {size} bytes long, and have room for {room}")
    kept[LEFT_OUT] = _mark(before, left_out)
    return FittedProperties(join_properties(kept), tuple(left_out))


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit // 4 or len(text.encode()) <= limit


def _rank(name: str) -> int:
    """Return the class of a property, the first to be left out first."""
    if name not in SYSTEM:
        return 0
    if name == TAGS:
        return 2
    return 1 if name in _LOOKED_UP else 3


def _mark(before: str, left_out: Iterable[str]) -> str:
    """Return the value that names what is left out now and what an earlier copy ``before`` has named."""
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
