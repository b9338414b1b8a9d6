"""Reads from the log which records have been delivered: the origins of the copies in a part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raptormq.broker.delivered.origin import origin_of
from raptormq.protocol.topic_names import is_derived_topic
from raptormq.storage.records import ParsedRecord


@dataclass(slots=True)
class Copies:
    """What a part of the log has copies of."""

    origins: set[int] = field(default_factory=set)
    """Log offsets of the records that copies were made of."""
    returned: dict[tuple[str, int], int] = field(default_factory=dict)
    """Log offsets of the copies in retry and dead letter topics, of which each group has its own: by topic and origin,
    the last one.
    """


def read_copies(records: Iterable[ParsedRecord]) -> Copies:
    """Return what ``records`` are copies of."""
    found = Copies()
    for record in records:
        origin = origin_of(record.prepared_transaction_offset)
        if origin is not None:
            found.origins.add(origin)
            if is_derived_topic(record.topic):
                found.returned[record.topic, origin] = record.physical_offset
    return found
