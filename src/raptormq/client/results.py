"""Results of client calls: of sends, of listeners and of changes to topics. Plain values.

Source: RocketMQ `SendResult`, `SendStatus`, `ConsumeConcurrentlyStatus`.
"""

from __future__ import annotations

import enum
import hashlib
from functools import cached_property
from typing import NamedTuple

from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.message import MessageQueue


class SendStatus(enum.Enum):
    """How durable a stored message is; in every case the message was stored."""

    SEND_OK = 0
    """Stored as durably as the broker is configured."""
    FLUSH_DISK_TIMEOUT = 10
    """With SYNC_FLUSH, the disk did not confirm in time."""
    SLAVE_NOT_AVAILABLE = 11
    """With SYNC_MASTER, no slave was available."""
    FLUSH_SLAVE_TIMEOUT = 12
    """With SYNC_MASTER, the slave did not confirm in time."""


class SendResult(NamedTuple):
    """Where a message, or the first of a list, was stored."""

    status: SendStatus
    message_id: str
    """The unique id given by the producer; for a list the ids of all its messages, joined with commas."""
    offset_message_id: str
    """The id given by the broker: address and position; for a list joined with commas."""
    queue: MessageQueue
    queue_offset: int
    """Offset in the queue; for a list that of its first message."""
    recall_handle: str | None = None
    """Handle for `Producer.recall`, of a message with a delivery time that has not passed."""


def stored_as_one(result: SendResult, count: int) -> bool:
    """Whether `count` messages sent as one request were stored as one batch, which has one id. The topic may have been
    converted since.
    """
    return count > 1 and result.offset_message_id.count(",") + 1 != count


class ConsumeResult(enum.Enum):
    """The result of a listener call."""

    SUCCESS = "CONSUME_SUCCESS"
    """All messages of the call are consumed."""
    RECONSUME_LATER = "RECONSUME_LATER"
    """All messages of the call have to be delivered again later."""


class TopicChange(enum.Enum):
    """What `AdminClient.create_topic` has done at a broker."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """The topic had these settings already."""

    @classmethod
    def of(cls, before: TopicConfig | None, after: TopicConfig) -> TopicChange:
        """Return the change from one configuration to the other; `None` is a topic that does not exist."""
        if before is None:
            return cls.CREATED
        return cls.UNCHANGED if before == after else cls.CHANGED


class TopicConfigs:
    """All topics of a broker at one time, as it has answered. Two answers with the same `digest` say the same."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.digest = hashlib.sha256(body).hexdigest()

    @cached_property
    def topics(self) -> dict[str, TopicConfig]:
        """Configurations by name, read when they are first asked for.

        Raises:
            BodyError: the answer is not a table of topics.
        """
        return TopicConfigTable.from_json(self._body).topics
