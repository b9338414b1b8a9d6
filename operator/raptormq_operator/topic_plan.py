"""What to ask of brokers for a Topic, and the verdict on their answers. Pure.

A broker is asked to create or change the topic when its answer differs from the wanted values, and is then asked again:
only its own words make a Topic ready. The type of queues that are there is left to the converter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from raptormq.protocol.topic_attributes import MESSAGE_TYPE, QUEUE_TYPE, SIMPLE_CQ
from raptormq_operator.admin import TopicAnswer
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.topic import Topic

ATTRIBUTE_DEFAULTS = {QUEUE_TYPE: SIMPLE_CQ, MESSAGE_TYPE: "NORMAL"}
"""What a topic is when a broker does not mention the attribute."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A broker that gave no usable answer: it was not reached, or it refused with a code."""

    reason: Reason
    text: str


Answer = TopicAnswer | Failure | None
"""None: the broker has no such topic."""


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A Topic resource's claim to a topic name; of two, the older one holds it, and of two that were made in the same
    second the one that holds it already."""

    created: str
    waiting: bool
    """False for one whose status says that it holds the topic, or would."""
    version: int
    """resourceVersion under which it was seen first."""
    uid: str
    name: str


def refusal(topic: Topic, claims: Sequence[Claim]) -> Verdict | None:
    """Why nothing can be done for this resource; None when something can."""
    holder = min(claims, default=None)
    if holder is not None and holder.uid != topic.uid:
        return Verdict(
            Reason.TOPIC_CONFLICT, f"topic {topic.topic_name} of cluster {topic.cluster} belongs to Topic {holder.name}"
        )
    return None


def wanted(topic: Topic) -> TopicAnswer:
    """The values that every broker shall answer with."""
    return TopicAnswer(topic.read_queues, topic.write_queues, topic.perm, topic.attributes)


def differences(answer: Answer, wanted_values: TopicAnswer) -> tuple[str, ...]:
    """What differs from the wanted values, in words; nothing differs when the broker may be left alone."""
    if isinstance(answer, Failure):
        return (answer.text,)
    if answer is None:
        return ("it has no such topic",)
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
    """What to ask of which brokers: those that answered with something else. One that was not reached is not asked.

    Where the topic is there already the type of its queues is not mentioned: a broker refuses to change it.
    """
    attributes = {name: value for name, value in wanted_values.attributes.items() if name != QUEUE_TYPE}
    changeable = replace(wanted_values, attributes=attributes)
    wishes = {
        address: wanted_values if answer is None else changeable
        for address, answer in answers.items()
        if not isinstance(answer, Failure)
    }
    return {address: wish for address, wish in wishes.items() if differences(answers[address], wish)}


def verdict(topic: Topic, answers: Mapping[str, Answer]) -> Verdict:
    """Judges the answers given after the changes: unreached brokers first, then refusals, then differences."""
    for reason in (Reason.BROKER_UNREACHABLE, Reason.BROKER_REFUSED):
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
    return Verdict(Reason.READY, f"{len(answers)} brokers answer with the wanted values")


def _cure(topic: Topic) -> str:
    """What brings the queues to the wanted type."""
    back = topic.queue_type == SIMPLE_CQ
    which = "the queues if they hold no batches stored whole" if back else "the queues"
    return f"this converts {which}: raptormq convert-queue --topic {topic.topic_name} --to {topic.queue_type}"


def status(topic: Topic, cluster: Cluster | None, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """The status without conditions."""
    brokers = [
        {
            "group": member.broker_name,
            "address": member.address,
            "ready": member.address in answers and not differences(answers[member.address], wanted(topic)),
        }
        for member in (cluster.members if cluster else ())
    ]
    base = {
        "observedGeneration": topic.generation,
        "topicName": topic.topic_name,
        "readQueues": topic.read_queues,
        "writeQueues": topic.write_queues,
        "brokers": brokers,
    }
    return base | ({"nameServerAddress": cluster.name_server_address} if cluster else {})
