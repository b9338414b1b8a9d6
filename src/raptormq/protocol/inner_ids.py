"""The unique ids of the messages in a batch that brokers cannot look into, compressed or encrypted as a whole.

The producer says them in a property of the batch, so that a message is found by its own id as one of a plain batch is::

    __INNER_IDS = run *("," run)          in the order of the messages, as many ids as INNER_NUM says
    run         = id ["*" count]          the ids of a run follow each other: only their counter differs,
                                          the last four hexadecimal digits, and after FFFF comes 0000

Ids made together are one run (:mod:`~raptormq.protocol.message_id`), some 40 bytes for a batch of any size. The
property is ours: Apache RocketMQ keeps it as it keeps one of the application.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raptormq.protocol.message_id import ids_from
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import INNER_IDS, INNER_NUM, find_property

MAX_CHARS = 1024
"""Of a value; a batch of which it would be longer says nothing."""
_ID = re.compile("[0-9A-F]{32}|[0-9A-F]{56}")
_COUNT_DIGITS = 5


def pack_ids(ids: Sequence[str]) -> str:
    """Return the value for these ids; empty when it would be too long, or one is no id that `message_id` makes."""
    if not ids or not all(map(_ID.fullmatch, ids)):
        return ""
    if ids == ids_from(ids[0], len(ids)):
        return _run(ids[0], len(ids))
    value = ",".join(_runs(ids))
    return value if len(value) <= MAX_CHARS else ""


def unpack_ids(properties: str) -> list[str]:
    """Return the ids that a batch with these properties says, all of one length; none when it says none, or not as many
    as its messages.
    """
    value = find_property(properties, INNER_IDS)
    if value is None or len(value) > MAX_CHARS:
        return []
    left = parse_natural(find_property(properties, INNER_NUM) or "", _COUNT_DIGITS) or 0
    length = len(re.split("[*,]", value, maxsplit=1)[0])
    ids: list[str] = []
    for run in value.split(","):
        first, star, digits = run.partition("*")
        count = parse_natural(digits, _COUNT_DIGITS) or 0 if star else 1
        left -= count
        if not _ID.fullmatch(first) or len(first) != length or not count or left < 0:
            return []
        ids += ids_from(first, count)
    return ids if not left else []


def _runs(ids: Sequence[str]) -> Iterator[str]:
    """Yield the runs, each as its text."""
    first, count = ids[0], 1
    for before, message_id in pairwise(ids):
        if message_id == ids_from(before, 2)[1]:
            count += 1
        else:
            yield _run(first, count)
            first, count = message_id, 1
    yield _run(first, count)


def _run(first: str, count: int) -> str:
    return f"{first}*{count}" if count > 1 else first
