"""Changes to request from brokers for a Topic, and the verdict on their responses. No I/O.

The operator requests the creation or update of a topic from each broker whose topic differs, and then reads its
configuration again: a Topic is ready only when the brokers report the wanted values. The type of existing queues is
never changed here; that requires a conversion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raptormq.protocol.bodies.unreadable import Unreadable
from raptormq.protocol.topic_attributes import MESSAGE_TYPE, QUEUE_TYPE, SIMPLE_CQ
from raptormq_operator.admin import TopicAnswer
from raptormq_operator.conditions import Concern, Reason, Verdict
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.topic import Topic

ATTRIBUTE_DEFAULTS = {QUEUE_TYPE: SIMPLE_CQ, MESSAGE_TYPE: "NORMAL"}
"""Values of attributes that a broker omits."""


_FAILURES = (Reason.NO_LEADER, Reason.NO_MASTER, Reason.BROKER_UNREACHABLE, Reason.BROKER_REFUSED)
"""Reasons of failures, the most severe first."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed request to a broker: the broker is unreachable, or it returned an error code."""

    reason: Reason
    text: str


Answer = TopicAnswer | Failure | None
"""Response of one broker. None: the broker does not have the topic."""


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A Topic resource's claim to a topic name. The least claim wins: the older resource, or among resources created in
    the same second the one that already owns the topic."""

    created: str
    waiting: bool
    """False when the status of the resource shows that it owns the topic."""
    version: int
    """resourceVersion at which the resource was first observed."""
    uid: str
    name: str


def refusal(topic: Topic, claims: Sequence[Claim]) -> Verdict | None:
    """Return why this resource cannot be reconciled; None if it can."""
    holder = min(claims, default=None)
    if holder is not None and holder.uid != topic.uid:
        return Verdict(
            Reason.TOPIC_CONFLICT, f"topic {topic.topic_name} of cluster {topic.cluster} belongs to Topic {holder.name}"
        )
    return None


def wanted(topic: Topic) -> TopicAnswer:
    """Return the values that every broker must report."""
    return TopicAnswer(topic.read_queues, topic.write_queues, topic.perm, topic.attributes)


def differences(answer: Answer, wanted_values: TopicAnswer) -> tuple[str, ...]:
    """Return the differences from the wanted values as messages; empty when there are none."""
    if isinstance(answer, Failure):
        return (answer.text,)
    if answer is None:
        return ("the topic does not exist",)
    pairs = [
        ("readQueueNums", answer.read_queues, wanted_values.read_queues),
        ("writeQueueNums", answer.write_queues, wanted_values.write_queues),
        ("perm", answer.perm, wanted_values.perm),
        *(
            (name, answer.attributes.get(name, ATTRIBUTE_DEFAULTS.get(name)), value)
            for name, value in wanted_values.attributes.items()
        ),
    ]
    return tuple(f"{name} is {has}, wanted {wants}" for name, has, wants in pairs if has != wants)


def changes(answers: Mapping[str, Answer], wanted_values: TopicAnswer) -> dict[str, TopicAnswer]:
    """Return the values to request from each responding broker whose topic differs.

    For an existing topic the queue type is omitted, because brokers reject changes to it.
    """
    attributes = {name: value for name, value in wanted_values.attributes.items() if name != QUEUE_TYPE}
    changeable = replace(wanted_values, attributes=attributes)
    requests = {
        address: wanted_values if answer is None else changeable
        for address, answer in answers.items()
        if not isinstance(answer, Failure)
    }
    return {address: values for address, values in requests.items() if differences(answers[address], values)}


def verdict(topic: Topic, answers: Mapping[str, Answer]) -> Verdict:
    """Return the verdict on the responses after the changes. Groups without a leader or master take precedence over
    unreachable brokers, these over error codes, and error codes over differences."""
    for reason in _FAILURES:
        failures = [
            f"{address}: {answer.text}"
            for address, answer in answers.items()
            if isinstance(answer, Failure) and answer.reason is reason
        ]
        if failures:
            return Verdict(reason, "; ".join(failures))
    differing = {address: differences(answer, wanted(topic)) for address, answer in answers.items()}
    texts = [f"{address}: {', '.join(words)}" for address, words in differing.items() if words]
    if any(word.startswith(QUEUE_TYPE) for words in differing.values() for word in words):
        return Verdict(Reason.QUEUE_TYPE_DIFFERS, f"{'; '.join(texts)}; {_cure(topic)}")
    if texts:
        return Verdict(Reason.TOPIC_DIFFERS, "; ".join(texts))
    return Verdict(Reason.READY, f"{len(answers)} brokers have the wanted values")


def _cure(topic: Topic) -> str:
    """Return the command that converts the queues to the wanted type."""
    back = topic.queue_type == SIMPLE_CQ
    which = "the queues if they contain no batches that are stored whole" if back else "the queues"
    return f"to convert {which}, run: raptormq convert-queue --topic {topic.topic_name} --to {topic.queue_type}"


def concerns(
    answers: Mapping[str, Answer], unreadable: Mapping[str, Unreadable], previous: Sequence[Mapping[str, Any]]
) -> dict[Concern, str]:
    """Return the messages of the conditions beside Ready that are True.

    `unreadable` has the brokers with messages in queues that consumers do not read, `previous` the conditions of the
    status. While a broker does not respond, the last condition stays.
    """
    if any(isinstance(answer, Failure) for answer in answers.values()):
        return {
            Concern(each["type"]): each["message"] for each in previous if each["type"] == Concern.MESSAGES_UNREADABLE
        }
    if not unreadable:
        return {}
    total = sum(each.messages for each in unreadable.values())
    places = ", ".join(f"{address}: {unreadable[address].messages}" for address in sorted(unreadable))
    enough = max(each.read_queues for each in unreadable.values())
    text = (
        f"{total} messages are in queues that consumers do not read ({places}). To read them, set readQueues to"
        f" {enough}; otherwise they are deleted when they expire"
    )
    return {Concern.MESSAGES_UNREADABLE: text}


def status(topic: Topic, cluster: Cluster | None, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Return the status without conditions."""
    brokers = [
        {
            "group": member.broker_name,
            "address": member.address,
            "ready": member.address in answers and not differences(answers[member.address], wanted(topic)),
        }
        for member in (cluster.members if cluster else ())
        if cluster is not None and (not cluster.is_replicated or member.address in answers)
    ]
    base = {
        "observedGeneration": topic.generation,
        "topicName": topic.topic_name,
        "readQueues": topic.read_queues,
        "writeQueues": topic.write_queues,
        "brokers": brokers,
    }
    return base | ({"nameServerAddress": cluster.name_server_address} if cluster else {})
