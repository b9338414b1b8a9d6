"""Verdicts about the responses of brokers about a topic."""

from __future__ import annotations

import dataclasses
from typing import Any

from raptormq_operator import topic_plan
from raptormq_operator.admin import TopicAnswer
from raptormq_operator.conditions import Reason
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.topic import Topic
from raptormq_operator.topic_plan import Claim, Failure
from tests.operator.resources import SURROUNDINGS, cluster_body, topic_body

TOPIC = Topic.from_object(topic_body())
GOOD = topic_plan.wanted(TOPIC)


def test_defaults_are_those_of_rocketmq() -> None:
    assert TopicAnswer(8, 8, 6, {"queue.type": "SimpleCQ", "message.type": "NORMAL"}) == GOOD
    assert Topic.from_object(topic_body(permissions="ReadOnly")).perm == 4
    assert Topic.from_object(topic_body(permissions="WriteOnly")).perm == 2


def test_one_number_of_queues_follows_the_other() -> None:
    cases: list[tuple[dict[str, Any], tuple[int, int]]] = [
        ({"readQueues": 4}, (4, 4)),
        ({"writeQueues": 16}, (16, 16)),
        ({}, (8, 8)),
    ]
    for spec, expected in cases:
        topic = Topic.from_object(topic_body(**spec))
        assert (topic.read_queues, topic.write_queues) == expected
    status = topic_plan.status(Topic.from_object(topic_body(writeQueues=16)), None, {})
    assert (status["readQueues"], status["writeQueues"]) == (16, 16)


def test_a_broker_that_does_not_mention_defaults_has_them() -> None:
    assert topic_plan.differences(TopicAnswer(8, 8, 6, {}), GOOD) == ()


def test_every_difference_is_named() -> None:
    answer = TopicAnswer(4, 8, 2, {"queue.type": "BatchCQ"})
    assert topic_plan.differences(answer, GOOD) == (
        "readQueueNums is 4, wanted 8",
        "perm is 2, wanted 6",
        "queue.type is BatchCQ, wanted SimpleCQ",
    )


def test_only_brokers_that_answered_otherwise_are_asked_to_change() -> None:
    silent = Failure(Reason.BROKER_UNREACHABLE, "no")
    answers = {"a": GOOD, "b": None, "c": dataclasses.replace(GOOD, perm=4), "d": silent}
    changes = topic_plan.changes(answers, GOOD)
    assert changes == {"b": GOOD, "c": dataclasses.replace(GOOD, attributes={"message.type": "NORMAL"})}


def test_the_type_of_queues_is_left_to_the_converter() -> None:
    topic = Topic.from_object(topic_body(queueType="BatchCQ"))
    wanted = topic_plan.wanted(topic)
    simple = dataclasses.replace(wanted, attributes={"message.type": "NORMAL"})
    assert topic_plan.changes({"a": wanted, "b": simple}, wanted) == {}
    assert topic_plan.changes({"b": dataclasses.replace(simple, perm=4)}, wanted) == {"b": simple}
    verdict = topic_plan.verdict(topic, {"a": wanted, "b": simple})
    assert verdict.reason is Reason.QUEUE_TYPE_DIFFERS
    assert verdict.message == (
        "b: queue.type is SimpleCQ, wanted BatchCQ; "
        "to convert the queues, run: raptormq convert-queue --topic orders --to BatchCQ"
    )
    back = topic_plan.verdict(TOPIC, {"a": wanted}).message
    assert back.endswith(
        "if they contain no batches that are stored whole, run: raptormq convert-queue --topic orders --to SimpleCQ"
    )


def test_ready_takes_every_broker() -> None:
    assert topic_plan.verdict(TOPIC, {"a": GOOD, "b": GOOD}).ready
    assert topic_plan.verdict(TOPIC, {"a": GOOD, "b": None}).reason is Reason.TOPIC_DIFFERS


def test_a_refusal_is_told_with_the_broker_and_its_words() -> None:
    verdict = topic_plan.verdict(TOPIC, {"a": GOOD, "b": Failure(Reason.BROKER_REFUSED, "code 1: not today")})
    assert (verdict.reason, verdict.message) == (Reason.BROKER_REFUSED, "b: code 1: not today")


def test_an_unreached_broker_is_told_before_a_refusal() -> None:
    answers = {"a": Failure(Reason.BROKER_REFUSED, "x"), "b": Failure(Reason.BROKER_UNREACHABLE, "y")}
    assert topic_plan.verdict(TOPIC, answers).reason is Reason.BROKER_UNREACHABLE
    answers |= {"c": Failure(Reason.NO_LEADER, "z")}
    assert topic_plan.verdict(TOPIC, answers).reason is Reason.NO_LEADER


def test_batch_queues_are_wanted_of_every_broker() -> None:
    topic = Topic.from_object(topic_body(queueType="BatchCQ"))
    assert topic_plan.refusal(topic, []) is None
    wanted = topic_plan.wanted(topic)
    assert wanted.attributes["queue.type"] == "BatchCQ"
    answers = {"a": wanted, "b": TopicAnswer(4, 8, 2, {}), "c": None}
    assert topic_plan.changes(answers, wanted)["c"] == wanted


def test_the_oldest_claim_holds_the_topic() -> None:
    own = Claim(TOPIC.created, False, 5, TOPIC.uid, TOPIC.name)
    younger = Claim("2026-01-02T00:00:00Z", False, 6, "another", "copy")
    older = Claim("2025-12-31T00:00:00Z", True, 7, "first", "original")
    assert topic_plan.refusal(TOPIC, [own, younger]) is None
    refused = topic_plan.refusal(TOPIC, [own, older])
    assert refused is not None
    assert (refused.reason, refused.message.endswith("belongs to Topic original")) == (Reason.TOPIC_CONFLICT, True)


def test_the_status_names_each_group() -> None:
    cluster = Cluster.from_object(cluster_body(groups=2), SURROUNDINGS)
    first, second = (member.address for member in cluster.members)
    status = topic_plan.status(TOPIC, cluster, {first: GOOD, second: None})
    ready = [(broker["group"], broker["ready"]) for broker in status["brokers"]]
    assert ready == [("broker-0", True), ("broker-1", False)]
    assert status["nameServerAddress"] == cluster.name_server_address
    assert topic_plan.status(TOPIC, None, {})["brokers"] == []
