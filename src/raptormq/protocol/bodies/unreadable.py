"""Messages in queues that consumers do not read, because the topic has fewer read queues: in the response to
GET_ALL_TOPIC_CONFIG (21), if the request has `withUnreadable`. Specific to RaptorMQ; other brokers omit it::

    {"dataVersion": {…}, "topicConfigTable": {…}, "unreadable": {"orders": {"messages": 100, "readQueues": 4}}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import object_at

UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Messages of one topic on one broker."""

    messages: int
    read_queues: int
    """Number of read queues with which all of them can be read."""


def unreadable_to_dict(found: Mapping[str, Unreadable]) -> dict[str, Any]:
    """Return the object that is added to the body, from the messages by topic."""
    return {
        UNREADABLE: {
            topic: {"messages": each.messages, "readQueues": each.read_queues} for topic, each in found.items()
        }
    }


def unreadable_from_dict(value: Mapping[str, Any]) -> dict[str, Unreadable]:
    """Return the messages by topic; an empty table if the body does not have them.

    Raises:
        BodyError: the table is invalid.
    """
    if UNREADABLE not in value:
        return {}
    try:
        return {
            topic: Unreadable(int(each["messages"]), int(each["readQueues"]))
            for topic, each in object_at(value, UNREADABLE).items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BodyError(f"not a table of unreadable messages: {value[UNREADABLE]!r:.80}") from error
