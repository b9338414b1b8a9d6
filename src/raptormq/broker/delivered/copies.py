"""Collects the origins of all copies in a range of the log, which are the delivered records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from raptormq.broker.delivered.origin import origin_of
from raptormq.protocol.topic_names import is_derived_topic
from raptormq.storage.records import ParsedRecord


@dataclass(slots=True)
class Copies:
    """The copies in a range of the log."""

    origins: set[int] = field(default_factory=set)
    """Log offsets of the copied records."""
    returned: dict[tuple[str, int], int] = field(default_factory=dict)
    """Log offset of the last copy in a retry or dead-letter topic, by topic and origin. Several groups may have a copy
    of the same record.
    """


def read_copies(records: Iterable[ParsedRecord]) -> Copies:
    """Collect the copies among ``records``."""
    found = Copies()
    for record in records:
        origin = origin_of(record.prepared_transaction_offset)
        if origin is not None:
            found.origins.add(origin)
            if is_derived_topic(record.topic):
                found.returned[record.topic, origin] = record.physical_offset
    return found
