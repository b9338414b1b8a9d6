"""Bodies about consumer groups: names (201), members and subscriptions (203), progress (208).

    201  {"subscriptionGroupTable": {"group": {...}}, ...}
    203  {"connectionSet": [{"clientAddr": "10.0.0.7:5000", "clientId": "...", "language": "JAVA", "version": 495}],
          "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
          "subscriptionTable": {"topic": {"subString": "*", ...}}, ...}
    208  {"consumeTps": 0.5, "offsetTable": {{"topic": ..., "brokerName": ..., "queueId": 0}:
          {"brokerOffset": 9, "consumerOffset": 7, "pullOffset": 8, "lastTimestamp": 1700000000000, "minOffset": 2}}}

``minOffset``, the first message that still exists, is sent by RaptorMQ's brokers only.

Source: Apache RocketMQ ``SubscriptionGroupWrapper``, ``ConsumerConnection``, ``ConsumeStats``, ``OffsetWrapper``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import BROADCASTING, Subscription
from raptormq.protocol.bodies.members import list_at, object_at
from raptormq.protocol.bodies.queues import keyed_by_queues, queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps, loads_object
from raptormq.protocol.message import MessageQueue


class GroupLag(NamedTuple):
    """Lag of a group in one or more queues, in messages."""

    waiting: int
    """Messages that exist and are not consumed."""
    lost: int
    """Messages that were deleted before the group consumed them; 0 again once the group continues after them."""

    @classmethod
    def between(cls, consumer_offset: int | None, min_offset: int, max_offset: int) -> GroupLag:
        """Return the lag in a queue with messages from ``min_offset`` to before ``max_offset``.

        ``consumer_offset`` is the next offset to consume, None if the group has not started. A consumer offset beyond
        the end, as after the loss of a queue, has no lag.
        """
        begin = min_offset if consumer_offset is None else consumer_offset
        return cls(max(0, max_offset - max(begin, min_offset)), max(0, min(min_offset, max_offset) - begin))

    def plus(self, other: GroupLag) -> GroupLag:
        """Return the sum of both."""
        return GroupLag(self.waiting + other.waiting, self.lost + other.lost)


NO_LAG = GroupLag(0, 0)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """Progress of a group in a queue; offsets count messages."""

    broker_offset: int
    """Offset of the next message to be stored in the queue."""
    consumer_offset: int
    """Offset of the first message that the group has not consumed."""
    pull_offset: int
    """Offset of the first message that no consumer has received."""
    last_timestamp: int
    """Store time of the last consumed message, ms since 1970; 0 if nothing is consumed or the message is deleted."""
    min_offset: int | None = None
    """Offset of the first message that still exists; None if the broker has not sent it."""

    @property
    def lag(self) -> int:
        """Messages that exist and that the group has not consumed."""
        return self._lag.waiting

    @property
    def lost(self) -> int:
        """Messages that were deleted before the group consumed them; 0 again once the group continues after them."""
        return self._lag.lost

    @property
    def in_flight(self) -> int:
        """Messages that exist, were received by a consumer, and are not consumed."""
        return self._between(self.pull_offset).waiting

    @property
    def _lag(self) -> GroupLag:
        return self._between(self.broker_offset)

    def _between(self, end: int) -> GroupLag:
        return GroupLag.between(self.consumer_offset, self.min_offset or 0, end)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client that is connected to a broker; ``address`` is its end of the connection."""

    client_id: str
    address: str
    language: str
    version: int
    """Number of the RocketMQ release that the client declares (``MQVersion``)."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "clientAddr": self.address,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }


@dataclass(slots=True)
class GroupConnections:
    """The members of a group at a broker, and their subscriptions. The strings are RocketMQ's enum names."""

    members: list[GroupMember] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member consumes all messages and keeps its own progress."""
        return self.message_model == BROADCASTING

    def to_json(self) -> bytes:
        """Return the body of GET_CONSUMER_CONNECTION_LIST (203)."""
        return dumps(
            {
                "connectionSet": [member.to_dict() for member in self.members],
                "consumeFromWhere": self.consume_from_where,
                "consumeType": self.consume_type,
                "messageModel": self.message_model,
                "subscriptionTable": {topic: each.to_dict() for topic, each in self.subscriptions.items()},
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> GroupConnections:
        """Decode the body of GET_CONSUMER_CONNECTION_LIST (203). Raises :class:`BodyError`."""
        value = loads_object(data)
        try:
            members = [
                GroupMember(
                    str(each["clientId"]),
                    str(each.get("clientAddr") or ""),
                    str(each.get("language") or "OTHER"),
                    int(each.get("version") or 0),
                )
                for each in list_at(value, "connectionSet")
            ]
            subscriptions = {
                str(topic): Subscription.from_dict(each)
                for topic, each in object_at(value, "subscriptionTable").items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not the connections of a group: {data!r:.80}") from error
        return cls(
            members,
            subscriptions,
            str(value.get("consumeType") or "CONSUME_PASSIVELY"),
            str(value.get("messageModel") or "CLUSTERING"),
            str(value.get("consumeFromWhere") or "CONSUME_FROM_LAST_OFFSET"),
        )


def decode_group_configs(data: bytes) -> dict[str, Any]:
    """Decode the groups in the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): name to JSON object with the settings,
    as in the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200). Raises :class:`BodyError`.
    """
    return object_at(loads_object(data), "subscriptionGroupTable")


def encode_consume_stats(queues: Iterable[tuple[MessageQueue, QueueProgress]], tps: float) -> bytes:
    """Return the body of GET_CONSUME_STATS (208); ``tps`` is messages consumed per second."""
    table = dump_object_keyed((queue_to_dict(queue), _progress_to_dict(progress)) for queue, progress in queues)
    return b'{"consumeTps":%b,"offsetTable":%b}' % (dumps(tps), table)


def decode_consume_stats(data: bytes) -> dict[MessageQueue, QueueProgress]:
    """Decode the queues in the body of GET_CONSUME_STATS (208). Raises :class:`BodyError`."""
    found: dict[MessageQueue, QueueProgress] = {}
    for queue, value in keyed_by_queues(loads_object(data), "offsetTable"):
        try:
            end, consumed = int(value["brokerOffset"]), int(value["consumerOffset"])
            pulled, stored = int(value.get("pullOffset") or 0), int(value.get("lastTimestamp") or 0)
            begin = None if value.get("minOffset") is None else int(value["minOffset"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not the progress of a queue: {value!r:.80}") from error
        found[queue] = QueueProgress(end, consumed, max(pulled, consumed), stored, begin)
    return found


def _progress_to_dict(progress: QueueProgress) -> dict[str, int]:
    shown = {
        "brokerOffset": progress.broker_offset,
        "consumerOffset": progress.consumer_offset,
        "lastTimestamp": progress.last_timestamp,
        "pullOffset": progress.pull_offset,
    }
    return shown if progress.min_offset is None else shown | {"minOffset": progress.min_offset}
