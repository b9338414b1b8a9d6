"""Converts messages to delayed messages and back (``HookUtils.handleScheduleMessage``,
``ScheduleMessageService.messageTimeUp``).

A message with ``DELAY=level`` is stored in queue ``level - 1`` of SCHEDULE_TOPIC_XXXX with ``REAL_TOPIC`` and
``REAL_QID`` added to its properties. As in RocketMQ, the delivered copy has all properties, including DELAY. The copy
also records its origin.
"""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.internal_writer import record_copy
from raptormq.errors import MessageError
from raptormq.protocol import properties as names
from raptormq.protocol.copied_properties import merge_properties
from raptormq.protocol.properties import decode_properties
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import SCHEDULE_TOPIC
from raptormq.storage.queue import PendingRecord

_TIMES = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
"""Properties that a delay level overrides."""
Fit = Callable[[dict[str, str], dict[str, str]], str]
"""Merges the properties of a message with added properties into text form. The function may drop properties of the
message.
"""


def delay_level(text: str) -> int:
    """Return the delay level in the properties (text form). 0 and less mean no delay.

    Raises:
        MessageError: DELAY is not a number.
    """
    value = names.find_property(text, names.DELAY)
    if value is None:
        return 0
    try:
        return int(value)
    except ValueError:
        raise MessageError(f"the property DELAY is {value!r:.40}; expected the number of a delay level") from None


def to_delayed(record: PendingRecord, level: int, level_count: int, fit: Fit = merge_properties) -> PendingRecord:
    """Return ``record`` as a delayed message of ``level`` (1 or more; a level above ``level_count`` is lowered to
    ``level_count``).

    Raises:
        MessageError: the properties with the added ones are too long, and ``fit`` drops none.
    """
    found = decode_properties(record.properties.decode())
    queue_id, needed = waiting(found, record.topic, record.queue_id, min(level, level_count))
    return record._replace(topic=SCHEDULE_TOPIC, queue_id=queue_id, properties=fit(found, needed).encode())


def waiting(found: dict[str, str], topic: str, queue_id: int, level: int) -> tuple[int, dict[str, str]]:
    """Return the queue of SCHEDULE_TOPIC_XXXX for ``level`` and the properties to add. Remove the properties that the
    level overrides from ``found``.
    """
    for name in _TIMES:
        found.pop(name, None)
    return level - 1, {names.DELAY: str(level), names.REAL_TOPIC: topic, names.REAL_QUEUE_ID: str(queue_id)}


def restore(waiting: StoredMessage) -> PendingRecord | None:
    """Return the message to deliver, or None if REAL_TOPIC or REAL_QID is missing or invalid."""
    topic = names.find_property(waiting.properties, names.REAL_TOPIC)
    queue = names.find_number(waiting.properties, names.REAL_QUEUE_ID)
    if topic is None or queue is None:
        return None
    return record_copy(waiting, topic, queue, waiting.properties, once=True)


def why_discarded(record: PendingRecord | None) -> str:
    """Return, for the log, why the result of :func:`restore` is not delivered to its topic."""
    if record is None:
        return "its property REAL_TOPIC or REAL_QID is missing or invalid"
    return f"topic {record.topic} does not exist, or was deleted after the message was stored"
