"""SparkPipelines on a real API server, with the permissions of the chart. The test plays the kubelet."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from raptormq_operator.kube.client import path
from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.resources import make, peers, reasons
from tests.api.stand_ins import settling
from tests.api.test_operator import allow

SPEC: dict[str, Any] = {
    "clusterRef": {"name": "demo"},
    "topics": ["flights"],
    "image": "raptormq-spark:test",
    "application": {"file": "/opt/examples/spark_route_delays.py"},
    "restartPolicy": {"backoffSeconds": 1, "maxBackoffSeconds": 2},
}


class Pipeline:
    """The objects of the pipeline `delays` in a namespace."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object; empty if it does not exist."""
        try:
            found: dict[str, Any] = self.plane.request("GET", path(kind, self.namespace, name))
        except HTTPError:
            return {}
        return found

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("SparkPipeline", "delays").get("status", {})
        return found

    @property
    def reason(self) -> str:
        return reasons(self.plane, self.namespace, "sparkpipelines").get("delays", "")

    def is_refused(self, reason: str, text: str) -> bool:
        """Return whether the condition has this reason, and a message with this text."""
        return self.reason == reason and text in self.status["conditions"][0]["message"]

    def driver(self) -> str:
        """Return the uid of the driver pod; empty without one."""
        return str(self.get("Pod", "delays-driver").get("metadata", {}).get("uid", ""))

    def change(self, **spec: Any) -> None:
        where = path("SparkPipeline", self.namespace, "delays")
        self.plane.request("PATCH", where, {"spec": spec}, "application/merge-patch+json")

    def fail(self, message: str) -> None:
        """Make the container of the driver end with an error."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        end = {"exitCode": 1, "reason": "Error", "message": message, "startedAt": now, "finishedAt": now}
        container = {"name": "driver", "ready": False, "restartCount": 0, "image": "x", "imageID": "x"}
        status = {"phase": "Failed", "containerStatuses": [container | {"state": {"terminated": end}}]}
        where = path("Pod", self.namespace, "delays-driver") + "/status"
        self.plane.request("PATCH", where, {"status": status}, "application/merge-patch+json")


async def test_a_pipeline_from_a_missing_topic_through_failures_of_driver_and_operator(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    allow(shared_plane, namespace, values="sparkPipelines.enabled=true")
    switches = {"WATCH_NAMESPACES": namespace, "SPARK_PIPELINES": "true"}
    kubeconfig = shared_plane.kubeconfig("limited")
    pipeline = Pipeline(shared_plane, namespace)
    with peers(tmp_path, (namespace, "demo", 1, 1)), settling(shared_plane):
        with OperatorProcess(tmp_path, kubeconfig, "first", **switches) as first:
            make(shared_plane, namespace, "BrokerCluster", "demo")
            make(shared_plane, namespace, "SparkPipeline", "delays", **SPEC)
            await until("the topic is missed", lambda: pipeline.reason == "TopicNotFound")
            assert pipeline.driver() == ""
            make(shared_plane, namespace, "Topic", "flights")
            await until("there is a driver", pipeline.driver)
            assert pipeline.get("Role", "delays-driver")["rules"]
            claim = pipeline.get("PersistentVolumeClaim", "delays-checkpoint")
            assert "ownerReferences" not in claim["metadata"]
            await until("it waits for its volume", lambda: pipeline.reason == "CheckpointPending")
            before = pipeline.driver()
            pipeline.fail("ValueError: broken")
            await until(
                "the error is said", lambda: pipeline.status.get("lastError") == "exit code 1: ValueError: broken"
            )
            first.process.kill()  # between the count of the failure and the next driver, or after both
        with OperatorProcess(tmp_path, kubeconfig, "second", **switches):
            await until("there is another driver", lambda: pipeline.driver() not in ("", before))
            assert pipeline.status["restarts"] == 1
            before = pipeline.driver()
            pipeline.change(topics=["flights", "none"])
            await until("the new spec is refused", lambda: pipeline.reason == "TopicNotFound")
            assert pipeline.driver() == before
            pipeline.change(topics=["flights"], arguments=["--other"])
            await until("the driver is replaced", lambda: pipeline.driver() not in ("", before))


async def test_spec_that_the_api_server_refuses_keeps_the_driver_and_suspend_ends_it(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    allow(shared_plane, namespace, values="sparkPipelines.enabled=true")
    switches = {"WATCH_NAMESPACES": namespace, "SPARK_PIPELINES": "true"}
    pipeline = Pipeline(shared_plane, namespace)
    bad_affinity: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    twice = [{"name": "data", "mountPath": where} for where in ("/data", "/checkpoint")]
    with (
        peers(tmp_path, (namespace, "demo", 1, 1)),
        settling(shared_plane),
        OperatorProcess(tmp_path, shared_plane.kubeconfig("limited"), **switches),
    ):
        make(shared_plane, namespace, "BrokerCluster", "demo")
        make(shared_plane, namespace, "Topic", "flights")
        make(shared_plane, namespace, "SparkPipeline", "delays", **SPEC)
        await until("there is a driver", pipeline.driver)
        first = pipeline.driver()
        for spec, reason, text in (
            ({"scheduling": {"affinity": bad_affinity}}, "ApplyRefused", "nodeSelectorTerms"),
            ({"serviceAccountName": "absent"}, "ReferenceNotFound", "ServiceAccount absent"),
            ({"volumes": [{"name": "data", "emptyDir": {}}], "volumeMounts": twice}, "ApplyRefused", "mountPath"),
        ):
            pipeline.change(**spec)
            await until(f"{text} is refused", partial(pipeline.is_refused, reason, text))
            assert pipeline.driver() == first
            pipeline.change(**dict.fromkeys(spec))
        volumes = [{"name": "data", "emptyDir": {}}]
        mounts = [{"name": "data", "mountPath": "/data"}]
        pipeline.change(env=[{"name": "REGION", "value": "east"}], volumes=volumes, volumeMounts=mounts)
        await until("the driver is replaced", lambda: pipeline.driver() not in ("", first))
        (container,) = pipeline.get("Pod", "delays-driver")["spec"]["containers"]
        assert {"name": "REGION", "value": "east"} in container["env"]
        pipeline.change(suspend=True)
        await until("it is suspended", lambda: pipeline.reason == "Suspended" and pipeline.driver() == "")
        assert pipeline.get("PersistentVolumeClaim", "delays-checkpoint")
        pipeline.change(suspend=False)
        await until("there is a driver again", pipeline.driver)


async def test_without_the_rights_a_pipeline_is_refused(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    allow(shared_plane, namespace)
    pipeline = Pipeline(shared_plane, namespace)
    switches = {"WATCH_NAMESPACES": namespace, "SPARK_PIPELINES": "false"}
    with OperatorProcess(tmp_path, shared_plane.kubeconfig("limited"), **switches) as operator:
        make(shared_plane, namespace, "SparkPipeline", "delays", **SPEC)
        await until("it is refused", lambda: pipeline.reason == "NotSupported")
        assert operator.ask("/readyz") == (200, "ok\n")
