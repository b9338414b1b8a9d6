"""Heartbeats of clients and lists of a group's members (Apache RocketMQ ``HeartbeatData``, ``SubscriptionData``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import flag_at, list_at, text_at
from raptormq.protocol.bodies.steps import Steps, run_steps
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object, loads_request
from raptormq.protocol.tags import parse_expression, tag_hash

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
"""Message models: each message goes to one member of a group, or to every member."""
CONSUME_PASSIVELY, CONSUME_POP = "CONSUME_PASSIVELY", "CONSUME_POP"
"""Consume types: the members of a group read their queues, or pop messages of any queue."""


@dataclass(slots=True)
class Subscription:
    """Subscription of a group to a topic. ``code_set`` contains the hashes of ``tags``; both are empty for all tags."""

    topic: str
    expression: str = "*"
    tags: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False

    @classmethod
    def parse(cls, topic: str, expression: str, version: int) -> Subscription:
        """Build a tag subscription from ``"A || B"``. Raises :class:`raptormq.errors.MessageError`."""
        tags = parse_expression(expression)
        return cls(topic, expression, tags, frozenset(map(tag_hash, tags)), version)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": sorted(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def from_dict(cls, value: Any) -> Subscription:
        """Decode the JSON object. Raises :class:`BodyError`."""
        try:
            kind = text_at(value, "expressionType", "TAG")
            nothing = "*" if kind == "TAG" or value.get("subString") is None else ""
            return cls(
                text_at(value, "topic"),
                text_at(value, "subString", nothing),
                frozenset(str(tag) for tag in list_at(value, "tagsSet")),
                frozenset(int(code) for code in list_at(value, "codeSet")),
                int(value.get("subVersion") or 0),
                kind,
                flag_at(value, "classFilterMode"),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a subscription: {value!r:.80}") from error


@dataclass(slots=True)
class ConsumerData:
    """One consumer group of a client. The strings are RocketMQ's enum names."""

    group: str
    consume_type: str = CONSUME_PASSIVELY
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: list[Subscription] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "consumeFromWhere": self.consume_from_where,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": self.message_model,
            "subscriptionDataSet": [subscription.to_dict() for subscription in self.subscriptions],
            "unitMode": False,
        }

    @classmethod
    def from_dict(cls, value: Any) -> ConsumerData:
        """Decode the JSON object. Raises :class:`BodyError`."""
        return run_steps(cls.read_steps(value))

    @classmethod
    def read_steps(cls, value: Any) -> Steps[ConsumerData]:
        """Decode the JSON object, one subscription per step."""
        try:
            read = cls(
                text_at(value, "groupName"),
                text_at(value, "consumeType", CONSUME_PASSIVELY),
                text_at(value, "messageModel", "CLUSTERING"),
                text_at(value, "consumeFromWhere", "CONSUME_FROM_LAST_OFFSET"),
            )
            for item in list_at(value, "subscriptionDataSet"):
                read.subscriptions.append(Subscription.from_dict(item))
                yield
        except AttributeError as error:
            raise BodyError(f"not consumer data: {value!r:.80}") from error
        return read


@dataclass(slots=True)
class HeartbeatData:
    """Identity and groups of a client: body of HEART_BEAT (34)."""

    client_id: str
    producer_groups: list[str] = field(default_factory=list)
    consumers: list[ConsumerData] = field(default_factory=list)
    fingerprint: int = 0
    without_sub: bool = False

    def to_json(self) -> bytes:
        """Return the body."""
        return dumps(
            {
                "clientID": self.client_id,
                "consumerDataSet": [consumer.to_dict() for consumer in self.consumers],
                "heartbeatFingerprint": self.fingerprint,
                "producerDataSet": [{"groupName": group} for group in self.producer_groups],
                "withoutSub": self.without_sub,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> HeartbeatData:
        """Decode the body. Raises :class:`BodyError`."""
        return run_steps(cls.read_steps(data))

    @classmethod
    def read_steps(cls, data: bytes) -> Steps[HeartbeatData]:
        """Decode the body, one group or subscription per step."""
        value = loads_request(data)
        try:
            read = cls(
                text_at(value, "clientID"),
                fingerprint=int(value.get("heartbeatFingerprint") or 0),
                without_sub=flag_at(value, "withoutSub"),
            )
            for producer in list_at(value, "producerDataSet"):
                read.producer_groups.append(text_at(producer, "groupName"))
                yield
            for consumer in list_at(value, "consumerDataSet"):
                read.consumers.append((yield from ConsumerData.read_steps(consumer)))
                yield
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a heartbeat: {data!r:.80}") from error
        return read


def encode_consumer_ids(client_ids: list[str]) -> bytes:
    """Return the body of GET_CONSUMER_LIST_BY_GROUP (38)."""
    return dumps({"consumerIdList": client_ids})


def decode_consumer_ids(data: bytes) -> list[str]:
    """Decode the body of GET_CONSUMER_LIST_BY_GROUP (38). Raises :class:`BodyError`."""
    return [str(client_id) for client_id in list_at(loads_object(data), "consumerIdList")]
