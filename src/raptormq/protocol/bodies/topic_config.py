"""Topic configuration and the table of all topics (Apache RocketMQ ``TopicConfig``, ``TopicConfigSerializeWrapper``,
``DataVersion``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import flag_at, object_at, text_at
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_ids import TOPIC_ID


class Perm(IntFlag):
    """Permission bits. INHERIT marks a template for auto-creation."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


class TopicFlag(IntFlag):
    """System flags of a topic: whether it, or its subscribers, belong to one unit of a deployment with
    several units.
    """

    UNIT = 1
    UNIT_SUBSCRIBED = 2


READ_WRITE = int(Perm.READ | Perm.WRITE)


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Version of a table. Name servers and slaves copy the table if it differs. ``timestamp`` is in ms."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> DataVersion:
        """Return the version after a change at ``now_ms``."""
        return replace(self, timestamp=now_ms, counter=self.counter + 1)

    def to_dict(self) -> dict[str, int]:
        """Return the JSON object."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def from_dict(cls, value: Any) -> DataVersion:
        """Decode the JSON object; absent fields are 0.

        Raises:
            BodyError: not an object of integers.
        """
        fields = value or {}
        try:
            return cls(*(int(fields.get(name) or 0) for name in ("stateVersion", "timestamp", "counter")))
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a data version: {value!r:.60}") from error


@dataclass(slots=True)
class TopicConfig:
    """Configuration of a topic on a broker. ``attributes`` contains attributes such as ``queue.type``, without the
    leading "+". For ``topic_id``, which is not an attribute, see :mod:`~raptormq.protocol.topic_ids`.
    """

    topic_name: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    topic_id: str = field(default="", compare=False)
    """Empty if the topic has no id."""

    @property
    def is_batch(self) -> bool:
        """Whether the queues of the topic are of type BatchCQ."""
        return self.attributes.get(QUEUE_TYPE) == BATCH_CQ

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object in RocketMQ's form, without the id."""
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": int(self.perm),
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": self.topic_filter_type,
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    def to_stored(self) -> dict[str, Any]:
        """Return the JSON object for ``topics.json``."""
        stored = self.to_dict()
        if self.topic_id:
            stored["attributes"] = self.attributes | {TOPIC_ID: self.topic_id}
        return stored

    @classmethod
    def from_dict(cls, value: Any) -> TopicConfig:
        """Decode the JSON object in any of its forms; absent fields have RocketMQ's defaults.

        Raises:
            BodyError: a field is missing or of the wrong type.
        """
        try:
            attributes = {key: str(text) for key, text in object_at(value, "attributes").items()}
            stored_id = attributes.pop(TOPIC_ID, "")
            return cls(
                text_at(value, "topicName"),
                int(value.get("readQueueNums", 16)),
                int(value.get("writeQueueNums", 16)),
                int(value.get("perm", READ_WRITE)),
                text_at(value, "topicFilterType", "SINGLE_TAG"),
                int(value.get("topicSysFlag", 0)),
                flag_at(value, "order"),
                attributes,
                text_at(value, "topicId", stored_id),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BodyError(f"not a topic configuration: {value!r:.80}") from error

    def to_json(self) -> bytes:
        """Return the body of GET_TOPIC_CONFIG (351)."""
        return dumps(self.to_dict() | ({"topicId": self.topic_id} if self.topic_id else {}))

    @classmethod
    def from_json(cls, data: bytes) -> TopicConfig:
        """Decode the body of GET_TOPIC_CONFIG (351)."""
        return cls.from_dict(loads_object(data))


@dataclass(slots=True)
class TopicConfigTable:
    """All topics of a broker with the version of the table; also the contents of ``topics.json``."""

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "dataVersion": self.data_version.to_dict(),
            "topicConfigTable": {name: topic.to_dict() for name, topic in self.topics.items()},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TopicConfigTable:
        """Decode the JSON object.

        Raises:
            BodyError: not a table of topics.
        """
        table = object_at(value, "topicConfigTable")
        topics = {name: TopicConfig.from_dict(topic) for name, topic in table.items()}
        return cls(topics, DataVersion.from_dict(value.get("dataVersion")))

    def to_json(self) -> bytes:
        """Return the body of GET_ALL_TOPIC_CONFIG (21)."""
        return dumps(self.to_dict())

    def to_json_with_ids(self) -> bytes:
        """Return the body of GET_ALL_TOPIC_CONFIG (21) for a slave: with the topics as ``topics.json`` has them."""
        topics = {name: topic.to_stored() for name, topic in self.topics.items()}
        return dumps({"dataVersion": self.data_version.to_dict(), "topicConfigTable": topics})

    @classmethod
    def from_json(cls, data: bytes) -> TopicConfigTable:
        """Decode the body of GET_ALL_TOPIC_CONFIG (21)."""
        return cls.from_dict(loads_object(data))


def parse_attributes(text: str | None) -> tuple[dict[str, str], frozenset[str]]:
    """Split ``"+queue.type=BatchCQ,-reserve.time"`` into attributes to set and to remove.

    Raises:
        BodyError: an entry without sign, key or value.
    """
    set_, removed = {}, set()
    for entry in filter(None, (part.strip() for part in (text or "").split(","))):
        key, separator, value = entry[1:].partition("=")
        if entry[0] == "+" and key and value:
            set_[key] = value
        elif entry[0] == "-" and key and not separator:
            removed.add(key)
        else:
            raise BodyError(f"the attribute {entry!r} is neither +key=value nor -key")
    return set_, frozenset(removed)


def format_attributes(attributes: dict[str, str]) -> str:
    """Return the text form that sets ``attributes``."""
    return ",".join(f"+{key}={value}" for key, value in attributes.items())
