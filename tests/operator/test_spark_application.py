"""Pipelines whose driver Apache's operator runs: the SparkApplication as a file for review, and what its status means.

`python -m tests.operator.test_spark_application` writes the file again. Review the difference before a commit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from raptormq_operator.conditions import Reason
from raptormq_operator.manifests import pipeline as manifests
from raptormq_operator.manifests.pipeline import QUERY_FAILED, hash_of
from raptormq_operator.manifests.spark_application import SPARK_VERSION, spark_application
from raptormq_operator.model.pipeline import Pipeline
from raptormq_operator.pipeline_plan import Decision, Seen, Step, decide, starts_driver
from raptormq_operator.spark_application_state import Course, state_of
from tests.operator.resources import pipeline_body

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden") / "spark-application.yaml"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ADDRESS = "demo-namesrv-0:9876"
CLAIM = {"kind": "PersistentVolumeClaim", "status": {"phase": "Bound"}}
EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": ["pull"],
    "application": {"configMap": {"name": "application", "key": "delays.py"}},
    "arguments": ["$(RAPTORMQ_NAME_SERVER)", "--every=1 second"],
    "sparkConf": {"spark.sql.shuffle.partitions": "2"},
    "driver": {"cpu": "1", "cpuLimit": "2", "memory": "2Gi"},
    "executors": {"min": 2, "max": 4, "cpuLimit": "1500m", "onDriverNode": True},
    "stateful": True,
    "credentials": {"secretName": "reader"},
    "tls": {"secretName": "ca"},
    "restartPolicy": {"type": "Always", "backoffSeconds": 20},
    "serviceAccountName": "spark",
    "env": [{"name": "REGION", "valueFrom": {"configMapKeyRef": {"name": "region", "key": "name"}}}],
    "volumes": [{"name": "dependencies", "persistentVolumeClaim": {"claimName": "dependencies", "readOnly": True}}],
    "volumeMounts": [{"name": "dependencies", "mountPath": "/dependencies"}],
    "pyFiles": ["https://example.org/delays.zip"],
    "scheduling": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spark", "operator": "Exists"}],
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
        "priorityClassName": "low",
    },
}


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def pipeline(**spec: Any) -> Pipeline:
    return Pipeline.from_object(pipeline_body(runBy="SparkKubernetesOperator", **spec))


def rendered() -> str:
    of = pipeline(**EVERYTHING)
    return yaml.dump(spark_application(of, ADDRESS, "text"), Dumper=_Plain, sort_keys=False)


def application(of: Pipeline, *states: dict[str, Any], attempt: int = 0, failures: int = 0) -> dict[str, Any]:
    """The SparkApplication of a pipeline with these states, the last one current."""
    found = spark_application(of, ADDRESS)
    found["metadata"]["uid"] = "a1"
    if states:
        found["status"] = {
            "currentState": states[-1],
            "stateTransitionHistory": {str(number): state for number, state in enumerate(states)},
            "currentAttemptSummary": {"attemptInfo": {"id": attempt, "failureRestartCounter": failures}},
        }
    return found


def state(summary: str, message: str = "", pod: dict[str, Any] | None = None, minute: int = 0) -> dict[str, Any]:
    found = {"currentStateSummary": summary, "message": message, "lastTransitionTime": f"2026-11-20T11:{minute:02}:00Z"}
    return found if pod is None else found | {"lastObservedDriverStatus": pod}


def ended(code: int, text: str) -> dict[str, Any]:
    """The status of a driver pod whose container has ended."""
    return {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": code, "message": text}}}]}


def driver(of: Pipeline, *, ready: bool = True) -> dict[str, Any]:
    """A driver pod that Apache's operator has made."""
    template = spark_application(of, ADDRESS)["spec"]["driverSpec"]["podTemplateSpec"]
    conditions = [{"type": "Ready", "status": str(ready)}]
    metadata = template["metadata"] | {"name": f"{of.name}-0-driver", "uid": "p1"}
    return {**template, "metadata": metadata, "status": {"phase": "Running", "conditions": conditions}}


def decided(of: Pipeline, seen: Seen, before: dict[str, Any] | None = None) -> Decision:
    return decide(of, hash_of(spark_application(of, ADDRESS)), seen, before or {}, None, NOW)


def executors(count: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"exec-{n}"}, "status": {"phase": "Running"}} for n in range(count)]


def test_the_application_is_the_reviewed_one() -> None:
    assert rendered() == GOLDEN.read_text(encoding="utf-8")


def test_the_version_of_spark_is_that_of_the_image() -> None:
    assert f"\npyspark=={SPARK_VERSION} ;" in (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_the_driver_has_what_the_driver_pod_of_this_operator_has() -> None:
    of = pipeline(**EVERYTHING)
    theirs = spark_application(of, ADDRESS)["spec"]["driverSpec"]["podTemplateSpec"]["spec"]["containers"][0]
    ours = manifests.driver_pod(of, ADDRESS)["spec"]["containers"][0]
    missing = {each["name"] for each in ours["env"]} - {each["name"] for each in theirs["env"]}
    assert missing == {"POD_NAME", "POD_IP", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"}
    for field in ("livenessProbe", "readinessProbe", "securityContext", "startupProbe", "terminationMessagePolicy"):
        assert theirs[field] == ours[field]
    paths = [{mount["mountPath"] for mount in container["volumeMounts"]} for container in (ours, theirs)]
    assert paths[0] - paths[1] == {manifests.CONF_DIRECTORY}


def test_the_hash_covers_the_spec_and_the_application() -> None:
    of = pipeline()
    hashes = [spark_application(of, ADDRESS), spark_application(of, ADDRESS, "1"), spark_application(of, "other:9876")]
    hashes.append(spark_application(pipeline(restartPolicy={"type": "Never"}), ADDRESS))
    assert len(set(map(hash_of, hashes))) == len(hashes)


def test_an_application_is_created_and_its_driver_is_ready_with_its_executors() -> None:
    of = pipeline(executors={"min": 2})
    assert starts_driver(of, hash_of(spark_application(of, ADDRESS)), Seen(None), {})
    assert decided(of, Seen(None)).step is Step.CREATE
    for made in (application(of), application(of, state("Submitted"))):
        waits = decided(of, Seen(None, (), CLAIM, application=made))
        assert (waits.step, waits.status["phase"], waits.verdict.reason) == (Step.NONE, "Starting", Reason.PROGRESSING)
        assert "the Apache Spark Kubernetes Operator has not started the driver" in waits.verdict.message
    running = application(of, state("Submitted"), state("DriverRequested"), state("DriverStarted"))
    assert decided(of, Seen(None, (), CLAIM, application=running)).status["phase"] == "Starting"
    starting = decided(of, Seen(driver(of, ready=False), (), CLAIM, application=running))
    assert (starting.status["phase"], starting.verdict.reason) == ("Starting", Reason.PODS_NOT_READY)
    few = decided(of, Seen(driver(of), executors(1), CLAIM, application=running))
    assert (few.status["phase"], few.verdict.message) == ("Running", "1 of 2 executors run")
    ready = decided(of, Seen(driver(of), executors(2), CLAIM, application=running))
    assert (ready.verdict.reason, ready.status["driver"]) == (Reason.READY, "delays-0-driver")


def test_a_changed_spec_replaces_the_application_after_its_driver_has_gone() -> None:
    of, after = pipeline(), pipeline(arguments=["--other"])
    old, pod = application(of, state("RunningHealthy")), driver(of)
    assert decided(after, Seen(pod, (), CLAIM, application=old), {"failures": 3}).step is Step.DELETE
    old["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    for seen in (Seen(pod, (), CLAIM, application=old), Seen(pod, (), CLAIM)):
        waits = decided(after, seen)
        assert (waits.step, waits.status["phase"]) == (Step.NONE, "Restarting")
    assert decided(after, Seen(None, (), CLAIM)).step is Step.CREATE


@pytest.mark.parametrize(
    ("failure", "reason", "error", "code"),
    [
        (state("Failed", "x", ended(1, "ValueError: no")), Reason.APPLICATION_FAILED, "exit code 1: ValueError: no", 1),
        (
            state("Failed", "x", ended(QUERY_FAILED, "query a failed: no")),
            Reason.QUERY_FAILED,
            "query a failed: no",
            QUERY_FAILED,
        ),
        (state("SchedulingFailure", "quota"), Reason.APPLICATION_FAILED, "SchedulingFailure: quota", None),
        (
            state("DriverEvicted", "memory", {"phase": "Failed"}),
            Reason.APPLICATION_FAILED,
            "DriverEvicted: memory",
            None,
        ),
    ],
)
def test_a_failed_driver_is_restarted_by_the_other_operator(
    failure: dict[str, Any], reason: Reason, error: str, code: int | None
) -> None:
    of = pipeline()
    for last in (failure, state("ScheduledToRestart")):
        states = [state("RunningHealthy"), failure, last]
        found = decided(of, Seen(None, (), CLAIM, application=application(of, *states, attempt=1, failures=1)))
        assert (found.step, found.status["phase"], found.verdict.reason) == (Step.NONE, "BackingOff", reason)
        assert found.verdict.message == f"{error}; state {last['currentStateSummary']}"
        assert (found.status["lastError"], found.status.get("lastExitCode")) == (error, code)
        assert (found.status["restarts"], found.status["failures"]) == (1, 1)
    # The error stays while the next driver runs, also if the history of the attempt before is cut off.
    running = application(of, state("RunningHealthy"), attempt=1)
    again = decided(of, Seen(driver(of), executors(1), CLAIM, application=running), found.status)
    assert (again.verdict.reason, again.status["lastError"]) == (Reason.READY, error)
    never = pipeline(restartPolicy={"type": "Never"})
    states = [failure, state("TerminatedWithoutReleaseResources")]
    final = decided(never, Seen(None, (), CLAIM, application=application(never, *states)))
    assert (final.status["phase"], final.verdict.reason) == ("Failed", reason)
    alone = decided(never, Seen(None, (), CLAIM), final.status)
    assert (alone.step, alone.verdict) == (Step.NONE, final.verdict)


def test_an_application_that_ends_without_an_error_is_complete() -> None:
    of = pipeline()
    states = [state("Failed", "x", minute=1), state("ScheduledToRestart"), state("Succeeded", minute=3)]
    between = decided(of, Seen(None, (), CLAIM, application=application(of, *states)))
    assert (between.status["phase"], between.verdict.reason) == ("BackingOff", Reason.PROGRESSING)
    final = decided(of, Seen(None, (), CLAIM, application=application(of, *states, state("ResourceReleased"))))
    assert (final.status["phase"], final.verdict.reason) == ("Completed", Reason.COMPLETED)


def test_the_history_of_the_attempt_before_counts() -> None:
    of = pipeline()
    found = application(of, state("ScheduledToRestart"))
    found["status"]["previousAttemptSummary"] = {
        "stateTransitionHistory": {"9": state("RunningHealthy"), "10": state("Failed", "boom", minute=2)}
    }
    read = state_of(found)
    assert (read.course, read.failed) == (Course.BETWEEN, True)
    assert read.failure is not None
    assert (read.failure.message, read.failure.time) == ("boom", "2026-11-20T11:02:00Z")


if __name__ == "__main__":
    GOLDEN.write_text(rendered(), encoding="utf-8")
