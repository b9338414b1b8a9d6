"""Topic attributes: the ``+key=value,-key`` text of a topic request, checked and applied (``TopicAttributes``,
``AttributeUtil``).

==================  ==========================================  ====================================================
key                 values                                      here
==================  ==========================================  ====================================================
``queue.type``      SimpleCQ (default), BatchCQ                 changed by the converter alone (31001)
``cleanup.policy``  DELETE (default), COMPACTION                fixed at creation; COMPACTION comes in a later version
``message.type``    NORMAL (default), FIFO, DELAY, TRANSACTION  kept and reported; the broker judges no message by it
==================  ==========================================  ====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raptormq.errors import MessageError
from raptormq.protocol.bodies.topic_config import parse_attributes
from raptormq.protocol.topic_attributes import BATCH_CQ, MESSAGE_TYPE, QUEUE_TYPE, SIMPLE_CQ

CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class _Attribute:
    values: tuple[str, ...]
    """What it may be; the first is what a topic without it has."""
    later: frozenset[str] = frozenset()
    changeable: bool = False
    hint: str = ""
    """How it is changed otherwise."""


_ATTRIBUTES = {
    QUEUE_TYPE: _Attribute((SIMPLE_CQ, BATCH_CQ), hint="; raptormq convert-queue converts the queues"),
    CLEANUP_POLICY: _Attribute(("DELETE", "COMPACTION"), later=frozenset({"COMPACTION"})),
    MESSAGE_TYPE: _Attribute(
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
        later=frozenset({"MIXED"}),
        changeable=True,
    ),
}


def apply_attributes(text: str | None, current: Mapping[str, str] | None) -> dict[str, str]:
    """Return the attributes of a topic after a request: ``current`` (None for a new topic) changed as ``text`` says.

    No text leaves everything as it is.

    Raises:
        MessageError: the text is malformed, a key or value is unknown or comes later, or it changes what is fixed at
        creation.
    """
    attributes = dict(current or {})
    changes, removed = parse_attributes(text)
    for key in changes.keys() | removed:
        attribute = _ATTRIBUTES.get(key)
        if attribute is None:
            raise MessageError(f"unsupported key: {key}; a topic may have {', '.join(sorted(_ATTRIBUTES))}")
        if key in changes and key in removed:
            raise MessageError(f"topic attribute {key} is both set and removed")
        if key in removed and current is None:
            raise MessageError(f"topic attribute {key} cannot be removed from a topic that does not exist")
        if key in changes:
            _check_value(key, changes[key], attribute)
        if (
            current is not None
            and not attribute.changeable
            and changes.get(key) != current.get(key, attribute.values[0])
        ):
            raise MessageError(f"topic attribute {key} cannot be changed after creation{attribute.hint}")
        attributes.pop(key, None)
    return attributes | changes


def _check_value(key: str, value: str, attribute: _Attribute) -> None:
    if value not in attribute.values:
        raise MessageError(f"value is not in set: [{', '.join(attribute.values)}] ({key}={value})")
    if value in attribute.later:
        raise MessageError(f"{key}={value} is not supported by this version, it comes later")
