"""Results of sends, transactions, listeners and topic changes.

Source: RocketMQ `SendResult`, `SendStatus`, `ConsumeConcurrentlyStatus`.
"""

from __future__ import annotations

import enum
import hashlib
from functools import cached_property
from typing import Any, NamedTuple

from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.bodies.unreadable import Unreadable, unreadable_from_dict
from raptormq.protocol.headers.send import DEFAULT_REGION
from raptormq.protocol.headers.transaction import COMMIT, NOT_DECIDED, ROLLBACK
from raptormq.protocol.message import MessageQueue


class SendStatus(enum.Enum):
    """Durability of a stored message. The message is stored in all cases."""

    SEND_OK = 0
    """Stored as durably as the broker is configured."""
    FLUSH_DISK_TIMEOUT = 10
    """With SYNC_FLUSH: the flush did not complete in time."""
    SLAVE_NOT_AVAILABLE = 11
    """With SYNC_MASTER: no slave was available."""
    FLUSH_SLAVE_TIMEOUT = 12
    """With SYNC_MASTER: no slave acknowledged in time."""


class SendResult(NamedTuple):
    """Position of a stored message, or of the first message of a list."""

    status: SendStatus
    message_id: str
    """The unique id given by the producer; for a list the ids of all its messages, joined with commas."""
    offset_message_id: str
    """The id assigned by the broker (address and position); for a list, the ids joined with commas."""
    queue: MessageQueue
    queue_offset: int
    """Offset in the queue; for a list, the offset of its first message."""
    recall_handle: str | None = None
    """Handle for `Producer.recall` of a message with a future delivery time."""
    region_id: str = DEFAULT_REGION
    """Region of the broker (its setting `regionId`)."""
    trace_on: bool = True
    """Whether the broker permits traces of its messages (its setting `traceOn`)."""


def stored_as_one(result: SendResult, count: int) -> bool:
    """Return whether a request with `count` messages was stored as one batch, which has a single id."""
    return count > 1 and result.offset_message_id.count(",") + 1 != count


class TransactionState(enum.Enum):
    """Result of a local transaction."""

    COMMIT = COMMIT
    """The message is delivered."""
    ROLLBACK = ROLLBACK
    """The message is discarded."""
    UNKNOWN = NOT_DECIDED
    """The broker repeats the check later."""


class ConsumeResult(enum.Enum):
    """The result of a listener call."""

    SUCCESS = "CONSUME_SUCCESS"
    """All messages of the call are consumed."""
    RECONSUME_LATER = "RECONSUME_LATER"
    """All messages of the call must be redelivered."""


class TopicChange(enum.Enum):
    """Effect of `AdminClient.create_topic` or `create_group` on a broker."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """The topic or group already had these settings."""

    @classmethod
    def of(cls, before: object | None, after: object) -> TopicChange:
        """Return the change between two configurations. None means that the topic or group does not exist."""
        if before is None:
            return cls.CREATED
        return cls.UNCHANGED if before == after else cls.CHANGED


class TopicConfigs:
    """Snapshot of all topics of a broker. Snapshots with the same `digest` are equal."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.digest = hashlib.sha256(body).hexdigest()

    @cached_property
    def topics(self) -> dict[str, TopicConfig]:
        """Configurations by topic name, parsed on first access.

        Raises:
            BodyError: the response is not a table of topics.
        """
        return TopicConfigTable.from_dict(self._value).topics

    @cached_property
    def unreadable(self) -> dict[str, Unreadable]:
        """Messages in queues that consumers do not read, by topic name. Empty if they were not requested, or the broker
        does not report them.

        Raises:
            BodyError: the response has another table.
        """
        return unreadable_from_dict(self._value)

    @cached_property
    def _value(self) -> dict[str, Any]:
        return loads_object(self._body)
