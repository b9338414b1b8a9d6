"""Which objects are looked at again after an event."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.handlers import DELETED, Triggers
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.topic_store import TopicStore
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, topic_body

CLUSTER = Key("BrokerCluster", NAMESPACE, "demo")
TOPICS = Key("Topics", NAMESPACE, "demo")


class Recorder(Lanes):
    """Lanes that only remember."""

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
    return Triggers(queue, TopicStore())


def with_status(**status: Any) -> dict[str, Any]:
    return cluster_body() | {"status": status}


def test_a_topic_is_looked_at_again_when_its_cluster_changes_and_not_when_it_only_writes_a_status(
    queue: Recorder, triggers: Triggers
) -> None:
    triggers.topic(None, topic_body())
    assert queue.taken() == [TOPICS]
    triggers.cluster(None, cluster_body())
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster("MODIFIED", with_status(brokersReady="1/2"))
    assert queue.taken() == [CLUSTER]
    triggers.cluster("MODIFIED", with_status(conditions=[{"type": "Ready", "status": "True"}]))
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster("MODIFIED", cluster_body(metadata={"deletionTimestamp": "t"}))
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster(DELETED, cluster_body(metadata={"deletionTimestamp": "t"}))
    assert queue.taken() == [CLUSTER, TOPICS]


def test_a_topic_that_goes_makes_room_for_its_rivals(queue: Recorder) -> None:
    store = TopicStore()
    triggers = Triggers(queue, store)
    first, second = topic_body("first", name="orders"), topic_body("second", name="orders")
    triggers.topic(None, first)
    triggers.topic("ADDED", second)
    store.take_changed((NAMESPACE, "demo"), 9)
    queue.taken()
    triggers.topic(DELETED, first)
    assert queue.taken() == [TOPICS]
    assert store.take_changed((NAMESPACE, "demo"), 9) == ["first", "second"]
    triggers.topic(DELETED, first)
    assert queue.taken() == []


def test_every_object_that_is_made_leads_back_to_its_cluster(queue: Recorder, triggers: Triggers) -> None:
    for manifest in wanted(Cluster.from_object(cluster_body(), SURROUNDINGS)).objects:
        triggers.child(manifest)
        assert queue.taken() == [CLUSTER]
