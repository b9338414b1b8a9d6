"""The unique ids of the messages in a batch that brokers cannot read, because it is compressed or encrypted as a whole.

The producer lists them in a property of the batch, so that a message is found by its own id, as in a plain batch::

    __INNER_IDS = run *("," run)          in the order of the messages, as many ids as INNER_NUM
    run         = id ["*" count]          consecutive ids: only their counter differs,
                                          the last four hexadecimal digits, and after FFFF comes 0000

Ids created together are one run (:mod:`~raptormq.protocol.message_id`), about 40 bytes for a batch of any size. The
property is specific to RaptorMQ. Apache RocketMQ preserves it like a property of the application.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raptormq.protocol.message_id import ids_from
from raptormq.protocol.naturals import parse_natural
from raptormq.protocol.properties import INNER_IDS, INNER_NUM, find_property

MAX_CHARS = 1024
"""Maximum length of the value. A batch whose value would be longer has no such property."""
_ID = re.compile("[0-9A-F]{32}|[0-9A-F]{56}")
_COUNT_DIGITS = 5


def pack_ids(ids: Sequence[str]) -> str:
    """Return the value for these ids, or an empty string if it would be too long or an id is not of the form that
    `message_id` creates.
    """
    if not ids or not all(map(_ID.fullmatch, ids)):
        return ""
    if ids == ids_from(ids[0], len(ids)):
        return _run(ids[0], len(ids))
    value = ",".join(_runs(ids))
    return value if len(value) <= MAX_CHARS else ""


def unpack_ids(properties: str) -> list[str]:
    """Return the ids in the properties of a batch, all of one length. The result is empty if the property is missing or
    invalid, or if the number of ids differs from INNER_NUM.
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
    """Yield the text of each run."""
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
