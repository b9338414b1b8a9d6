"""The Ready condition of both resources and its closed list of reasons. Pure; the time is passed in.

A reason is for machines and never changes its meaning; the message is for people and names the thing that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raptormq.logs import printable


class Reason(StrEnum):
    """Why Ready is what it is."""

    READY = "Ready"
    NOT_SUPPORTED = "NotSupported"
    """The spec asks for something that this version cannot do; nothing was changed."""
    CONFIG_DENIED = "ConfigDenied"
    """A configuration key belongs to the operator; nothing was changed."""
    NAME_CONFLICT = "NameConflict"
    """An object that someone else made has a name that the operator needs."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refused an object; the message says why."""
    PROGRESSING = "Progressing"
    """Objects are being made or changed."""
    PODS_NOT_READY = "PodsNotReady"
    """All objects are as wanted, pods are not available yet."""
    PODS_FAILING = "PodsFailing"
    """A pod ends again and again or cannot start; the message has its last words."""
    NAME_SERVER_UNREACHABLE = "NameServerUnreachable"
    """A name server did not answer."""
    NOT_REGISTERED = "NotRegistered"
    """A name server answered and does not list every broker."""
    BROKER_UNREACHABLE = "BrokerUnreachable"
    """A broker did not answer."""
    BROKER_REFUSED = "BrokerRefused"
    """A broker answered with an error code."""
    TOPIC_DIFFERS = "TopicDiffers"
    """A broker answered with other values than those wanted, also after it was asked to change them."""
    QUEUE_TYPE_DIFFERS = "QueueTypeDiffers"
    """A broker has the topic with queues of the other type, which only `raptormq convert-queue` changes."""
    TOPIC_CONFLICT = "TopicConflict"
    """An older Topic resource has the same cluster and topic name."""
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    """There is no BrokerCluster of that name in the namespace."""
    CLUSTER_NOT_READY = "ClusterNotReady"
    """A broker was not reached, and its BrokerCluster is not ready either."""
    DELETING = "Deleting"
    """The topic is being deleted from the brokers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a resource is ready, and why."""

    reason: Reason
    message: str

    @property
    def ready(self) -> bool:
        return self.reason is Reason.READY


def ready_condition(
    verdict: Verdict, generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """The Ready condition. `lastTransitionTime` moves to `now` (RFC 3339) only when the status itself changes."""
    status = "True" if verdict.ready else "False"
    before = next((condition for condition in previous if condition["type"] == "Ready"), None)
    unchanged = before is not None and before["status"] == status
    return {
        "type": "Ready",
        "status": status,
        "reason": str(verdict.reason),
        "message": printable(verdict.message),  # it may hold what a broker has answered
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and unchanged else now,
    }
