"""Bodies about consumer groups: names (201), members and subscriptions (203), progress (208).

    201  {"subscriptionGroupTable": {"group": {...}}, ...}
    203  {"connectionSet": [{"clientAddr": "10.0.0.7:5000", "clientId": "...", "language": "JAVA", "version": 495}],
          "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
          "subscriptionTable": {"topic": {"subString": "*", ...}}, ...}
    208  {"consumeTps": 0.5, "offsetTable": {{"topic": ..., "brokerName": ..., "queueId": 0}:
          {"brokerOffset": 9, "consumerOffset": 7, "pullOffset": 8, "lastTimestamp": 1700000000000}}}

Source: Apache RocketMQ ``SubscriptionGroupWrapper``, ``ConsumerConnection``, ``ConsumeStats``, ``OffsetWrapper``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import BROADCASTING, Subscription
from raptormq.protocol.bodies.members import list_at, object_at
from raptormq.protocol.bodies.queues import keyed_by_queues, queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps, loads_object
from raptormq.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in a queue; offsets count messages."""

    broker_offset: int
    """Offset of the message that the queue gets next."""
    consumer_offset: int
    """Offset of the first message that the group has not consumed."""
    pull_offset: int
    """Offset of the first message that no consumer has been given."""
    last_timestamp: int
    """When the last consumed message was stored, ms since 1970; 0 when nothing is consumed, or it is gone."""

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed; 0 for an offset behind the end, as of a queue that was lost."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client that is connected to a broker; ``address`` is its end of that connection."""

    client_id: str
    address: str
    language: str
    version: int
    """Number of RocketMQ's release that the client compares itself to (``MQVersion``)."""

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
    """Who consumes for a group at a broker, and what. The strings are RocketMQ's enum names."""

    members: list[GroupMember] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"

    @property
    def is_broadcasting(self) -> bool:
        """Each member consumes everything and keeps its own progress."""
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
        """Read that body; raises :class:`BodyError`."""
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
    """Read the groups from the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): name -> JSON object with the settings,
    the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200); raises :class:`BodyError`.
    """
    return object_at(loads_object(data), "subscriptionGroupTable")


def encode_consume_stats(queues: Iterable[tuple[MessageQueue, QueueProgress]], tps: float) -> bytes:
    """Return the body of GET_CONSUME_STATS (208); ``tps`` are messages consumed in a second."""
    table = dump_object_keyed((queue_to_dict(queue), _progress_to_dict(progress)) for queue, progress in queues)
    return b'{"consumeTps":%b,"offsetTable":%b}' % (dumps(tps), table)


def decode_consume_stats(data: bytes) -> dict[MessageQueue, QueueProgress]:
    """Read the queues from that body; raises :class:`BodyError`."""
    found: dict[MessageQueue, QueueProgress] = {}
    for queue, value in keyed_by_queues(loads_object(data), "offsetTable"):
        try:
            end, consumed = int(value["brokerOffset"]), int(value["consumerOffset"])
            pulled, stored = int(value.get("pullOffset") or 0), int(value.get("lastTimestamp") or 0)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not the progress of a queue: {value!r:.80}") from error
        found[queue] = QueueProgress(end, consumed, max(pulled, consumed), stored)
    return found


def _progress_to_dict(progress: QueueProgress) -> dict[str, int]:
    return {
        "brokerOffset": progress.broker_offset,
        "consumerOffset": progress.consumer_offset,
        "lastTimestamp": progress.last_timestamp,
        "pullOffset": progress.pull_offset,
    }
