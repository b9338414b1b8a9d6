"""The conditions of both resources and their closed lists of types and reasons. Pure; the time is passed in.

A reason is for machines and never changes its meaning; the message is for people and names the thing that is missing.
Beside Ready there are conditions for what needs attention although clients can work. They have status True while it is
so, and are not there otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raptormq.logs import printable

MAX_MESSAGE = 32_768
"""The API's own limit for the message of a condition (metav1.Condition)."""


class Reason(StrEnum):
    """Why Ready is what it is."""

    READY = "Ready"
    NOT_SUPPORTED = "NotSupported"
    """The spec asks for something that this version cannot do; nothing was changed."""
    CONFIG_DENIED = "ConfigDenied"
    """A configuration key belongs to the operator; nothing was changed."""
    SECRET_NOT_USABLE = "SecretNotUsable"
    """A Secret of access control cannot be read, made or used; nothing was changed."""
    NAME_CONFLICT = "NameConflict"
    """An object that someone else made has a name that the operator needs."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refused an object; the message says why."""
    OBJECT_DIFFERS = "ObjectDiffers"
    """A field differs again after it was applied: something else sets it, too."""
    PROGRESSING = "Progressing"
    """Objects are being made or changed, or brokers wait for their turn."""
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
    """A broker answered with an error code, or a server does not take the operator's signature."""
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


class Concern(StrEnum):
    """Type of a condition beside Ready; its reason is the same word."""

    MESSAGES_LOST = "MessagesLost"
    """The store of a broker is another one than before, or ends earlier."""
    CLAIM_DIFFERS = "ClaimDiffers"
    """A volume claim that was there before has another size or class than the spec's."""
    SECRET_MISSING = "SecretMissing"
    """A Secret that the spec names is not there."""
    CERTIFICATE_EXPIRES = "CertificateExpires"
    """A certificate ends soon, or has ended."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a resource is ready, and why."""

    reason: Reason
    message: str
    blocked: bool = False
    """It waits for what does not come by itself, such as a StorageClass, a quota or a node."""

    @property
    def ready(self) -> bool:
        return self.reason is Reason.READY


def ready_condition(
    verdict: Verdict, generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """The Ready condition."""
    return _condition("Ready", verdict.ready, verdict.reason, verdict.message, generation, previous, now)


def concern_conditions(
    concerns: Mapping[Concern, str], generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """The conditions beside Ready, in the order of their types. Values are messages."""
    return [
        _condition(concern, True, concern, concerns[concern], generation, previous, now) for concern in sorted(concerns)
    ]


def _condition(
    what: str, holds: bool, reason: str, message: str, generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """`lastTransitionTime` moves to `now` (RFC 3339) only when the status itself changes."""
    status = "True" if holds else "False"
    before = next((condition for condition in previous if condition["type"] == what), None)
    unchanged = before is not None and before["status"] == status
    return {
        "type": str(what),
        "status": status,
        "reason": str(reason),
        "message": printable(message)[:MAX_MESSAGE],  # it may hold what a broker has answered
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and unchanged else now,
    }
