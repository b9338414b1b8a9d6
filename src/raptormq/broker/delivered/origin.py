"""The origin of a record: the log offset of the record that the broker copied.

The record field PREPAREDTRANSACTIONOFFSET contains the origin. Apache RocketMQ sets this field only in committed
messages, to the log offset of the half message. Brokers and clients of Apache RocketMQ do not read the field, and
producers cannot set it. This broker sets it in every copy that must not be created twice: a delivered delayed or timer
message, a committed message, a renewed or discarded half message, a revived message. A copy follows its origin in the
log. A scan of the log behind an offset therefore finds all deliveries after it.

Values of the field::

    0        no origin: sent by a producer, or copied by Apache RocketMQ or an older version
    1        log offset 0 (no record begins at log offset 1)
    other    log offset
"""

from __future__ import annotations


def origin_field(place: int) -> int:
    """Return the field value of a copy whose origin is at log offset ``place``."""
    return place or 1


def origin_of(field: int) -> int | None:
    """Return the log offset of the origin, or None if the record has no origin."""
    return None if field <= 0 else 0 if field == 1 else field
