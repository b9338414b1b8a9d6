"""Pages of the lists of topics and groups (21, 201; ``TopicConfigManager.subTopicConfigTable``,
``SubscriptionGroupManager.subGroupTable`` of RocketMQ 5.5).

A page is a run of the names in ascending order. Its request names the version of the table that the client has seen. If
the table has changed since, the positions of the names may have, and the answer is the first page. The client sees the
other version and starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

from raptormq.broker.config import MetadataSettings
from raptormq.errors import BodyError
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.bodies.topic_config import DataVersion
from raptormq.protocol.codes import ResponseCode
from raptormq.transport.router import Refused

Entry = TypeVar("Entry")


def page_of(
    table: Mapping[str, Entry],
    version: DataVersion,
    settings: MetadataSettings,
    *,
    first: int | None,
    most: int | None,
    seen: str | None,
) -> dict[str, Entry]:
    """Return the page of ``table`` that a request asks for; the whole table when it asks for none.

    Args:
        first: position of the page's first name.
        most: largest number of entries.
        seen: version of the table that the client has seen, as JSON.

    Raises:
        Refused: the page cannot be one.
    """
    if not settings.paged or (first is None and most is None and seen is None):
        return dict(table)
    first = 0 if first is None else first
    if first < 0 or (most is not None and most <= 0):
        remark = f"there is no page of {most} entries from number {first} on; a page has 1 entry or more from number 0"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    if first and not _is_seen(version, seen):
        first = 0
    size = settings.page_size if most is None else min(settings.page_size, most)
    return {name: table[name] for name in islice(sorted(table), first, first + size)}


def _is_seen(version: DataVersion, seen: str | None) -> bool:
    try:
        return bool(seen) and DataVersion.from_dict(loads_object((seen or "").encode())) == version
    except BodyError:
        return False
