"""Conditions of the three resources, with their closed lists of types and reasons. Pure; the time is passed in.

Programs may rely on reasons; messages are for people. The conditions beside Ready report problems that need attention
although clients are served. They are present, with status True, only while the problem exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from raptormq.logs import printable

MAX_MESSAGE = 32_768
"""Maximum length of a condition's message (metav1.Condition)."""


class Reason(StrEnum):
    """Reason of the Ready condition."""

    READY = "Ready"
    NOT_SUPPORTED = "NotSupported"
    """The spec requests a feature that this version does not support; nothing was changed."""
    CONFIG_DENIED = "ConfigDenied"
    """A configuration key is reserved for the operator; nothing was changed."""
    INVALID_SPEC = "InvalidSpec"
    """A field of a pipeline has a value that only the operator can check; nothing was changed."""
    SECRET_NOT_USABLE = "SecretNotUsable"
    """A Secret of access control cannot be read, created or used; nothing was changed."""
    CLAIM_CONFLICT = "ClaimConflict"
    """Volume claims of earlier clusters would be used whose messages may be lost; nothing was changed."""
    NAME_CONFLICT = "NameConflict"
    """An object of another owner has a name that the operator needs."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server rejected an object; the message has its error."""
    OBJECT_DIFFERS = "ObjectDiffers"
    """A field changed back after it was applied: another controller sets it."""
    PROGRESSING = "Progressing"
    """Objects are being created or updated, or brokers wait for their rolling update."""
    PODS_NOT_READY = "PodsNotReady"
    """All objects match the spec; pods are not available yet."""
    PODS_FAILING = "PodsFailing"
    """A pod is in a crash loop or cannot start; the message has its last log line or Kubernetes' error."""
    NAME_SERVER_UNREACHABLE = "NameServerUnreachable"
    """A name server did not respond."""
    NOT_REGISTERED = "NotRegistered"
    """A name server responds but does not list every broker."""
    BROKER_UNREACHABLE = "BrokerUnreachable"
    """A broker did not respond."""
    NO_LEADER = "NoLeader"
    """No member leads a Dledger group. Its messages can be read, but it accepts none."""
    STORES_DIVERGE = "StoresDiverge"
    """The store of a member of a Dledger group has messages that the group does not have. The member does not follow.
    """
    NO_MASTER = "NoMaster"
    """The master of a group does not respond. The messages of its slaves can be read, but the group accepts none."""
    NO_SLAVE = "NoSlave"
    """No slave follows a master with `acknowledge: SYNC`, so sends get SLAVE_NOT_AVAILABLE."""
    SLAVE_BEHIND = "SlaveBehind"
    """A slave does not follow its master; the message has its reason."""
    BROKER_REFUSED = "BrokerRefused"
    """A broker returned an error code, or a server rejected the operator's signature."""
    TOPIC_DIFFERS = "TopicDiffers"
    """A broker still reports other values after the operator requested a change."""
    QUEUE_TYPE_DIFFERS = "QueueTypeDiffers"
    """The topic's queues on a broker have the other type; only `raptormq convert-queue` changes the type."""
    TOPIC_CONFLICT = "TopicConflict"
    """An older Topic resource has the same cluster and topic name and takes precedence."""
    CLUSTER_NOT_FOUND = "ClusterNotFound"
    """There is no BrokerCluster of that name in the namespace."""
    CLUSTER_NOT_READY = "ClusterNotReady"
    """A broker is unreachable, and its BrokerCluster is not ready."""
    OPERATOR_REMOVED = "OperatorRemoved"
    """The operator was uninstalled, so that the status is not updated any more. The condition is Unknown."""
    DELETING = "Deleting"
    """The topic is being deleted from the brokers."""
    TOPIC_NOT_FOUND = "TopicNotFound"
    """A topic that a pipeline reads does not exist; its driver was not started."""
    APPLICATION_NOT_FOUND = "ApplicationNotFound"
    """The ConfigMap with the application of a pipeline, or its key, does not exist."""
    REFERENCE_NOT_FOUND = "ReferenceNotFound"
    """An object in `env`, `volumes` or `serviceAccountName` of a pipeline does not exist, or lacks a key."""
    APPLICATION_FAILED = "ApplicationFailed"
    """The driver of a pipeline ended with an error; the message has the error and the time of the next start."""
    QUERY_FAILED = "QueryFailed"
    """A streaming query of a pipeline failed, ended silently or stalled, so its driver ended; the message has the
    details.
    """
    COMPLETED = "Completed"
    """The application of a pipeline ended without an error and is not started again."""
    SUSPENDED = "Suspended"
    """A pipeline has `suspend: true`, so it has no driver."""
    CHECKPOINT_CONFLICT = "CheckpointConflict"
    """Another pipeline has the same folder on the same claim; the driver was not started."""
    CHECKPOINT_NOT_SHARED = "CheckpointNotShared"
    """A pipeline with state uses a claim that not all of its pods can mount; the driver was not started."""
    CHECKPOINT_PENDING = "CheckpointPending"
    """The claim of the checkpoint does not exist or is not bound."""


class Concern(StrEnum):
    """Type of a condition beside Ready. The reason of the condition equals its type."""

    MESSAGES_LOST = "MessagesLost"
    """The store of a broker was replaced, or its commit log ends earlier than before."""
    MESSAGES_UNREADABLE = "MessagesUnreadable"
    """Messages of a topic are in queues that consumers do not read, because `readQueues` is too low."""
    CLAIM_DIFFERS = "ClaimDiffers"
    """An existing volume claim has another size or storage class than the spec."""
    CLAIM_TERMINATING = "ClaimTerminating"
    """A volume claim is being deleted; its volume is released when its pod terminates."""
    SECRET_MISSING = "SecretMissing"
    """A Secret named in the spec does not exist."""
    MEMBERS_CHANGING = "MembersChanging"
    """Members join or leave Dledger groups, since `replicas` has changed."""
    SECURITY_CHANGING = "SecurityChanging"
    """Access control or TLS changes, and brokers accept their peers with and without signature and TLS."""
    PROMOTION_REFUSED = "PromotionRefused"
    """`replication.promote` is refused, or must wait."""
    PROMOTING = "Promoting"
    """A slave is being promoted to the master of its group; the message names the messages that may be lost."""
    PROMOTED = "Promoted"
    """A slave was promoted to the master of its group. The condition is kept as long as `replication.promote`."""
    CERTIFICATE_EXPIRES = "CertificateExpires"
    """A certificate expires soon or has expired."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a resource is ready, and why."""

    reason: Reason
    message: str
    blocked: bool = False
    """Progress needs intervention, such as a missing StorageClass, a quota or a lack of nodes."""

    @property
    def ready(self) -> bool:
        return self.reason is Reason.READY


def ready_condition(
    verdict: Verdict, generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> dict[str, Any]:
    """Return the Ready condition."""
    return _condition("Ready", verdict.ready, verdict.reason, verdict.message, generation, previous, now)


def concern_conditions(
    concerns: Mapping[Concern, str], generation: int, previous: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return the conditions beside Ready, sorted by type. `concerns` maps types to messages."""
    return [
        _condition(concern, True, concern, concerns[concern], generation, previous, now) for concern in sorted(concerns)
    ]


def without_operator(previous: Sequence[Mapping[str, Any]], now: str) -> list[dict[str, Any]]:
    """Return the conditions of a resource that no operator updates any more: Ready is Unknown, with its last reason and
    message. The others are facts that remain true until somebody acts, so they stay.
    """
    result = []
    for condition in previous:
        changed = dict(condition)
        if condition["type"] == "Ready" and condition["reason"] != Reason.OPERATOR_REMOVED:
            text = f"the operator was uninstalled; the last state was {condition['reason']}: {condition['message']}"
            generation = condition.get("observedGeneration", 0)
            changed = _condition("Ready", None, Reason.OPERATOR_REMOVED, text, generation, previous, now)
        result.append(changed)
    return result


def _condition(
    what: str,
    holds: bool | None,
    reason: str,
    message: str,
    generation: int,
    previous: Sequence[Mapping[str, Any]],
    now: str,
) -> dict[str, Any]:
    """Return a condition, Unknown without `holds`. `lastTransitionTime` becomes `now` (RFC 3339) only when the status
    changes."""
    status = "Unknown" if holds is None else str(holds)
    before = next((condition for condition in previous if condition["type"] == what), None)
    unchanged = before is not None and before["status"] == status
    return {
        "type": str(what),
        "status": status,
        "reason": str(reason),
        "message": printable(message)[:MAX_MESSAGE],  # may contain text from a broker's response
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before is not None and unchanged else now,
    }
