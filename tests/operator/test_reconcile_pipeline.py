"""Reconciliation of a SparkPipeline with in-memory objects and simulated brokers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raptormq_operator.access_keys import AccessKeys
from raptormq_operator.admin import TopicAnswer
from raptormq_operator.cluster_probe import LatestProbes
from raptormq_operator.driver_progress import Progress, summary
from raptormq_operator.kube.errors import Invalid, KubeError
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.leaders import Leaders
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.parts import ReconcilerParts
from raptormq_operator.reconcile_pipeline import PULSE_S, PipelineReconciler
from raptormq_operator.status_writer import StatusWriter
from tests.operator.fake_admin import FakeAdmin
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body, pipeline_body

HASH_WITHOUT_ADDITIONS = "a594a8e84a8f095a"
"""Hash of the driver of `pipeline_body()` before env, volumes and scheduling were fields of the spec."""
START = datetime(2026, 11, 20, tzinfo=UTC)


class Operator:
    """A reconciler with its surroundings: a cluster with the topic `flights`, and drivers that report `progress`."""

    def __init__(self, *, enabled: bool = True, **spec: Any) -> None:
        self.kube, self.admin = FakeKube(), FakeAdmin()
        self.time = 0.0
        self.progress: Progress | None = None
        cluster = Cluster.from_object(self.kube.put(cluster_body()), SURROUNDINGS)
        self.admin.serve(cluster)
        (self.broker,) = (member.address for member in cluster.members)
        self.admin.topics[self.broker] = {"flights": TopicAnswer(8, 8, 6, {})}
        self.make(**spec)
        self.restart(enabled=enabled)

    def make(self, name: str = "delays", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> None:
        self.kube.put(pipeline_body(name, metadata={"creationTimestamp": created}, **spec))

    def restart(self, *, enabled: bool = True) -> None:
        """Start another process of the operator, without state."""
        events = EventRecorder(self.kube, lambda: "t")
        writer = StatusWriter(self.kube, events, lambda: "t")
        keys = AccessKeys(self.kube, lambda: "random")
        parts = ReconcilerParts(self.kube, self.admin, events, writer, SURROUNDINGS, LatestProbes(), keys, Leaders())
        self.reconcile = PipelineReconciler(
            parts,
            self,
            enabled=enabled,
            today=lambda: START + timedelta(seconds=self.time),
            clock=lambda: self.time,
            vary=lambda: 0.5,
        )

    async def ask(self, address: str) -> Progress | None:
        assert address == "10.0.0.7"
        return self.progress

    async def turn(self, name: str = "delays") -> float | None:
        return await self.reconcile(NAMESPACE, name)

    def status(self, name: str = "delays") -> dict[str, Any]:
        found: dict[str, Any] = self.kube.objects[("SparkPipeline", NAMESPACE, name)]["status"]
        return found

    def reason(self, name: str = "delays") -> tuple[str, str]:
        (ready,) = self.status(name)["conditions"]
        return ready["reason"], ready["message"]

    @property
    def driver(self) -> dict[str, Any] | None:
        return self.kube.objects.get(("Pod", NAMESPACE, "delays-driver"))

    def run_driver(self) -> None:
        """Start the driver like the kubelet. The driver creates an executor."""
        assert self.driver is not None
        self.driver["status"] = {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        labels = {"raptormq.io/pipeline": "delays", "spark-role": "executor"}
        metadata = {"name": "delays-exec-1", "namespace": NAMESPACE, "labels": labels}
        self.kube.put({"kind": "Pod", "metadata": metadata, "status": {"phase": "Running"}})

    def end_driver(self, code: int, message: str) -> None:
        assert self.driver is not None
        now = (START + timedelta(seconds=self.time)).isoformat()
        end = {"exitCode": code, "message": message, "startedAt": now, "finishedAt": now}
        self.driver["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": end}}]}


def variable(kind: str, name: str, **source: Any) -> dict[str, Any]:
    """Return an environment variable from key `key` of a Secret or ConfigMap."""
    return {"name": "SETTING", "valueFrom": {f"{kind}KeyRef": {"name": name, "key": "key", **source}}}


async def test_from_nothing_to_progress() -> None:
    operator = Operator()
    assert await operator.turn() == PULSE_S
    made = {(kind, name) for kind, _, name in operator.kube.objects if kind not in ("Event", "BrokerCluster")}
    assert made == {
        ("SparkPipeline", "delays"),
        ("ServiceAccount", "delays-driver"),
        ("Role", "delays-driver"),
        ("RoleBinding", "delays-driver"),
        ("ConfigMap", "delays-spark"),
        ("Service", "delays-driver"),
        ("PersistentVolumeClaim", "delays-checkpoint"),
        ("Pod", "delays-driver"),
    }
    assert (
        "ownerReferences"
        not in operator.kube.objects["PersistentVolumeClaim", NAMESPACE, "delays-checkpoint"]["metadata"]
    )
    operator.run_driver()
    offsets = {"flights": {"broker-0": {"0": 7}}}
    queries = [{"name": "q", "batch": 3, "lag": 5, "rowsPerSecond": 2.5, "offsets": offsets}]
    operator.progress = summary({"queries": queries})
    await operator.turn()
    status = operator.status()
    assert operator.reason() == ("Ready", "driver and 1 executors run")
    assert (status["phase"], status["driver"], status["executors"]) == ("Running", "delays-driver", 1)
    assert (status["lag"], status["rowsPerSecond"], status["queries"]) == (5, 2.5, queries)
    writes = len(operator.kube.writes)
    operator.progress = None  # one missing response keeps the last report
    await operator.turn()
    assert operator.status()["lag"] == 5
    assert len(operator.kube.writes) == writes


async def test_a_failing_application_backs_off_through_restarts_of_the_operator() -> None:
    operator = Operator()
    await operator.turn()
    delays = []
    for _ in range(7):
        operator.end_driver(1, "ValueError: no")
        delay = await operator.turn()
        assert delay is not None
        delays.append(delay)
        operator.restart()
        assert await operator.turn() == delay
        operator.time += delay
        await operator.turn()
        assert operator.driver is None
        await operator.turn()
        assert operator.driver is not None
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert (operator.status()["restarts"], operator.status()["lastError"]) == (7, "exit code 1: ValueError: no")


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"clusterRef": {"name": "other"}}, "ClusterNotFound", "no BrokerCluster other"),
        ({"topics": ["flights", "weather"]}, "TopicNotFound", "no topic weather"),
        ({"credentials": {"secretName": "reader"}}, "SecretNotUsable", "Secret reader does not exist"),
        ({"tls": {"secretName": "empty"}}, "SecretNotUsable", "Secret empty has no ca.crt"),
        (
            {"application": {"configMap": {"name": "app", "key": "a.py"}}},
            "ApplicationNotFound",
            "ConfigMap app does not",
        ),
        ({"checkpoint": {"claimName": "mine"}}, "CheckpointPending", "claim mine does not exist"),
        (
            {"checkpoint": {"claimName": "once"}, "stateful": True},
            "CheckpointNotShared",
            "no access mode ReadWriteMany",
        ),
        ({"sparkConf": {"spark.executor.instances": "9"}}, "ConfigDenied", "spark.executor.instances"),
        (
            {"pyFiles": ["/a.zip"], "sparkConf": {"spark.submit.pyFiles": "/b.zip"}},
            "ConfigDenied",
            "spark.submit.pyFiles",
        ),
        ({"topics": [], "topicPattern": "flights("}, "InvalidSpec", "topicPattern is not a regular expression"),
        (
            {"env": [variable("secret", "absent")]},
            "ReferenceNotFound",
            "Secret absent does not exist",
        ),
        ({"env": [variable("secret", "empty")]}, "ReferenceNotFound", "Secret empty has no key"),
        ({"env": [variable("configMap", "absent")]}, "ReferenceNotFound", "ConfigMap absent does not exist"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "empty", "items": [{"key": "k", "path": "p"}]}}]},
            "ReferenceNotFound",
            "Secret empty has no k",
        ),
        ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "ReferenceNotFound", "ConfigMap c does not exist"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
            "ReferenceNotFound",
            "PersistentVolumeClaim data does not exist",
        ),
        ({"serviceAccountName": "absent"}, "ReferenceNotFound", "ServiceAccount absent does not exist"),
    ],
)
async def test_no_driver_starts_without_what_it_needs(spec: dict[str, Any], reason: str, words: str) -> None:
    operator = Operator(**spec)
    operator.kube.put({"kind": "Secret", "metadata": {"name": "empty", "namespace": NAMESPACE}, "data": {}})
    claim = {"spec": {"accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Bound"}}
    operator.kube.put({"kind": "PersistentVolumeClaim", "metadata": {"name": "once", "namespace": NAMESPACE}, **claim})
    first = await operator.turn()
    assert first is not None
    assert operator.driver is None
    assert operator.status()["phase"] == "Pending"
    assert operator.reason()[0] == reason
    assert words in operator.reason()[1]
    operator.time += first
    assert (await operator.turn() or 0) > first  # no busy loop


async def test_optional_references_need_no_object() -> None:
    volume = {"name": "v", "configMap": {"name": "absent", "optional": True}}
    operator = Operator(env=[variable("secret", "absent", optional=True)], volumes=[volume])
    await operator.turn()
    assert operator.driver is not None


async def test_pattern_of_topics_starts_a_driver_without_a_topic() -> None:
    operator = Operator(topics=[], topicPattern="weather.*")
    operator.admin.topics[operator.broker] = {}
    await operator.turn()
    assert operator.driver is not None
    (container,) = operator.driver["spec"]["containers"]
    assert {"name": "RAPTORMQ_TOPIC_PATTERN", "value": "weather.*"} in container["env"]


async def test_suspended_pipeline_has_no_driver_and_keeps_its_checkpoint() -> None:
    operator = Operator()
    await operator.turn()
    operator.run_driver()
    await operator.turn()
    operator.make(suspend=True)
    await operator.turn()
    assert operator.driver is None
    assert operator.status()["phase"] == "Suspended"
    await operator.turn()
    assert operator.reason() == ("Suspended", "suspend is true")
    assert ("PersistentVolumeClaim", NAMESPACE, "delays-checkpoint") in operator.kube.objects
    operator.make()
    await operator.turn()
    assert operator.driver is not None


async def test_suspended_pipeline_needs_neither_cluster_nor_topic() -> None:
    operator = Operator(suspend=True, clusterRef={"name": "other"})
    await operator.turn()
    assert operator.reason() == ("Suspended", "suspend is true")


async def test_refused_pod_leaves_the_driver_of_the_previous_spec_running() -> None:
    operator = Operator()
    await operator.turn()
    operator.run_driver()
    operator.make(scheduling={"affinity": {"nodeAffinity": {"nonsense": 1}}})
    operator.kube.refuse["Pod"] = Invalid(422, "spec.affinity: Invalid value")
    await operator.turn()
    assert operator.reason() == ("ApplyRefused", "spec.affinity: Invalid value")
    assert operator.driver is not None
    del operator.kube.refuse["Pod"]
    await operator.turn()
    assert operator.driver is None, "it is replaced"


async def test_driver_and_executors_get_the_additions_of_the_spec() -> None:
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    operator = Operator(
        env=[{"name": "REGION", "value": "east"}],
        volumes=[{"name": "data", "emptyDir": {}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        pyFiles=["/data/a.py", "https://example.org/b.zip"],
        serviceAccountName="spark",
        driver={"cpuLimit": "2"},
        executors={"cpuLimit": "1500m", "onDriverNode": True},
        scheduling={"affinity": affinity, "priorityClassName": "low", "nodeSelector": {"disk": "ssd"}},
    )
    operator.kube.put({"kind": "ServiceAccount", "metadata": {"name": "spark", "namespace": NAMESPACE}})
    await operator.turn()
    assert operator.driver is not None
    data = operator.kube.objects["ConfigMap", NAMESPACE, "delays-spark"]["data"]
    driver, executor = operator.driver["spec"], json.loads(data["executor.yaml"])["spec"]
    for spec in (driver, executor):
        (container,) = spec["containers"]
        assert {"name": "REGION", "value": "east"} in container["env"]
        assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
        assert {"name": "data", "emptyDir": {}} in spec["volumes"]
        assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("spark", "low")
        assert spec["nodeSelector"] == {"disk": "ssd"}
    assert driver["affinity"] == affinity
    terms = executor["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["topologyKey"] for term in terms] == ["zone", "kubernetes.io/hostname"]
    assert driver["containers"][0]["resources"]["limits"]["cpu"] == "2"
    assert "spark.kubernetes.executor.limit.cores 1500m\n" in data["spark-defaults.conf"]
    assert "spark.submit.pyFiles /data/a.py,https://example.org/b.zip\n" in data["spark-defaults.conf"]
    assert ("ServiceAccount", NAMESPACE, "delays-driver") not in operator.kube.objects
    (subject,) = operator.kube.objects["RoleBinding", NAMESPACE, "delays-driver"]["subjects"]
    assert subject["name"] == "spark"


async def test_fields_that_are_not_set_leave_the_driver_of_an_earlier_operator_running() -> None:
    """The operator replaces a driver whose hash differs, so an upgrade must not change the objects."""
    operator = Operator()
    await operator.turn()
    assert operator.driver is not None
    assert operator.driver["metadata"]["annotations"][names.MANIFEST_HASH_ANNOTATION] == HASH_WITHOUT_ADDITIONS


async def test_a_missing_topic_that_appears_starts_the_driver() -> None:
    operator = Operator(topics=["weather"])
    await operator.turn()
    operator.admin.topics[operator.broker]["weather"] = TopicAnswer(1, 1, 6, {})
    await operator.turn()
    assert operator.driver is not None


async def test_a_cluster_that_does_not_answer_is_not_a_missing_topic() -> None:
    operator = Operator()
    operator.admin.down.add(operator.broker)
    await operator.turn()
    assert operator.reason()[0] == "ClusterNotReady"
    assert operator.driver is None


async def test_running_driver_is_not_ready_before_its_first_query_runs() -> None:
    operator = Operator()
    await operator.turn()
    operator.run_driver()
    for operator.progress in (None, summary({"queries": []})):
        await operator.turn()
        assert operator.status()["phase"] == "Running"
        assert operator.reason() == (
            "Progressing",
            "driver and 1 executors run; no streaming query has started yet",
        )
    operator.progress = summary({"queries": [{"name": "q"}]})
    await operator.turn()
    assert operator.reason()[0] == "Ready"
    operator.progress = None
    await operator.turn()
    assert operator.reason()[0] == "Ready", "one response is missing"


async def test_a_running_driver_survives_the_loss_of_what_it_needed() -> None:
    operator = Operator()
    await operator.turn()
    operator.run_driver()
    operator.progress = summary({"queries": [{"name": "q"}]})
    operator.admin.topics[operator.broker] = {}
    await operator.turn()
    assert operator.reason()[0] == "Ready"
    del operator.kube.objects["BrokerCluster", NAMESPACE, "demo"]
    await operator.turn()
    assert operator.reason()[0] == "ClusterNotFound"
    assert operator.driver is not None
    assert operator.status()["phase"] == "Running"


async def test_two_pipelines_cannot_have_one_checkpoint() -> None:
    operator = Operator()
    shared = {"claimName": "delays-checkpoint", "folder": "delays"}
    operator.make("second", created="2026-01-02T00:00:00Z", checkpoint=shared)
    await operator.turn()
    await operator.turn("second")
    assert operator.reason("second") == (
        "CheckpointConflict",
        "SparkPipeline delays has folder delays of claim delays-checkpoint: set another checkpoint.folder",
    )
    assert ("Pod", NAMESPACE, "second-driver") not in operator.kube.objects
    operator.make("second", created="2026-01-02T00:00:00Z", checkpoint=shared | {"folder": "other"})
    await operator.turn("second")
    assert ("Pod", NAMESPACE, "second-driver") in operator.kube.objects


async def test_a_changed_application_replaces_the_driver() -> None:
    operator = Operator(application={"configMap": {"name": "app", "key": "a.py"}})
    application = {"kind": "ConfigMap", "metadata": {"name": "app", "namespace": NAMESPACE}, "data": {"a.py": "1"}}
    operator.kube.put(application)
    await operator.turn()
    operator.run_driver()
    await operator.turn()
    place = ("Pod", NAMESPACE, "delays-driver")
    first = operator.kube.objects[place]["metadata"]["uid"]
    operator.kube.put({**application, "data": {"a.py": "2"}})
    await operator.turn()
    assert place not in operator.kube.objects
    assert operator.status()["phase"] == "Restarting"
    await operator.turn()
    assert operator.kube.objects[place]["metadata"]["uid"] != first


async def test_what_belongs_to_others_is_not_touched() -> None:
    operator = Operator()
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "delays-spark", "namespace": NAMESPACE}}
    operator.kube.put(foreign)
    await operator.turn()
    assert operator.reason() == ("NameConflict", "ConfigMap delays-spark exists and does not belong to this pipeline")
    assert "data" not in operator.kube.objects["ConfigMap", NAMESPACE, "delays-spark"]
    assert operator.driver is None


async def test_a_retained_claim_is_taken_by_the_next_pipeline_of_the_name() -> None:
    operator = Operator()
    await operator.turn()
    for place in [place for place in operator.kube.objects if place[2] in ("delays", "delays-driver", "delays-spark")]:
        del operator.kube.objects[place]
    assert await operator.turn() is None
    operator.kube.put(pipeline_body(metadata={"uid": "another"}))
    await operator.turn()
    assert operator.driver is not None


async def test_an_operator_without_the_rights_says_so() -> None:
    operator = Operator(enabled=False)
    assert await operator.turn() is None
    assert operator.reason()[0] == "NotSupported"
    assert "sparkPipelines.enabled" in operator.reason()[1]


async def test_secrets_that_the_operator_may_not_read_are_left_to_the_kubelet() -> None:
    operator = Operator(credentials={"secretName": "reader"})
    operator.kube.refuse_lists["Secret"] = KubeError(403, "forbidden")
    await operator.turn()
    assert operator.driver is not None
    (container,) = operator.driver["spec"]["containers"]
    assert {"name": "RAPTORMQ_SECRET_KEY", "valueFrom": {"secretKeyRef": {"name": "reader", "key": "secretKey"}}} in (
        container["env"]
    )


async def test_state_needs_a_volume_that_executors_mount_on_the_node_of_the_driver() -> None:
    operator = Operator(stateful=True, executors={"min": 1, "max": 4, "onDriverNode": True})
    await operator.turn()
    data = operator.kube.objects["ConfigMap", NAMESPACE, "delays-spark"]["data"]
    template = json.loads(data["executor.yaml"])["spec"]
    assert "/checkpoint" in [mount["mountPath"] for mount in template["containers"][0]["volumeMounts"]]
    (term,) = template["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert operator.driver is not None
    assert term["labelSelector"]["matchLabels"].items() <= operator.driver["metadata"]["labels"].items()
    assert "spark.dynamicAllocation.maxExecutors 4\n" in data["spark-defaults.conf"]


@pytest.mark.parametrize("own", ["", "-Xss4m"])
async def test_a_driver_without_memory_ends_unless_the_spec_says_otherwise(own: str) -> None:
    name = "spark.driver.defaultJavaOptions"
    operator = Operator(sparkConf={name: own} if own else {})
    await operator.turn()
    data = operator.kube.objects["ConfigMap", NAMESPACE, "delays-spark"]["data"]
    assert f"{name} {own or '-XX:+ExitOnOutOfMemoryError'}\n" in data["spark-defaults.conf"]


async def test_the_driver_of_a_spark_application_is_reported() -> None:
    operator = Operator(runBy="SparkKubernetesOperator")
    await operator.turn()
    made = {(kind, name) for kind, _, name in operator.kube.objects if kind not in ("Event", "BrokerCluster")}
    assert made == {
        ("SparkPipeline", "delays"),
        ("ServiceAccount", "delays-driver"),
        ("Role", "delays-driver"),
        ("RoleBinding", "delays-driver"),
        ("Service", "delays-driver"),
        ("PersistentVolumeClaim", "delays-checkpoint"),
        ("SparkApplication", "delays"),
    }
    place = ("SparkApplication", NAMESPACE, "delays")
    template = operator.kube.objects[place]["spec"]["driverSpec"]["podTemplateSpec"]
    for name, labels in (
        ("delays-0-driver", template["metadata"]["labels"]),
        ("delays-exec-1", {"raptormq.io/pipeline": "delays"}),
    ):
        status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        operator.kube.put({"kind": "Pod", "metadata": metadata, "status": status})
    operator.kube.objects[place]["status"] = {"currentState": {"currentStateSummary": "RunningHealthy"}}
    operator.progress = summary({"queries": [{"name": "q", "lag": 5}]})
    assert await operator.turn() == PULSE_S
    assert operator.reason() == ("Ready", "driver and 1 executors run")
    assert (operator.status()["lag"], operator.status()["driver"]) == (5, "delays-0-driver")
    operator.make(runBy="SparkKubernetesOperator", arguments=["--other"])
    await operator.turn()
    assert place not in operator.kube.objects
    await operator.turn()
    assert place not in operator.kube.objects
    del operator.kube.objects["Pod", NAMESPACE, "delays-0-driver"]
    await operator.turn()
    assert operator.kube.objects[place]["spec"]["driverArgs"][1:] == ["--other"]


@pytest.mark.parametrize("status", [403, 404])
async def test_no_application_is_made_without_the_other_operator(status: int) -> None:
    operator = Operator(runBy="SparkKubernetesOperator")
    operator.kube.refuse_lists["SparkApplication"] = KubeError(status, "the server could not find it")
    await operator.turn()
    assert operator.reason()[0] == "NotSupported"
    assert "Apache Spark Kubernetes Operator" in operator.reason()[1]
    assert ("SparkApplication", NAMESPACE, "delays") not in operator.kube.objects


async def test_a_foreign_application_is_not_touched() -> None:
    operator = Operator(runBy="SparkKubernetesOperator")
    foreign = {"kind": "SparkApplication", "metadata": {"name": "delays", "namespace": NAMESPACE}, "spec": {}}
    operator.kube.put(foreign)
    await operator.turn()
    text = "SparkApplication delays exists and does not belong to this pipeline"
    assert operator.reason() == ("NameConflict", text)
    assert operator.kube.objects["SparkApplication", NAMESPACE, "delays"]["spec"] == {}


async def test_a_driver_that_is_silent_is_ended_but_not_while_it_starts() -> None:
    operator = Operator(restartPolicy={"progressDeadlineSeconds": 600})
    await operator.turn()
    assert operator.driver is not None
    (container,) = operator.driver["spec"]["containers"]
    starts, silent = (
        container[probe]["periodSeconds"] * container[probe]["failureThreshold"]
        for probe in ("startupProbe", "livenessProbe")
    )
    assert (starts, silent) == (900, 120)
    assert {"name": "RAPTORMQ_PROGRESS_DEADLINE_S", "value": "600"} in container["env"]


async def test_executors_connect_to_the_address_of_the_pod() -> None:
    """Spark sends the bind address of the driver to executors, so they could not reach 0.0.0.0."""
    operator = Operator()
    await operator.turn()
    assert operator.driver is not None
    (container,) = operator.driver["spec"]["containers"]
    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    for name in ("bindAddress", "host"):
        assert f"--conf spark.driver.{name}=$(POD_IP) " in variables["PYSPARK_SUBMIT_ARGS"]
    assert list(variables).index("POD_IP") < list(variables).index("PYSPARK_SUBMIT_ARGS")
    data = operator.kube.objects["ConfigMap", NAMESPACE, "delays-spark"]["data"]
    assert "bindAddress" not in data["spark-defaults.conf"]


async def test_secrets_are_not_in_any_object() -> None:
    operator = Operator(credentials={"secretName": "reader"})
    keys = {"accessKey": base64.b64encode(b"reader").decode(), "secretKey": base64.b64encode(b"hush-hush").decode()}
    operator.kube.put({"kind": "Secret", "metadata": {"name": "reader", "namespace": NAMESPACE}, "data": keys})
    await operator.turn()
    others = [body for (kind, _, _), body in operator.kube.objects.items() if kind != "Secret"]
    assert "hush-hush" not in json.dumps(others)
    assert keys["secretKey"] not in json.dumps(others)


def test_what_a_driver_says_is_not_trusted() -> None:
    assert summary([]) is None
    assert summary({"queries": "all"}) is None
    assert summary({"queries": []}) == {}
    bad = {"name": "q", "batch": "x", "lag": None, "rowsPerSecond": True, "offsets": {"t": {"b": {"0": "7"}}}}
    assert summary({"queries": [5, {}, bad]}) == {"queries": [{"name": "q"}], "rowsPerSecond": 0}
