"""Paging of the lists of topics and groups (21, 201; ``TopicConfigManager.subTopicConfigTable``,
``SubscriptionGroupManager.subGroupTable`` of RocketMQ 5.5).

Pages follow the ascending order of names. A request contains the version of the table in the previous page. If the
table has changed since then, the positions of the names may have changed, and the response is the first page. The
client detects the new version and starts again.
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
    limit: int | None,
    seen: str | None,
) -> dict[str, Entry]:
    """Return the requested page of ``table``, or the whole table if the request selects no page.

    Args:
        table: all entries by name.
        version: current version of the table.
        settings: whether responses are paged, and the maximum size of a page.
        first: position of the page's first name.
        limit: maximum number of entries.
        seen: version of the table in the previous page, as JSON.

    Raises:
        Refused: 29 for a negative position or a limit below 1.
    """
    if not settings.paged or (first is None and limit is None and seen is None):
        return dict(table)
    first = 0 if first is None else first
    if first < 0 or (limit is not None and limit <= 0):
        remark = f"invalid page: {limit} entries at position {first}; expected 1 or more entries, position 0 or more"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    if first and not _is_seen(version, seen):
        first = 0
    size = settings.page_size if limit is None else min(settings.page_size, limit)
    return {name: table[name] for name in islice(sorted(table), first, first + size)}


def _is_seen(version: DataVersion, seen: str | None) -> bool:
    try:
        return bool(seen) and DataVersion.from_dict(loads_object((seen or "").encode())) == version
    except BodyError:
        return False
