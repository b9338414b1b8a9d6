"""Which objects are looked at again after an event."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.handlers import DELETED, Triggers
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.queue import Key, WorkQueue
from raptormq_operator.topic_claims import TopicClaims
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, topic_body

CLUSTER = Key("BrokerCluster", NAMESPACE, "demo")
ORDERS = Key("Topic", NAMESPACE, "orders")


class Recorder(WorkQueue):
    """A queue that only remembers."""

    def __init__(self) -> None:
        self.added: list[Key] = []

    def add(self, key: Key) -> None:
        self.added.append(key)

    def taken(self) -> list[Key]:
        """What was added since the last time."""
        added, self.added = self.added, []
        return added


@pytest.fixture
def queue() -> Recorder:
    return Recorder()


@pytest.fixture
def triggers(queue: Recorder) -> Triggers:
    return Triggers(queue, TopicClaims())


def with_status(**status: Any) -> dict[str, Any]:
    return cluster_body() | {"status": status}


def test_a_topic_is_looked_at_again_when_its_cluster_changes_and_not_when_it_only_writes_a_status(
    queue: Recorder, triggers: Triggers
) -> None:
    triggers.topic(None, topic_body())
    assert queue.taken() == [ORDERS]
    triggers.cluster(None, cluster_body())
    assert queue.taken() == [CLUSTER, ORDERS]
    triggers.cluster("MODIFIED", with_status(brokersReady="1/2"))
    assert queue.taken() == [CLUSTER]
    triggers.cluster("MODIFIED", with_status(conditions=[{"type": "Ready", "status": "True"}]))
    assert queue.taken() == [CLUSTER, ORDERS]
    triggers.cluster("MODIFIED", cluster_body(metadata={"deletionTimestamp": "t"}))
    assert queue.taken() == [CLUSTER, ORDERS]
    triggers.cluster(DELETED, cluster_body(metadata={"deletionTimestamp": "t"}))
    assert queue.taken() == [CLUSTER, ORDERS]


def test_rivals_for_a_topic_are_looked_at_together(queue: Recorder, triggers: Triggers) -> None:
    first, second = topic_body("first", name="orders"), topic_body("second", name="orders")
    triggers.topic(None, first)
    triggers.topic("ADDED", second)
    queue.taken()
    triggers.topic(DELETED, first)
    assert [key.name for key in queue.taken()] == ["first", "second"]


def test_every_object_that_is_made_leads_back_to_its_cluster(queue: Recorder, triggers: Triggers) -> None:
    for manifest in wanted(Cluster.from_object(cluster_body(), SURROUNDINGS)).objects:
        triggers.child(manifest)
        assert queue.taken() == [CLUSTER]
