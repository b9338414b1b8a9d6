"""The origin of a record: the log offset of the record that the broker copied.

The field PREPAREDTRANSACTIONOFFSET holds it. Apache RocketMQ sets the field in committed messages only, to the log
offset of their half; its brokers and clients do not read it, and producers cannot set it. Here every copy that must not
be made twice has it: a delivered delayed or timer message, a committed message, a half that was renewed or discarded, a
popped message that was revived. A copy always follows its origin in the log. So the log after any offset tells what was
delivered since.

::

    0        none: sent by a producer, or copied by Apache RocketMQ or an older version
    1        log offset 0: no record is at 1
    other    log offset
"""

from __future__ import annotations


def origin_field(place: int) -> int:
    """Return the field value of a copy whose origin is at log offset ``place``."""
    return place or 1


def origin_of(field: int) -> int | None:
    """Return the log offset of the origin, None for a record without one."""
    return None if field <= 0 else 0 if field == 1 else field
