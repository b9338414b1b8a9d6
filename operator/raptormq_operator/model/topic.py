"""Dataclass for the spec of a Topic.

The schema is crds/topics.yaml. `raptormq_operator.topic_plan` compares these values with the responses of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raptormq.protocol.bodies.topic_config import READ_WRITE, Perm
from raptormq.protocol.topic_attributes import MESSAGE_TYPE, QUEUE_TYPE
from raptormq_operator.model.definitions import needs_current_definition

PERMISSIONS = {"ReadWrite": READ_WRITE, "ReadOnly": int(Perm.READ), "WriteOnly": int(Perm.WRITE)}

DEFAULT_QUEUES = 8
"""Number of queues if the spec sets neither number. Equals the default of `defaultTopicQueueNums`, which applies to
topics that brokers create automatically."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One Topic resource."""

    name: str
    namespace: str
    uid: str
    generation: int
    created: str
    deleting: bool
    cluster: str
    topic_name: str
    read_queues: int
    write_queues: int
    queue_type: str
    message_type: str
    perm: int
    deletion_policy: str

    @classmethod
    @needs_current_definition
    def from_object(cls, body: Mapping[str, Any]) -> Topic:
        """Parse a resource of the API server.

        Raises:
            OldDefinition: A field with a default is missing.
        """
        metadata, spec = body["metadata"], body["spec"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            created=metadata["creationTimestamp"],
            deleting="deletionTimestamp" in metadata,
            cluster=spec["clusterRef"]["name"],
            topic_name=spec.get("name", metadata["name"]),
            read_queues=spec.get("readQueues", spec.get("writeQueues", DEFAULT_QUEUES)),
            write_queues=spec.get("writeQueues", spec.get("readQueues", DEFAULT_QUEUES)),
            queue_type=spec["queueType"],
            message_type=spec["messageType"],
            perm=PERMISSIONS[spec["permissions"]],
            deletion_policy=spec["deletionPolicy"],
        )

    @property
    def attributes(self) -> dict[str, str]:
        """Topic attributes with RocketMQ's names."""
        return {QUEUE_TYPE: self.queue_type, MESSAGE_TYPE: self.message_type}
