"""The origin of a record: where in the log the record is that the broker made it of.

The field PREPAREDTRANSACTIONOFFSET of a record says it. Apache RocketMQ sets it in committed messages alone, to the
place of their half, and neither its brokers nor its clients go by it; producers cannot set it. Here every copy has it
that must not be made twice: a message with a delay level or a delivery time that was due, a committed message, a half
that was written anew or given up, a popped message that came back. A copy is always behind its origin, so what was
delivered is known by the log behind any point from which on nothing else is known.

::

    0        none: a message of a producer, or a copy by Apache RocketMQ or an older version
    1        log offset 0: no record is at 1
    other    log offset
"""

from __future__ import annotations


def origin_field(place: int) -> int:
    """Return what the record of a copy says of its origin at log offset ``place``."""
    return place or 1


def origin_of(field: int) -> int | None:
    """Return the log offset of the origin, None for a record that has none."""
    return None if field <= 0 else 0 if field == 1 else field
