"""Recognises that a broker has other messages than those that a query has read, although its queues are long enough.

A store that is restored from a backup assigns the offsets after the backup again. When it has grown past the offsets of
a checkpoint, the query would skip the messages between. The topic ids are those of the backup, and nothing in a
restored folder shows that it was restored. Therefore a checkpoint has a mark for each broker: a message of the last
batch, by its place in the commit log and the time at which it was stored. These are the same at all members of a group,
at slaves, and after a fail-over, a promotion or a change of the replication mode. Each batch compares the mark of each
broker that it reads, and has a new one. A message that retention has deleted, or that a broker does not return, is not
compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from raptormq.protocol.message import MessageQueue


class Stored(NamedTuple):
    """Where and when a message was stored."""

    log_offset: int
    """Offset of its record in the commit log. The messages of a stored batch have the same record."""
    time_ms: int
    """Time in ms since 1970."""


class Mark(NamedTuple):
    """A message that a query has planned to read."""

    queue: MessageQueue
    offset: int
    stored: Stored


Marks = dict[str, Mark]
"""Marks by broker name."""
Place = tuple[MessageQueue, int]


class Messages(Protocol):
    """Requests to the brokers. Implemented by `cluster.Cluster`."""

    def stored_at(self, places: Sequence[Place]) -> dict[Place, Stored]:
        """Return where and when the messages at these offsets were stored, except for those that are not there."""
        ...


def replaced(marks: Mapping[str, Mark], found: Mapping[Place, Stored]) -> list[Mark]:
    """Return the marks whose offset has another message."""
    return [mark for _, mark in sorted(marks.items()) if found.get(place_of(mark), mark.stored) != mark.stored]


def place_of(mark: Mark) -> Place:
    """Return queue and offset of a mark."""
    return mark.queue, mark.offset


def new_places(begin: Mapping[MessageQueue, int], moved: Mapping[MessageQueue, int]) -> list[Place]:
    """Return the last message of a batch in the queue of each broker with most messages, where the next marks are."""
    found: dict[str, tuple[int, Place]] = {}
    for queue, end in sorted(moved.items()):
        count = end - begin.get(queue, 0)
        if end > 0 and count > found.get(queue.broker_name, (0, None))[0]:
            found[queue.broker_name] = count, (queue, end - 1)
    return [place for _, place in found.values()]
