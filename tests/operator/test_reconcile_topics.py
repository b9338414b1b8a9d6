"""Reconciliation of a Topic: brokers are read, changed and read again; the finalizer is removed as soon as it is not
needed.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import Admin, TopicAnswer
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.leaders import Leaders
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.reconcile_topics import GROUP_SIZE, HOLD_S, TopicsReconciler
from raptormq_operator.status_writer import StatusWriter
from raptormq_operator.topic_store import TopicStore
from tests.operator.fake_admin import FakeAdmin
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, topic_body

WANTED = TopicAnswer(8, 8, 6, {"queue.type": "SimpleCQ", "message.type": "NORMAL"})
CLUSTER = Cluster.from_object(cluster_body(groups=2), SURROUNDINGS)
FIRST, SECOND = (member.address for member in CLUSTER.members)
DEMO = (NAMESPACE, "demo")


class Operator:
    """A reconciler with its surroundings, a serving cluster of two groups, and one Topic."""

    def __init__(self, *, cluster: bool = True, admin: Admin | None = None, **spec: Any) -> None:
        self.kube = FakeKube()
        self.admin = FakeAdmin()
        self.store = TopicStore()
        self.probes = LatestProbes()
        self.suspected: list[str] = []
        self.versions = 1000
        events = EventRecorder(self.kube, lambda: "t0")
        writer = StatusWriter(self.kube, events, lambda: "t0")
        self.keys = AccessKeys(self.kube)
        admin = admin or self.admin
        parts = ReconcilerParts(self.kube, admin, events, writer, SURROUNDINGS, self.probes, self.keys, Leaders())
        self.time = 0.0
        self.reconcile = TopicsReconciler(
            parts, self.store, lambda _, name: self.suspected.append(name), clock=lambda: self.time
        )
        if cluster:
            body = self.kube.put(cluster_body(groups=2))
            body["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.admin.serve(CLUSTER)
        self.kube.put(topic_body(**spec))

    async def turn(self) -> float | None:
        """Deliver all objects, and require a new probe of the cluster."""
        for (kind, _, _), body in self.kube.objects.items():
            if kind == "Topic":
                self.versions += 1
                shown = copy.deepcopy(body)
                shown["metadata"]["resourceVersion"] = str(self.versions)
                self.store.see(shown)
        for namespace, name in self.store.places():
            if ("Topic", namespace, name) not in self.kube.objects:
                self.store.forget(namespace, name)
        self.store.mark_all(DEMO)
        self.probes.forget(*DEMO)
        return await self.reconcile(*DEMO)

    def delete(self) -> None:
        """Simulate `kubectl delete`: the object stays while it has finalizers."""
        self.body["metadata"]["deletionTimestamp"] = "t"

    @property
    def body(self) -> dict[str, Any]:
        return self.kube.objects[("Topic", NAMESPACE, "orders")]

    def topics(self) -> list[dict[str, Any]]:
        """Return all Topic resources."""
        return [body for (kind, _, _), body in self.kube.objects.items() if kind == "Topic"]

    @property
    def finalizers(self) -> list[str]:
        found: list[str] = self.body["metadata"].get("finalizers", [])
        return found

    @property
    def ready(self) -> tuple[str, str]:
        (condition,) = self.body["status"]["conditions"]
        return condition["status"], condition["reason"]


async def test_the_topic_is_made_on_every_broker() -> None:
    operator = Operator()
    assert await operator.turn() is None
    assert operator.ready == ("True", "Ready")
    assert operator.admin.topics == {FIRST: {"orders": WANTED}, SECOND: {"orders": WANTED}}
    assert [broker["ready"] for broker in operator.body["status"]["brokers"]] == [True, True]
    assert operator.body["status"]["nameServerAddress"] == CLUSTER.name_server_address
    assert operator.kube.events() == [("Normal", "Applied")]


async def test_followers_get_topics_from_their_leader() -> None:
    operator = Operator(cluster=False)
    body = operator.kube.put(cluster_body(replicas=3, replication={"mode": "dledger"}))
    body["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster = Cluster.from_object(body, SURROUNDINGS)
    operator.admin.serve(cluster)
    await operator.turn()
    leader = cluster.members[0].address
    assert {broker for broker, _ in operator.admin.changes} == {leader}
    assert [each["address"] for each in operator.body["status"]["brokers"]] == [leader]
    assert operator.ready[0] == "True"
    operator.admin.lead(cluster, None)
    operator.probes.forget(*DEMO)
    await operator.turn()
    operator.time += HOLD_S
    await operator.turn()
    assert operator.ready == ("False", "NoLeader")
    assert "no member leads" in operator.body["status"]["conditions"][0]["message"]


async def test_a_topic_that_is_right_is_left_alone() -> None:
    operator = Operator()
    await operator.turn()
    operator.admin.changes.clear()
    writes = len(operator.kube.writes)
    assert await operator.turn() is None
    assert (operator.admin.changes, operator.kube.writes[writes:]) == ([], [])


async def test_a_change_by_someone_else_is_undone() -> None:
    operator = Operator()
    await operator.turn()
    operator.admin.topics[SECOND]["orders"] = TopicAnswer(2, 2, 6, {})
    operator.admin.changes.clear()
    await operator.turn()
    assert operator.admin.changes == [(SECOND, "orders")]
    assert operator.admin.topics[SECOND]["orders"] == TopicAnswer(8, 8, 6, {"message.type": "NORMAL"})
    assert operator.ready == ("True", "Ready")


async def test_one_broker_that_refuses_is_enough() -> None:
    operator = Operator()
    operator.admin.stubborn.add(SECOND)
    assert await operator.turn()
    assert operator.ready == ("False", "BrokerRefused")
    assert [broker["ready"] for broker in operator.body["status"]["brokers"]] == [True, False]
    assert ("Warning", "BrokerRefused") in operator.kube.events()


async def test_a_broker_that_is_away() -> None:
    operator = Operator()
    operator.admin.down.add(FIRST)
    assert await operator.turn()
    assert operator.ready == ("False", "BrokerUnreachable")


async def test_while_its_cluster_comes_up_it_waits_without_a_warning() -> None:
    operator = Operator()
    operator.kube.objects[("BrokerCluster", NAMESPACE, "demo")]["status"] = {}
    operator.admin.down.add(FIRST)
    assert await operator.turn() is None
    assert operator.ready == ("False", "ClusterNotReady")
    assert operator.kube.events() == [("Normal", "ClusterNotReady")]


async def test_a_topic_is_not_ready_where_a_name_server_misses_a_broker() -> None:
    operator = Operator()
    operator.admin.listings[CLUSTER.name_server_addresses[0]].clear()
    assert await operator.turn() is None
    assert operator.ready == ("False", "NotRegistered")


async def test_without_its_cluster_it_waits() -> None:
    operator = Operator(cluster=False)
    assert await operator.turn() is None
    assert operator.ready == ("False", "ClusterNotFound")


async def test_batch_queues_are_asked_for_by_attribute() -> None:
    operator = Operator(queueType="BatchCQ")
    assert await operator.turn() is None
    assert operator.ready == ("True", "Ready")
    assert [made["orders"].attributes["queue.type"] for made in operator.admin.topics.values()] == ["BatchCQ"] * 2


async def test_another_type_of_queues_takes_the_converter() -> None:
    operator = Operator()
    await operator.turn()
    operator.admin.changes.clear()
    operator.body["spec"]["queueType"] = "BatchCQ"
    assert await operator.turn()
    assert operator.ready == ("False", "QueueTypeDiffers")
    (condition,) = operator.body["status"]["conditions"]
    assert "raptormq convert-queue --topic orders --to BatchCQ" in condition["message"]
    assert operator.admin.changes == []
    for topics in operator.admin.topics.values():
        topics["orders"] = TopicAnswer(8, 8, 6, {"queue.type": "BatchCQ", "message.type": "NORMAL"})
    assert await operator.turn() is None
    assert operator.ready == ("True", "Ready")


def unreadable(operator: Operator) -> str | None:
    """Return the message of the condition; None without it."""
    conditions = operator.body["status"]["conditions"]
    assert conditions[0]["type"] == "Ready"
    found = [each for each in conditions[1:] if each["type"] == "MessagesUnreadable"]
    assert all((each["status"], each["reason"]) == ("True", "MessagesUnreadable") for each in found)
    return found[0]["message"] if found else None


async def test_messages_in_queues_that_a_smaller_topic_lacks_are_reported_until_they_can_be_read() -> None:
    operator = Operator(readQueues=4, writeQueues=4)
    operator.admin.stored = {"orders": [25, 25, 25, 25]}
    await operator.turn()
    assert unreadable(operator) is None
    operator.body["spec"] |= {"readQueues": 2, "writeQueues": 2}
    wait = await operator.turn()
    assert operator.body["status"]["conditions"][0]["status"] == "True"
    assert unreadable(operator) == (
        f"100 messages are in queues that consumers do not read ({FIRST}: 50, {SECOND}: 50). To read them, set"
        " readQueues to 4; otherwise they are deleted when they expire"
    )
    assert ("Warning", "MessagesUnreadable") in operator.kube.events()
    assert wait is not None, "their number changes without an event"
    operator.admin.stored["orders"][3] = 0
    await operator.turn()
    assert "50 messages are in queues" in (unreadable(operator) or "")
    operator.body["spec"]["readQueues"] = 4
    assert await operator.turn() is None
    assert unreadable(operator) is None


async def test_topic_made_again_with_fewer_queues_reports_the_messages_of_the_earlier_one() -> None:
    operator = Operator(readQueues=1, writeQueues=1)
    for topics in operator.admin.topics.values():
        topics["orders"] = WANTED
    operator.admin.stored = {"orders": [50, 50, 50]}
    await operator.turn()
    assert operator.body["status"]["conditions"][0]["reason"] == "Ready"
    assert (unreadable(operator) or "").startswith("200 messages are in queues that consumers do not read")


async def test_report_of_unreadable_messages_stays_while_a_broker_does_not_respond() -> None:
    operator = Operator(readQueues=1, writeQueues=1)
    operator.admin.stored = {"orders": [0, 50]}
    await operator.turn()
    reported = unreadable(operator)
    operator.admin.down.add(SECOND)
    await operator.turn()
    operator.time += HOLD_S
    await operator.turn()
    assert operator.body["status"]["conditions"][0]["status"] == "False"
    assert unreadable(operator) == reported


async def test_topic_with_more_write_queues_than_read_queues_is_checked_again() -> None:
    operator = Operator(readQueues=1, writeQueues=2)
    assert await operator.turn() is not None
    assert unreadable(operator) is None


async def test_the_younger_of_two_does_nothing() -> None:
    operator = Operator(readQueues=2)
    operator.kube.put(topic_body("original", name="orders", metadata={"creationTimestamp": "2020-01-01T00:00:00Z"}))
    await operator.turn()
    assert operator.ready == ("False", "TopicConflict")
    assert operator.admin.topics[FIRST]["orders"].read_queues == 8


async def test_the_finalizer_follows_the_policy() -> None:
    operator = Operator(deletionPolicy="Delete")
    await operator.turn()
    assert operator.finalizers == [names.TOPIC_FINALIZER]
    operator.body["spec"]["deletionPolicy"] = "Retain"
    await operator.turn()
    assert operator.finalizers == []


async def test_finalizers_of_others_stay() -> None:
    operator = Operator(deletionPolicy="Retain")
    operator.body["metadata"]["finalizers"] = ["theirs"]
    await operator.turn()
    assert operator.finalizers == ["theirs"]


async def deleting(**surroundings: Any) -> Operator:
    operator = Operator(deletionPolicy="Delete", **surroundings)
    await operator.turn()
    operator.delete()
    return operator


async def test_delete_takes_the_topic_along() -> None:
    operator = await deleting()
    assert await operator.turn() is None
    assert operator.finalizers == []
    assert operator.admin.topics == {FIRST: {}, SECOND: {}}


async def test_delete_waits_for_a_broker_that_is_away() -> None:
    operator = await deleting()
    operator.admin.down.add(SECOND)
    assert await operator.turn()
    assert operator.ready == ("False", "Deleting")
    assert operator.finalizers == [names.TOPIC_FINALIZER]
    operator.admin.down.clear()
    await operator.turn()
    assert operator.finalizers == []


async def test_retain_leaves_the_topic() -> None:
    operator = Operator()
    await operator.turn()
    operator.delete()
    assert await operator.turn() is None
    assert operator.admin.topics[FIRST] == {"orders": WANTED}


@pytest.mark.parametrize("how", ["gone", "going"])
async def test_without_its_cluster_it_is_released_at_once(how: str) -> None:
    operator = await deleting()
    operator.admin.down |= {FIRST, SECOND, *CLUSTER.name_server_addresses}
    cluster = operator.kube.objects[("BrokerCluster", NAMESPACE, "demo")]
    if how == "gone":
        del operator.kube.objects[("BrokerCluster", NAMESPACE, "demo")]
    else:
        cluster["metadata"]["deletionTimestamp"] = "t"
    assert await operator.turn() is None
    assert operator.finalizers == []


async def test_who_does_not_hold_the_topic_does_not_delete_it() -> None:
    operator = await deleting()
    operator.kube.put(topic_body("original", name="orders", metadata={"creationTimestamp": "2020-01-01T00:00:00Z"}))
    assert await operator.turn() is None
    assert operator.finalizers == []
    assert operator.admin.topics[FIRST] == {"orders": WANTED}


async def test_a_resource_that_is_gone_needs_nothing() -> None:
    operator = Operator()
    del operator.kube.objects[("Topic", NAMESPACE, "orders")]
    assert await operator.turn() is None


def many(operator: Operator, count: int, **spec: Any) -> None:
    for number in range(count):
        operator.kube.put(topic_body(f"t{number}", **spec))


async def test_a_thousand_topics_cost_the_questions_of_one() -> None:
    operator = Operator()
    many(operator, GROUP_SIZE - 1)
    await operator.turn()
    assert {body["status"]["conditions"][0]["reason"] for body in operator.topics()} == {"Ready"}
    assert operator.admin.bulk_questions == [FIRST, SECOND, FIRST, SECOND], "before and after the change"
    operator.admin.bulk_questions.clear()
    reads = operator.kube.reads
    await operator.turn()
    assert operator.admin.bulk_questions == [FIRST, SECOND]
    assert operator.kube.reads - reads == 1, "the cluster"


async def test_what_does_not_fit_into_one_group_is_the_next_run() -> None:
    operator = Operator()
    many(operator, GROUP_SIZE)
    assert await operator.turn() == 0.0
    assert await operator.reconcile(*DEMO) is None
    assert {body["status"]["conditions"][0]["reason"] for body in operator.topics()} == {"Ready"}


async def test_a_silent_broker_is_found_out_once_and_not_once_for_each_topic() -> None:
    operator = Operator()
    many(operator, 50)
    operator.admin.down.add(FIRST)
    await operator.turn()
    assert operator.admin.asked.count(FIRST) == 1, "only the probe of the cluster"
    assert {body["status"]["conditions"][0]["reason"] for body in operator.topics()} == {"BrokerUnreachable"}
    assert operator.admin.changes == [(SECOND, topic) for topic in ["orders", *(f"t{n}" for n in range(50))]]


async def test_a_broker_that_falls_silent_between_two_probes_is_told_to_the_cluster() -> None:
    operator = Operator()
    await operator.turn()
    operator.admin.down.add(FIRST)
    operator.store.mark_all(DEMO)
    wait = await operator.reconcile(*DEMO)
    assert operator.suspected == ["demo"]
    assert wait is not None
    operator.time += HOLD_S
    await operator.turn()
    assert operator.ready == ("False", "BrokerUnreachable")


async def test_restart_of_a_broker_writes_no_status_and_no_event_of_its_topics() -> None:
    operator = Operator()
    many(operator, 50)
    await operator.turn()
    writes = len(operator.kube.writes)
    operator.admin.down.add(FIRST)
    assert await operator.turn() is not None, "it is looked at again, also without an event"
    operator.time += HOLD_S - 1
    await operator.turn()
    operator.admin.down.clear()
    await operator.turn()
    assert operator.kube.writes[writes:] == []
    assert operator.ready == ("True", "Ready")


async def test_failure_of_the_cluster_is_no_event_of_each_topic_and_two_writes() -> None:
    operator = Operator()
    many(operator, 50)
    await operator.turn()
    writes = len(operator.kube.writes)
    operator.admin.down.add(FIRST)
    await operator.turn()
    operator.time += HOLD_S
    for _ in range(3):
        await operator.turn()
    assert {body["status"]["conditions"][0]["reason"] for body in operator.topics()} == {"BrokerUnreachable"}
    operator.admin.down.clear()
    await operator.turn()
    assert {body["status"]["conditions"][0]["reason"] for body in operator.topics()} == {"Ready"}
    assert [verb for verb, _, _ in operator.kube.writes[writes:]] == ["status"] * 2 * 51


async def test_new_generation_of_a_topic_does_not_stay_ready_while_a_broker_does_not_respond() -> None:
    operator = Operator()
    await operator.turn()
    operator.admin.down.add(FIRST)
    operator.body["metadata"]["generation"] += 1
    await operator.turn()
    assert operator.ready == ("False", "BrokerUnreachable")


async def test_topics_that_fail_alike_are_tried_again_together_and_later_and_later() -> None:
    operator = Operator()
    many(operator, 5)
    operator.admin.stubborn.add(SECOND)
    waits = [await operator.turn()]
    operator.admin.bulk_questions.clear()
    assert await operator.reconcile(*DEMO) == pytest.approx(waits[0], abs=1.0)
    assert operator.admin.bulk_questions == [], "it is not due yet"


async def test_topics_of_a_cluster_go_in_a_group_too() -> None:
    operator = Operator(deletionPolicy="Delete")
    many(operator, 20, deletionPolicy="Delete")
    await operator.turn()
    for body in operator.topics():
        body["metadata"]["deletionTimestamp"] = "t"
    operator.admin.bulk_questions.clear()
    assert await operator.turn() is None
    assert operator.admin.topics == {FIRST: {}, SECOND: {}}
    assert sorted(operator.admin.bulk_questions) == sorted([FIRST, SECOND])
    assert [body["metadata"].get("finalizers", []) for body in operator.topics()] == [[]] * 21


async def test_one_status_that_cannot_be_written_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator()
    many(operator, 3)
    write = operator.kube.apply_status

    async def fails_once(manifest: Manifest) -> Manifest:
        if manifest["metadata"]["name"] == "t1":
            raise KubeError(500, "there is no quorum")
        return await write(manifest)

    operator.kube.apply_status = fails_once  # type: ignore[method-assign]
    assert await operator.turn() is not None
    assert [body["metadata"]["name"] for body in operator.topics() if "status" not in body] == ["t1"]
    assert "no quorum" in caplog.text
    operator.kube.apply_status = write  # type: ignore[method-assign]
    assert await operator.turn() is None
    assert all("status" in body for body in operator.topics())
