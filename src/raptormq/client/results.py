"""What client calls return: results of sends, of listeners and of changes to topics. Plain values.

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
    """How safely a message that the broker has taken is kept; in every case it is stored."""

    SEND_OK = 0
    """Stored as safely as the broker is configured for."""
    FLUSH_DISK_TIMEOUT = 10
    """Under SYNC_FLUSH the disk did not confirm in time."""
    SLAVE_NOT_AVAILABLE = 11
    """Under SYNC_MASTER no slave was there."""
    FLUSH_SLAVE_TIMEOUT = 12
    """Under SYNC_MASTER the slave did not confirm in time."""


class SendResult(NamedTuple):
    """Where a message, or the first of a list, was stored."""

    status: SendStatus
    message_id: str
    """The unique id given by the producer; for a list the ids of all its messages joined with commas."""
    offset_message_id: str
    """The id given by the broker: address and position; for a list joined with commas."""
    queue: MessageQueue
    queue_offset: int
    """Offset in the queue; for a list that of its first message."""
    recall_handle: str | None = None
    """What `Producer.recall` wants, of a message with a delivery time that has not passed."""


def stored_as_one(result: SendResult, count: int) -> bool:
    """Whether so many messages that left together were stored as one batch, which has one id. What is known of the
    topic may have changed since the answer came.
    """
    return count > 1 and result.offset_message_id.count(",") + 1 != count


class ConsumeResult(enum.Enum):
    """A listener's answer."""

    SUCCESS = "CONSUME_SUCCESS"
    """All messages of the call are done."""
    RECONSUME_LATER = "RECONSUME_LATER"
    """All messages of the call are to be delivered again later."""


class TopicChange(enum.Enum):
    """What `AdminClient.create_topic` has done on a broker."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """The topic was like that already."""

    @classmethod
    def of(cls, before: TopicConfig | None, after: TopicConfig) -> TopicChange:
        """Return what leads from one configuration to the other; `None` is a topic that does not exist."""
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
