"""Objects that are reconciled again after an event."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.handlers import Triggers
from raptormq_operator.kube.reflector import ADDED, DELETED
from raptormq_operator.lanes import Key, Lanes
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.topic_store import TopicStore
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, pipeline_body, topic_body

CLUSTER = Key("BrokerCluster", NAMESPACE, "demo")
TOPICS = Key("Topics", NAMESPACE, "demo")


class Recorder(Lanes):
    """Lanes that only record calls."""

    def __init__(self) -> None:
        self.added: list[Key] = []

    def add(self, key: Key) -> None:
        self.added.append(key)

    def taken(self) -> list[Key]:
        """Return the keys added since the last call."""
        added, self.added = self.added, []
        return added


@pytest.fixture
def queue() -> Recorder:
    return Recorder()


@pytest.fixture
def triggers(queue: Recorder) -> Triggers:
    return Triggers(queue, TopicStore())


def at(version: int, **status: Any) -> dict[str, Any]:
    """Return the cluster at a resourceVersion."""
    return cluster_body(metadata={"resourceVersion": str(version)}) | {"status": status}


def test_a_topic_is_looked_at_again_when_its_cluster_changes_and_not_when_it_only_writes_a_status(
    queue: Recorder, triggers: Triggers
) -> None:
    triggers.topic(None, topic_body())
    assert queue.taken() == [TOPICS]
    triggers.cluster(None, cluster_body())
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster("MODIFIED", at(2, brokersReady="1/2"))
    assert queue.taken() == [CLUSTER]
    triggers.cluster("MODIFIED", at(3, conditions=[{"type": "Ready", "status": "True"}]))
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster("MODIFIED", cluster_body(metadata={"deletionTimestamp": "t", "resourceVersion": "4"}))
    assert queue.taken() == [CLUSTER, TOPICS]
    triggers.cluster(DELETED, cluster_body(metadata={"deletionTimestamp": "t"}))
    assert queue.taken() == [CLUSTER, TOPICS]


def test_what_is_told_twice_is_looked_at_once(queue: Recorder, triggers: Triggers) -> None:
    """Deliver the object by kopf and by a list, in any order."""
    for version in (3, 3, 2):
        triggers.own("BrokerCluster", None, at(version))
    assert queue.taken() == [CLUSTER]
    triggers.own("BrokerCluster", "ADDED", at(4))
    assert queue.taken() == [CLUSTER]
    again = cluster_body(metadata={"uid": "another", "resourceVersion": "2"})
    triggers.own("BrokerCluster", "ADDED", again)
    assert queue.taken() == [CLUSTER]


def test_a_topic_that_goes_makes_room_for_its_rivals(queue: Recorder) -> None:
    store = TopicStore()
    triggers = Triggers(queue, store)
    first, second = topic_body("first", name="orders"), topic_body("second", name="orders")
    triggers.topic(None, first)
    triggers.topic("ADDED", second)
    store.take_changed((NAMESPACE, "demo"), 9)
    queue.taken()
    triggers.own("Topic", DELETED, first)
    assert queue.taken() == [TOPICS]
    assert store.take_changed((NAMESPACE, "demo"), 9) == ["first", "second"]
    triggers.own("Topic", DELETED, first)
    assert queue.taken() == []


def test_every_object_that_is_made_leads_back_to_its_cluster(queue: Recorder, triggers: Triggers) -> None:
    for manifest in wanted(Cluster.from_object(cluster_body(), SURROUNDINGS)).objects:
        triggers.child("ADDED", manifest)
        assert queue.taken() == [CLUSTER]


def test_the_status_of_a_pipeline_causes_no_work_and_its_pods_do(triggers: Triggers, queue: Recorder) -> None:
    key = Key("SparkPipeline", NAMESPACE, "delays")
    triggers.pipeline(ADDED, pipeline_body())
    assert queue.taken() == [key]
    triggers.pipeline("MODIFIED", pipeline_body(metadata={"resourceVersion": "2"}) | {"status": {"lag": 7}})
    assert queue.taken() == []
    for metadata in ({"generation": 2}, {"uid": "other"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        triggers.pipeline("MODIFIED", pipeline_body(metadata=metadata))
        assert queue.taken() == [key], metadata
    triggers.pipeline(DELETED, pipeline_body())
    triggers.pipeline(ADDED, pipeline_body(metadata={"uid": "other"}))
    assert queue.taken() == [key, key]
    labels = {"raptormq.io/pipeline": "delays"}
    triggers.pipeline_pod(DELETED, {"metadata": {"namespace": NAMESPACE, "name": "x", "labels": labels}})
    assert queue.taken() == [key]
