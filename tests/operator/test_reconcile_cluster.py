"""Reconciliation of a BrokerCluster against a table of objects and name servers that answer from a table."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.reconcile_cluster import BLOCKED_S, RESYNC_S, RETRY_S, ClusterReconciler
from raptormq_operator.status_writer import StatusWriter
from tests.operator.fake_admin import FakeAdmin
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body


class Operator:
    """A reconciler with its surroundings; `now` is the time that conditions get."""

    def __init__(self, **spec: Any) -> None:
        self.kube = FakeKube()
        self.admin = FakeAdmin()
        self.now = "t0"
        events = EventRecorder(self.kube, lambda: self.now)
        writer = StatusWriter(self.kube, events, lambda: self.now)
        self.reconcile = ClusterReconciler(self.kube, self.admin, events, writer, SURROUNDINGS)
        self.body = self.kube.put(cluster_body(**spec))
        self.cluster = Cluster.from_object(self.body, SURROUNDINGS)

    async def turn(self) -> float | None:
        return await self.reconcile(NAMESPACE, "demo")

    async def until_ready(self) -> None:
        self.admin.serve(self.cluster)
        for _ in range(5):
            self.kube.settle()
            await self.turn()
        assert self.ready["status"] == "True", self.ready

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects[("BrokerCluster", NAMESPACE, "demo")]["status"]
        return found

    @property
    def ready(self) -> dict[str, Any]:
        (condition,) = self.status["conditions"]
        found: dict[str, Any] = condition
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(name for found, _, name in self.kube.objects if found == kind)


async def test_from_nothing_to_ready() -> None:
    operator = Operator(groups=2)
    assert await operator.turn() == RETRY_S
    assert operator.ready["reason"] == "Progressing"
    assert operator.names("StatefulSet") == ["demo-broker-0-0", "demo-broker-1-0", "demo-namesrv"]
    await operator.turn()
    assert operator.ready["reason"] == "PodsNotReady"
    operator.kube.settle()
    await operator.turn()
    assert operator.ready["reason"] == "NameServerUnreachable"
    operator.admin.serve(operator.cluster)
    operator.now = "t1"
    assert await operator.turn() == RESYNC_S
    assert (operator.ready["reason"], operator.ready["lastTransitionTime"]) == ("Ready", "t1")
    assert operator.status["observedGeneration"] == 1
    assert operator.status["brokersReady"] == "2/2"


async def test_a_failing_pod_is_quoted_until_it_is_well() -> None:
    operator = Operator()
    await operator.turn()
    ended = {"exitCode": 2, "message": "raptormq: setting a = 'b' is not usable\n"}
    labels = names.broker_labels("demo", 0, 0)
    failing = {"name": "broker", "ready": False, "restartCount": 3, "state": {"terminated": ended}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "demo-broker-0-0-0", "namespace": NAMESPACE, "labels": labels},
        "status": {"containerStatuses": [failing]},
    }
    operator.kube.put(pod)
    assert await operator.turn() == RETRY_S
    assert operator.ready["reason"] == "PodsFailing"
    assert operator.ready["message"].endswith("ended with exit code 2: raptormq: setting a = 'b' is not usable")
    assert ("Warning", "PodsFailing") in operator.kube.events()
    operator.kube.put(pod | {"status": {"containerStatuses": [failing | {"ready": True}]}})
    await operator.until_ready()


async def test_what_keeps_a_pod_from_beginning_is_quoted() -> None:
    operator = Operator()
    await operator.turn()
    text = "create Pod demo-broker-0-0-0 in StatefulSet demo-broker-0-0 failed error: exceeded quota: few"
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": NAMESPACE},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": text,
        "involvedObject": {
            "kind": "StatefulSet",
            "name": "demo-broker-0-0",
            "uid": operator.kube.objects["StatefulSet", NAMESPACE, "demo-broker-0-0"]["metadata"]["uid"],
        },
    }
    operator.kube.put(event)
    assert await operator.turn() == BLOCKED_S
    assert operator.ready["reason"] == "PodsNotReady"
    assert operator.ready["message"].endswith(f"; demo-broker-0-0-0: {text}")


@pytest.mark.parametrize("kind", ["Pod", "Event"])
async def test_a_role_without_pods_or_events_costs_their_words_alone(kind: str) -> None:
    operator = Operator()
    await operator.turn()
    operator.kube.refuse_lists[kind] = Invalid(403, "it is forbidden")
    await operator.turn()
    assert operator.ready["reason"] == "PodsNotReady"


async def test_a_ready_cluster_is_left_alone() -> None:
    operator = Operator()
    await operator.until_ready()
    writes = len(operator.kube.writes)
    await operator.turn()
    assert operator.kube.writes[writes:] == []


async def test_a_name_server_that_forgets_a_broker_makes_it_unready() -> None:
    operator = Operator(groups=2)
    await operator.until_ready()
    del operator.admin.listings[operator.cluster.name_server_addresses[1]][("demo", "broker-0", 0)]
    assert await operator.turn() == RETRY_S
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", "NotRegistered")
    assert operator.status["nameServersReady"] == "1/2"
    assert ("Warning", "NotRegistered") in operator.kube.events()


async def test_drift_is_undone() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.kube.objects[("ConfigMap", NAMESPACE, "demo-broker-0-0")]["data"]["broker.conf"] = "brokerName=other\n"
    del operator.kube.objects[("Service", NAMESPACE, "demo-namesrv")]
    for _ in range(3):
        await operator.turn()
    config = operator.kube.objects[("ConfigMap", NAMESPACE, "demo-broker-0-0")]["data"]["broker.conf"]
    assert "brokerName=broker-0" in config
    assert ("Service", NAMESPACE, "demo-namesrv") in operator.kube.objects


async def test_what_others_added_stays() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.kube.objects[("Service", NAMESPACE, "demo-broker-0")]["metadata"]["annotations"]["theirs"] = "kept"
    operator.kube.objects[("Service", NAMESPACE, "demo-broker-0")]["spec"]["publishNotReadyAddresses"] = False
    await operator.turn()
    service = operator.kube.objects[("Service", NAMESPACE, "demo-broker-0")]
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["metadata"]["annotations"]["theirs"] == "kept"


async def test_an_object_of_someone_else_is_not_overwritten() -> None:
    operator = Operator()
    foreign = {
        "kind": "Service",
        "metadata": {"name": "demo-namesrv", "namespace": NAMESPACE},
        "spec": {"theirs": True},
    }
    operator.kube.put(foreign)
    await operator.turn()
    assert operator.ready["reason"] == "NameConflict"
    assert "Service demo-namesrv" in operator.ready["message"]
    assert operator.kube.objects[("Service", NAMESPACE, "demo-namesrv")]["spec"] == {"theirs": True}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"replication": {"mode": "dledger"}, "replicas": 3}, "NotSupported"),
        ({"config": {"brokerId": "7"}}, "ConfigDenied"),
    ],
)
async def test_a_refused_spec_changes_nothing(spec: dict[str, Any], reason: str) -> None:
    operator = Operator(**spec)
    assert await operator.turn() == RESYNC_S
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", reason)
    assert operator.names("StatefulSet") == []


async def test_what_runs_is_counted_while_the_spec_is_refused() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.kube.put(operator.body | {"spec": operator.body["spec"] | {"config": {"brokerId": "7"}}})
    await operator.turn()
    assert operator.ready["reason"] == "ConfigDenied"
    assert (operator.status["brokersReady"], operator.status["nameServersReady"]) == ("1/1", "2/2")


async def test_a_setting_that_brokers_do_not_know_is_told_once() -> None:
    operator = Operator(groups=2, config={"fileReservedTim": "48"})
    operator.admin.complaint = "unknown setting fileReservedTim is ignored, did you mean fileReservedTime?"
    await operator.until_ready()
    assert operator.ready["message"] == (
        "2 brokers serve and are listed by 2 name servers; "
        "unknown setting fileReservedTim is ignored, did you mean fileReservedTime?"
    )


async def test_an_object_that_the_server_refuses() -> None:
    operator = Operator()
    operator.kube.refuse["StatefulSet"] = Invalid(422, "affinity is nonsense")
    assert await operator.turn() == RETRY_S
    assert (operator.ready["reason"], operator.ready["message"]) == ("ApplyRefused", "affinity is nonsense")


async def test_a_server_that_is_away_is_an_error_to_retry() -> None:
    operator = Operator()
    operator.kube.refuse["Service"] = KubeError(0, "no answer")
    with pytest.raises(KubeError, match="no answer"):
        await operator.turn()


async def test_a_cluster_that_goes_needs_nothing() -> None:
    operator = Operator()
    operator.kube.put({**operator.body, "metadata": {**operator.body["metadata"], "deletionTimestamp": "t"}})
    assert await operator.turn() is None
    assert operator.kube.writes == []
    del operator.kube.objects[("BrokerCluster", NAMESPACE, "demo")]
    assert await operator.turn() is None


async def test_events_say_what_was_made() -> None:
    operator = Operator()
    await operator.until_ready()
    assert operator.kube.events().count(("Normal", "Created")) == 8
    assert ("Normal", "Ready") in operator.kube.events()
