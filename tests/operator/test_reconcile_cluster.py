"""Reconciliation of a BrokerCluster with in-memory objects and simulated name servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import TopicAnswer
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.follow_leaders import LeaderFollower
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.leaders import Leaders
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.model.definitions import OldDefinition
from raptormq_operator.model.topic import Topic
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.reconcile_cluster import PULSE_S, REFUSED_FIRST_S, RESYNC_S, RETRY_FIRST_S, ClusterReconciler
from raptormq_operator.status_writer import StatusWriter
from tests.operator.fake_admin import FakeAdmin
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, topic_body


class Operator:
    """A reconciler with its surroundings; `now` is the time in conditions."""

    def __init__(self, **spec: Any) -> None:
        self.kube = FakeKube()
        self.admin = FakeAdmin()
        self.now = "t0"
        self.today = datetime(2026, 11, 20, tzinfo=UTC)
        events = EventRecorder(self.kube, lambda: self.now)
        writer = StatusWriter(self.kube, events, lambda: self.now)
        self.time = 0.0
        self.probes = LatestProbes()
        self.topics_looked_at = 0
        keys = AccessKeys(self.kube, lambda: "random")
        self.leaders = Leaders(lambda: self.time)
        self.parts = ReconcilerParts(
            self.kube, self.admin, events, writer, SURROUNDINGS, self.probes, keys, self.leaders
        )
        self.follow_leaders = LeaderFollower(self.parts, lambda *_: None)
        self.reconcile = ClusterReconciler(
            self.parts,
            self._look_at_topics,
            clock=lambda: self.time,
            vary=lambda: 0.5,
            now=lambda: self.now,
            today=lambda: self.today,
        )
        self.body = self.kube.put(cluster_body(**spec))
        self.cluster = Cluster.from_object(self.body, SURROUNDINGS)

    def _look_at_topics(self, *_: str) -> None:
        self.topics_looked_at += 1

    async def turn(self) -> float | None:
        """Reconcile after an event."""
        return await self.reconcile(NAMESPACE, "demo", changed=True)

    async def pulse(self, after: float = PULSE_S) -> float | None:
        """Reconcile this many seconds later without an event."""
        self.time += after
        return await self.reconcile(NAMESPACE, "demo", changed=False)

    async def until_ready(self) -> None:
        self.admin.serve(self.cluster)
        for _ in range(5):
            self.kube.settle()
            await self.turn()
        assert self.ready["status"] == "True", self.ready

    def put_pods(self, kinds: dict[str, dict[str, Any]]) -> None:
        """Return pods of the first broker, whose StatefulSet has a change: those in `new` have it, others do not."""
        workload = self.kube.objects[("StatefulSet", NAMESPACE, "demo-broker-0-0")]
        workload["status"] |= {"updatedReplicas": 0, "updateRevision": "new"}
        for name, more in kinds.items():
            labels = names.broker_labels("demo", 0, 0) | {names.REVISION_LABEL: "new" if name == "new" else "old"}
            self.kube.put({"kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, **more}})

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects[("BrokerCluster", NAMESPACE, "demo")]["status"]
        return found

    @property
    def ready(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status["conditions"][0]
        assert found["type"] == "Ready"
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(name for found, _, name in self.kube.objects if found == kind)


async def test_from_nothing_to_ready() -> None:
    operator = Operator(groups=2)
    assert await operator.turn() == RETRY_FIRST_S
    assert operator.ready["reason"] == "Progressing"
    assert operator.names("StatefulSet") == ["demo-broker-0-0", "demo-broker-1-0", "demo-namesrv"]
    await operator.turn()
    assert operator.ready["reason"] == "PodsNotReady"
    operator.kube.settle()
    await operator.turn()
    assert operator.ready["reason"] == "NameServerUnreachable"
    operator.admin.serve(operator.cluster)
    operator.now = "t1"
    assert await operator.turn() == PULSE_S
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
    assert await operator.turn() == RETRY_FIRST_S
    assert operator.ready["reason"] == "PodsFailing"
    assert operator.ready["message"].endswith("ended with exit code 2: raptormq: setting a = 'b' is not usable")
    assert ("Warning", "PodsFailing") in operator.kube.events()
    operator.kube.put(pod | {"status": {"containerStatuses": [failing | {"ready": True}]}})
    await operator.until_ready()


async def test_a_change_evicts_the_pod_of_before_when_the_budget_lets_it_go() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.put_pods({"old": {}, "new": {}, "going": {"deletionTimestamp": "t0"}})
    operator.kube.protected = {"old"}
    await operator.turn()
    assert operator.ready["reason"] == "Progressing"
    assert "the disruption budget does not allow evicting old for a change" in operator.ready["message"]
    assert operator.names("Pod") == ["going", "new", "old"]
    operator.kube.protected = set()
    await operator.turn()
    assert operator.names("Pod") == ["going", "new"]
    assert ("Normal", "Evicted") in operator.kube.events()


async def test_an_eviction_that_is_refused_is_said_and_tried_again() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.put_pods({"old": {}})
    operator.kube.refuse["Eviction"] = Invalid(500, "This pod has more than one PodDisruptionBudget")
    assert await operator.turn() == RETRY_FIRST_S
    assert operator.ready["reason"] == "Progressing"
    assert operator.ready["message"] == (
        "demo-broker-0-0 cannot be evicted for a change: This pod has more than one PodDisruptionBudget"
    )
    assert ("Warning", "Progressing") in operator.kube.events()
    del operator.kube.refuse["Eviction"]
    await operator.turn()
    assert operator.names("Pod") == []


async def test_a_pod_whose_claim_is_being_deleted_stays_and_is_told_of() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.put_pods({"old": {}})
    metadata = {"name": "store-demo-broker-0-0-0", "namespace": NAMESPACE, "deletionTimestamp": "t0"}
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": metadata | {"labels": names.broker_labels("demo", 0, 0)},
        "spec": {"resources": {"requests": {"storage": operator.cluster.storage.size}}},
    }
    operator.kube.put(claim)
    await operator.turn()
    assert operator.names("Pod") == ["old"]
    ready, terminating = operator.status["conditions"]
    assert "its volume claim is being deleted" in ready["message"]
    assert (terminating["type"], terminating["status"]) == ("ClaimTerminating", "True")
    assert ("Warning", "ClaimTerminating") in operator.kube.events()


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
    assert await operator.turn() == RETRY_FIRST_S
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
    assert await operator.turn() == RETRY_FIRST_S
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
        ({"replication": {"mode": "masterSlave"}, "replicas": 2, "accessControl": {"enabled": True}}, "NotSupported"),
        ({"config": {"brokerId": "7"}}, "ConfigDenied"),
    ],
)
async def test_a_refused_spec_changes_nothing(spec: dict[str, Any], reason: str) -> None:
    operator = Operator(**spec)
    assert await operator.turn() == REFUSED_FIRST_S
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
    assert await operator.turn() == REFUSED_FIRST_S
    assert (operator.ready["reason"], operator.ready["message"]) == ("ApplyRefused", "affinity is nonsense")


async def test_objects_that_may_not_be_seen_are_in_the_condition() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.kube.refuse_lists["StatefulSet"] = Invalid(403, "statefulsets.apps is forbidden")
    assert await operator.turn() is not None
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", "ApplyRefused")
    assert operator.ready["message"] == "statefulsets.apps is forbidden"
    assert operator.status["brokersReady"] == "1/1"


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


async def test_a_pulse_costs_the_api_server_nothing_while_all_is_well() -> None:
    operator = Operator(groups=2)
    await operator.until_ready()
    requests = operator.kube.reads
    while operator.time < RESYNC_S - 2 * PULSE_S:
        assert await operator.pulse() == PULSE_S
    assert operator.kube.reads == requests
    await operator.pulse(2 * PULSE_S)
    assert operator.kube.reads > requests, "a periodic full reconciliation"


async def test_a_broker_that_falls_silent_is_in_the_condition_after_the_next_pulse() -> None:
    operator = Operator(groups=2)
    await operator.until_ready()
    operator.topics_looked_at = 0
    silent = operator.cluster.members[1].address
    operator.admin.down.add(silent)
    operator.admin.asked.clear()
    await operator.pulse()
    assert operator.admin.asked.count(silent) == 1, "each attempt takes the timeout of a request"
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", "BrokerUnreachable")
    assert operator.topics_looked_at == 1
    operator.admin.down.clear()
    await operator.pulse()
    assert operator.ready["status"] == "True"


async def test_topics_that_someone_else_changed_are_looked_at() -> None:
    operator = Operator()
    await operator.until_ready()
    operator.topics_looked_at = 0
    await operator.pulse()
    assert operator.topics_looked_at == 0
    operator.admin.topics[operator.cluster.members[0].address]["orders"] = TopicAnswer(1, 1, 6, {})
    await operator.pulse()
    assert operator.topics_looked_at == 1


async def test_looks_at_a_cluster_that_stays_unready_are_fewer_and_fewer() -> None:
    operator = Operator()
    await operator.turn()
    await operator.turn()
    waits, last = [], 0.0
    for _ in range(60):
        reads = operator.kube.reads
        await operator.pulse(1.0)
        if operator.kube.reads > reads:
            waits.append(operator.time - last)
            last = operator.time
    assert operator.ready["reason"] == "PodsNotReady"
    assert waits == [2.0, 4.0, 8.0, 16.0, 30.0]


async def test_a_refused_cluster_without_servers_is_hardly_looked_at() -> None:
    operator = Operator(config={"brokerId": "7"})
    waits = [await operator.turn()]
    for _ in range(6):
        waits.append(await operator.pulse(waits[-1] or 0))
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    asked = len(operator.admin.asked)
    await operator.turn()
    assert len(operator.admin.asked) > asked, "a change of the spec takes effect immediately"


async def test_what_is_known_of_a_cluster_goes_with_it() -> None:
    operator = Operator()
    await operator.until_ready()
    assert operator.probes.get(NAMESPACE, "demo") is not None
    del operator.kube.objects[("BrokerCluster", NAMESPACE, "demo")]
    operator.topics_looked_at = 0
    assert await operator.turn() is None
    assert (operator.probes.get(NAMESPACE, "demo"), operator.topics_looked_at) == (None, 1)


async def test_what_the_server_writes_another_way_is_applied_once_and_holds_up_nobody() -> None:
    """The API server drops `value: ""` of a toleration, and normalizes a selector of a Service."""

    def rewrite(manifest: Manifest) -> Manifest:
        if manifest["kind"] == "StatefulSet":
            manifest["spec"]["serviceName"] = manifest["spec"]["serviceName"].upper()
        return manifest

    operator = Operator(groups=2)
    operator.kube.rewrite = rewrite
    await operator.until_ready()
    writes = len(operator.kube.writes)
    await operator.turn()
    assert operator.kube.writes[writes:] == []
    body = {**operator.body, "spec": {**operator.body["spec"], "image": "raptormq:next"}}
    operator.kube.put({**body, "status": operator.status})
    await operator.until_ready()
    images = {
        manifest["spec"]["template"]["spec"]["containers"][0]["image"]
        for (kind, _, _), manifest in operator.kube.objects.items()
        if kind == "StatefulSet"
    }
    assert images == {"raptormq:next"}
    assert operator.status["brokersUpdated"] == "2/2"


async def test_a_field_that_something_else_sets_again_and_again_is_named_and_applied_later_and_later() -> None:
    operator = Operator()
    await operator.until_ready()
    service = ("Service", NAMESPACE, "demo-broker-0")
    applies = []
    for _ in range(60):
        operator.kube.objects[service]["spec"]["selector"]["theirs"] = "x"
        before = len(operator.kube.writes)
        await operator.turn()
        applies += [
            operator.time for verb, kind, _ in operator.kube.writes[before:] if (verb, kind) == ("apply", "Service")
        ]
        operator.time += 1.0
    assert applies == [0.0, 2.0, 6.0, 14.0, 30.0]
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", "ObjectDiffers")
    assert "Service demo-broker-0: spec.selector is " in operator.ready["message"]
    operator.time += 60.0
    await operator.turn()
    await operator.turn()
    assert operator.ready["status"] == "True"


async def test_a_key_in_the_selector_of_a_service_is_taken_out() -> None:
    operator = Operator()
    await operator.until_ready()
    service = ("Service", NAMESPACE, "demo-broker-0")
    wanted = dict(operator.kube.objects[service]["spec"]["selector"])
    operator.kube.objects[service]["spec"]["selector"]["theirs"] = "x"
    await operator.turn()
    assert operator.kube.objects[service]["spec"]["selector"] == wanted


async def test_who_takes_no_new_connection_is_not_reachable() -> None:
    operator = Operator(groups=2)
    await operator.until_ready()
    operator.admin.unresolved.add(operator.cluster.members[0].address)
    await operator.pulse()
    assert (operator.ready["status"], operator.ready["reason"]) == ("False", "BrokerUnreachable")
    assert operator.status["brokersReady"] == "1/2"


async def test_an_object_that_is_refused_leaves_the_others_to_be_made() -> None:
    operator = Operator(groups=2)
    operator.kube.refuse["PodDisruptionBudget"] = Invalid(422, "a budget is nonsense")
    await operator.turn()
    assert operator.names("StatefulSet") == ["demo-broker-0-0", "demo-broker-1-0", "demo-namesrv"]
    assert (operator.ready["reason"], operator.ready["message"]) == ("ApplyRefused", "a budget is nonsense")


async def test_a_refused_configuration_leaves_its_broker_as_it_is() -> None:
    operator = Operator()
    operator.kube.refuse["ConfigMap"] = Invalid(422, "too large")
    await operator.turn()
    assert operator.names("StatefulSet") == []
    assert operator.names("Service") == ["demo-broker-0", "demo-namesrv"]


async def test_a_disk_that_came_back_empty_is_a_condition_and_a_warning() -> None:
    operator = Operator()
    address = operator.cluster.members[0].address
    operator.admin.max_offsets[address] = 4096
    await operator.until_ready()
    writes = len(operator.kube.writes)
    operator.admin.max_offsets[address] = 5000
    await operator.turn()
    assert operator.kube.writes[writes:] == [], "the log grows continuously"
    operator.admin.max_offsets[address] = 0
    await operator.turn()
    ready, lost = operator.status["conditions"]
    assert (ready["status"], lost["type"], lost["status"]) == ("True", "MessagesLost", "True")
    assert "messages up to offset 4096 of its commit log are lost" in lost["message"]
    assert ("Warning", "MessagesLost") in operator.kube.events()


async def test_a_secret_that_is_gone_while_all_goes_on() -> None:
    operator = Operator(imagePullSecrets=[{"name": "pull"}], tls={"secretName": "certificate"})
    operator.admin.certificate = datetime(2026, 12, 1, tzinfo=UTC)
    for name in ("pull", "certificate"):
        operator.kube.put({"kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}})
    operator.today = datetime(2026, 11, 1, tzinfo=UTC)
    await operator.until_ready()
    assert len(operator.status["conditions"]) == 1
    del operator.kube.objects["Secret", NAMESPACE, "pull"]
    operator.today = datetime(2026, 11, 20, tzinfo=UTC)
    await operator.turn()
    ready, ends, missing = operator.status["conditions"]
    assert (ready["status"], ends["type"], missing["type"]) == ("True", "CertificateExpires", "SecretMissing")
    assert "there is no Secret pull" in missing["message"]


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "Secret"])
async def test_a_role_without_claims_or_secrets_costs_their_conditions_alone(kind: str) -> None:
    operator = Operator(tls={"secretName": "certificate"})
    operator.kube.refuse_lists[kind] = Invalid(403, "it is forbidden")
    await operator.until_ready()
    event = {
        "kind": "Event",
        "metadata": {"name": "e", "namespace": NAMESPACE},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "tls" : secret "certificate" not found',
        "lastTimestamp": "2026-11-20T00:00:00Z",
        "involvedObject": {"kind": "Pod", "name": "demo-broker-0-0-0"},
    }
    operator.kube.put(event)
    operator.today = datetime(2026, 11, 20, 0, 1, tzinfo=UTC)
    await operator.turn()
    assert [condition["type"] for condition in operator.status["conditions"]] == ["Ready", "SecretMissing"]


async def test_a_definition_that_is_older_than_the_operator_is_an_error_in_words() -> None:
    operator = Operator()
    del operator.kube.objects["BrokerCluster", NAMESPACE, "demo"]["spec"]["metrics"]
    with pytest.raises(
        OldDefinition, match="BrokerCluster has no field 'metrics': the installed CustomResourceDefinitions"
    ):
        await operator.turn()
    topic = topic_body()
    del topic["spec"]["permissions"]
    with pytest.raises(OldDefinition, match="Topic has no field 'permissions'"):
        Topic.from_object(topic)


async def test_steps_are_counted() -> None:
    def steps(step: str) -> float:
        return REGISTRY.get_sample_value("raptormq_operator_steps_total", {"step": step, "kind": "Service"}) or 0.0

    operator = Operator()
    made, changed, refused = steps("made"), steps("changed"), steps("refused")
    await operator.until_ready()
    assert (steps("made") - made, steps("changed") - changed) == (2, 0)
    operator.kube.objects["Service", NAMESPACE, "demo-broker-0"]["spec"]["clusterIP"] = "10.0.0.1"
    operator.kube.refuse["Service"] = Invalid(422, "no")
    await operator.turn()
    assert steps("refused") - refused == 1
    operator.kube.refuse.clear()
    await operator.turn()
    assert (steps("made") - made, steps("changed") - changed) == (2, 1)
