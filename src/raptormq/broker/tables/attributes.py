"""Attributes of topics and consumer groups, and the rules for their changes (``TopicAttributes``,
``SubscriptionGroupAttributes``, ``AttributeUtil``; keys of RocketMQ 5.5).

In a request, ``+key=value`` sets an attribute and ``-key`` removes it.

Topics:

=========================  ==========================================  =================================================
key                        values                                      this broker
=========================  ==========================================  =================================================
``queue.type``             SimpleCQ (default), BatchCQ                 only a conversion (31001) changes it
``cleanup.policy``         DELETE (default), COMPACTION                fixed at creation; COMPACTION is not supported
                                                                       yet
``message.type``           NORMAL (default), FIFO, DELAY,              PRIORITY changes the order of pops; the others
                           TRANSACTION, PRIORITY, LITE, MIXED,         are stored and reported, but not enforced
                           UNSPECIFIED
``reserve.time``           -1 (default) to 2^63 - 1                    stored, no effect
``lite.topic.expiration``  minutes, -1 (default) to 43200              stored, no effect
=========================  ==========================================  =================================================

Groups: ``priority.factor`` (0 to 100, default 100) is the percentage of pops of a PRIORITY topic in the order of
priority. The ``lite.*`` attributes are stored and have no effect.

Queries return attributes without effect like the others. :class:`EffectNotices` logs each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raptormq.errors import MessageError
from raptormq.logs import get_logger
from raptormq.protocol.topic_attributes import BATCH_CQ, LITE, MESSAGE_TYPE, MIXED, PRIORITY, QUEUE_TYPE, SIMPLE_CQ

logger = get_logger(__name__)

CLEANUP_POLICY = "cleanup.policy"
RESERVE_TIME = "reserve.time"
LITE_EXPIRATION = "lite.topic.expiration"
PRIORITY_FACTOR = "priority.factor"
_INT64_MAX = (1 << 63) - 1
_NUMBER_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Attribute:
    """Allowed values of an attribute: one of ``values``, an integer in the range ``numbers``, or any text."""

    values: tuple[str, ...] = ()
    """Allowed values. The first one is the default."""
    numbers: tuple[int, int] | None = None
    later: frozenset[str] = frozenset()
    """Values that this version does not support yet."""
    changeable: bool = True
    hint: str = ""
    """Text for the error message, with another way to change the attribute."""
    without_effect: frozenset[str] | None = frozenset()
    """Values that are stored and have no effect; None means all values."""

    def check(self, key: str, value: str) -> None:
        """Raise :class:`MessageError` for a value that is not allowed."""
        if self.values and value not in self.values:
            raise MessageError(f"value is not in set: [{', '.join(self.values)}] ({key}={value})")
        if value in self.later:
            raise MessageError(f"{key}={value} is not supported by this version")
        if self.numbers is not None:
            low, high = self.numbers
            number = _whole_number(value)
            if number is None or not low <= number <= high:
                raise MessageError(f"value is not in range({low}, {high}) ({key}={value})")

    def has_effect(self, value: str) -> bool:
        """Return whether ``value`` has an effect in this version."""
        return self.without_effect is not None and value not in self.without_effect | self.later


def _whole_number(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if len(text) > _NUMBER_DIGITS or not (digits.isascii() and digits.isdecimal()):
        return None
    return int(text)


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: Attribute((SIMPLE_CQ, BATCH_CQ), changeable=False, hint="; raptormq convert-queue converts the queues"),
    CLEANUP_POLICY: Attribute(("DELETE", "COMPACTION"), later=frozenset({"COMPACTION"}), changeable=False),
    MESSAGE_TYPE: Attribute(
        ("NORMAL", "UNSPECIFIED", "FIFO", "DELAY", "TRANSACTION", PRIORITY, LITE, MIXED),
        without_effect=frozenset({LITE}),
    ),
    RESERVE_TIME: Attribute(numbers=(-1, _INT64_MAX), without_effect=None),
    LITE_EXPIRATION: Attribute(numbers=(-1, 30 * 24 * 60), without_effect=None),
}

_FLAG = ("false", "true")
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    PRIORITY_FACTOR: Attribute(numbers=(0, 100)),
    "lite.bind.topic": Attribute(without_effect=None),
    "lite.sub.model": Attribute(("Shared", "Exclusive"), without_effect=None),
    "lite.sub.reset.offset.exclusive": Attribute(_FLAG, without_effect=None),
    "lite.sub.reset.offset.unsubscribe": Attribute(_FLAG, without_effect=None),
    "lite.sub.client.quota": Attribute(numbers=(-1, _INT64_MAX), without_effect=None),
    "lite.sub.client.max.event.cnt": Attribute(numbers=(10, _INT64_MAX), without_effect=None),
    "lite.sub.wildcard": Attribute(without_effect=None),
}


def change_attributes(
    kind: str,
    allowed: Mapping[str, Attribute],
    changes: Mapping[str, str],
    removed: frozenset[str],
    current: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the attributes of a topic or group after a request.

    Args:
        kind: ``topic`` or ``group``, for error messages.
        allowed: all attributes of this kind.
        changes: attributes to set.
        removed: attributes to remove.
        current: attributes before the request, None for a new topic or group.

    Raises:
        MessageError: a key or value is unknown or not supported yet, or the attribute is fixed.
    """
    attributes = dict(current or {})
    for key in changes.keys() | removed:
        attribute = allowed.get(key)
        if attribute is None:
            raise MessageError(f"unsupported key: {key}; a {kind} may have {', '.join(sorted(allowed))}")
        if key in changes and key in removed:
            raise MessageError(f"{kind} attribute {key} is both set and removed")
        if key in removed and current is None:
            raise MessageError(f"{kind} attribute {key} cannot be removed from a {kind} that does not exist")
        if key in changes:
            attribute.check(key, changes[key])
        if (
            current is not None
            and not attribute.changeable
            and changes.get(key) != current.get(key, attribute.values[0])
        ):
            raise MessageError(f"{kind} attribute {key} cannot be changed after creation{attribute.hint}")
        attributes.pop(key, None)
    return attributes | dict(changes)


class EffectNotices:
    """Logs each attribute without effect once."""

    def __init__(self, kind: str, known: Mapping[str, Attribute]) -> None:
        self._kind = kind
        self._known = known
        self._logged: set[tuple[str, str]] = set()

    def log_new(self, name: str, attributes: Mapping[str, str]) -> None:
        """Log the attributes of ``name`` that have no effect and are not logged yet."""
        for key, value in attributes.items():
            attribute = self._known.get(key)
            if attribute is not None and attribute.has_effect(value):
                continue
            notice = key, value if attribute is not None and attribute.without_effect is not None else ""
            if notice not in self._logged:
                self._logged.add(notice)
                logger.warning(
                    "%s %s has the attribute %s=%s, which has no effect in this version",
                    *(self._kind, name, key, value),
                )
