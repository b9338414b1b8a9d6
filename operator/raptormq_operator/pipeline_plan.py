"""Decides the next step for the driver of a SparkPipeline, from its pod and the last status. Pure; the time is passed
in.

    any pod of a suspended pipeline ---------------> Delete
    no pod ----------------------------------------> Create, unless the pipeline is complete or has failed for good
    pod of another spec ---------------------------> Delete
    pod is terminating, starting or running -------> wait
    pod has ended ---- not to be started again ----> keep: its log can be read
              `------- to be started again --------> wait until nextStart, then Delete

If Apache's operator runs the driver, a SparkApplication takes the place of the pod. It is created and, after a change
of the spec, deleted in the same way. `spark_application_state` evaluates its status.

The end of each driver is counted once, by its uid, in the status. The status is written before the step is taken, so an
operator that is killed in between continues with the same numbers. A pod without a controller is created only under
its fixed name, so there is never more than one driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.manifests.pipeline import QUERY_FAILED, hash_of
from raptormq_operator.model.pipeline import Pipeline
from raptormq_operator.pod_diagnostics import cut, diagnose
from raptormq_operator.spark_application_state import ApplicationState, Course, state_of

LONG_RUN_S = 600
"""Length in seconds of a run that resets the delay of restarts."""
Status = dict[str, Any]

_LASTING = ("restarts", "failures", "nextStart", "lastError", "lastExitCode", "lastErrorTime", "driverUid", "ended")
"""Fields that are copied to the next status."""


class Phase(StrEnum):
    """Field `phase` of the status."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    BACKING_OFF = "BackingOff"
    RESTARTING = "Restarting"
    COMPLETED = "Completed"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class Step(StrEnum):
    """Next step for the driver pod."""

    NONE = "none"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Seen:
    """The pods of a pipeline, and the SparkApplication if Apache's operator runs the driver. `claim` is the claim of
    the checkpoint and `claim_fault` a Warning about it."""

    driver: Manifest | None
    executors: Sequence[Manifest] = ()
    claim: Manifest | None = None
    claim_fault: str = ""
    application: Manifest | None = None

    def runner(self, pipeline: Pipeline) -> Manifest | None:
        """Return the object that runs the driver: its pod, or the SparkApplication; None if it does not exist."""
        return self.application if pipeline.by_spark_operator else self.driver


@dataclass(frozen=True, slots=True)
class Decision:
    """The step, the status to write before it, and the seconds until the next decision; None to wait for an event."""

    step: Step
    verdict: Verdict
    status: Status
    wait_s: float | None = field(default=None)


def starts_driver(pipeline: Pipeline, pipeline_hash: str, seen: Seen, before: Mapping[str, Any]) -> bool:
    """Return whether a driver will be created now or next, so that the objects it needs must exist."""
    if pipeline.suspended:
        return False
    runner = seen.runner(pipeline)
    if runner is None:
        return not _stays_ended(pipeline, pipeline_hash, before)
    return hash_of(runner) != pipeline_hash


def decide(
    pipeline: Pipeline,
    wanted_hash: str,
    seen: Seen,
    before: Mapping[str, Any],
    refusal: Verdict | None,
    now: datetime,
) -> Decision:
    """Return the decision. `before` is the last status, `refusal` the reason why no driver may be started. A running
    driver continues.
    """
    status: Status = {key: before[key] for key in _LASTING if key in before}
    status["observedGeneration"] = pipeline.generation
    status["executors"] = sum(map(_runs, seen.executors))
    status.setdefault("restarts", 0)
    if refusal is not None:
        phase = Phase.PENDING if seen.driver is None else Phase.RUNNING if _runs(seen.driver) else Phase.PENDING
        return _decision(Step.NONE, phase, refusal, status)
    runner = seen.runner(pipeline)
    if seen.driver is not None:
        status["driver"] = seen.driver["metadata"]["name"]
    if pipeline.suspended:
        return _suspended(seen, runner, status)
    if runner is None and _stays_ended(pipeline, wanted_hash, before):
        return _ended_for_good(status, failed=before.get("phase") == Phase.FAILED)
    if runner is None and seen.driver is None:
        status.pop("ended", None)
        status.pop("nextStart", None)
        return _decision(Step.CREATE, Phase.STARTING, _progressing("the driver is being created"), status)
    if runner is None or "deletionTimestamp" in runner["metadata"]:
        return _decision(Step.NONE, Phase.RESTARTING, _progressing("the driver is terminating"), status)
    if hash_of(runner) != wanted_hash:
        for key in ("ended", "nextStart", "failures"):
            status.pop(key, None)
        return _decision(
            Step.DELETE, Phase.RESTARTING, _progressing("the driver is replaced: the spec changed"), status
        )
    if pipeline.by_spark_operator:
        return _by_spark_operator(pipeline, wanted_hash, state_of(runner), seen, status)
    if runner.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return _after_the_end(pipeline, wanted_hash, runner, status, now)
    status.pop("nextStart", None)
    return _while_it_lives(pipeline, seen, status)


def _suspended(seen: Seen, runner: Manifest | None, status: Status) -> Decision:
    """Return the decision that stops the driver. The checkpoint stays, and the next driver continues from it."""
    for key in ("ended", "nextStart", "failures"):
        status.pop(key, None)
    leaves = runner is not None and "deletionTimestamp" not in runner["metadata"]
    said = "suspend is true" if runner is None and seen.driver is None else "suspend is true, the driver is terminating"
    return _decision(Step.DELETE if leaves else Step.NONE, Phase.SUSPENDED, Verdict(Reason.SUSPENDED, said), status)


def _by_spark_operator(
    pipeline: Pipeline, wanted_hash: str, state: ApplicationState, seen: Seen, status: Status
) -> Decision:
    """Return the decision about a driver that Apache's operator runs and restarts."""
    status["restarts"], status["failures"] = state.restarts, state.failures
    if (failure := state.failure) is not None and failure.time != status.get("lastErrorTime"):
        pod = None if failure.pod_status is None else {"status": failure.pod_status}
        end = {} if pod is None else _terminated(pod)
        said = cut(f"{failure.summary}: {failure.message or 'no message'}")
        _keep_error(status, _error(pod) if pod is not None and end else said, failure.time, end)
    if state.course is Course.ENDED:
        status["ended"] = wanted_hash
        return _ended_for_good(status, failed=state.failed)
    if state.course is Course.BETWEEN:
        what = f"{status['lastError']}; " if state.failed else "the driver has ended; "
        verdict = Verdict(_failure(status) if state.failed else Reason.PROGRESSING, f"{what}state {state.summary}")
        return _decision(Step.NONE, Phase.BACKING_OFF, verdict, status)
    if state.course is Course.SUBMITTED or seen.driver is None:
        said = f"the Apache Spark Kubernetes Operator has not started the driver, state {state.summary or 'unknown'}"
        return _decision(Step.NONE, Phase.STARTING, _progressing(said), status)
    return _while_it_lives(pipeline, seen, status)


def _while_it_lives(pipeline: Pipeline, seen: Seen, status: Status) -> Decision:
    assert seen.driver is not None
    said = diagnose([seen.driver])
    if said.failing:
        return _decision(Step.NONE, Phase.STARTING, Verdict(Reason.PODS_FAILING, said.failing), status)
    if not _runs(seen.driver):
        if seen.claim is None or seen.claim.get("status", {}).get("phase") != "Bound":
            name = pipeline.checkpoint.claim
            state = "does not exist" if seen.claim is None else "is not bound"
            text = f"volume claim {name} {state}: {seen.claim_fault or said.waiting or 'waiting for a volume'}"
            return _decision(Step.NONE, Phase.STARTING, Verdict(Reason.CHECKPOINT_PENDING, text), status)
        text = said.waiting or f"{seen.driver['metadata']['name']} is starting"
        return _decision(Step.NONE, Phase.STARTING, Verdict(Reason.PODS_NOT_READY, text, bool(said.waiting)), status)
    if not _ready(seen.driver):
        verdict = Verdict(Reason.PODS_NOT_READY, "the driver is starting its Spark session")
        return _decision(Step.NONE, Phase.STARTING, verdict, status)
    running, least = status["executors"], pipeline.executors.least
    if running < least:
        said = diagnose(seen.executors)
        text = f"{running} of {least} executors run" + "".join(f"; {each}" for each in said if each)
        reason = Reason.PODS_FAILING if said.failing else Reason.PODS_NOT_READY
        return _decision(Step.NONE, Phase.RUNNING, Verdict(reason, text, bool(said.waiting)), status)
    return _decision(Step.NONE, Phase.RUNNING, Verdict(Reason.READY, f"driver and {running} executors run"), status)


def _after_the_end(pipeline: Pipeline, wanted_hash: str, driver: Manifest, status: Status, now: datetime) -> Decision:
    uid, policy = driver["metadata"]["uid"], pipeline.restart_policy
    failed = driver["status"]["phase"] == "Failed"
    counted = status.get("driverUid") == uid
    status["driverUid"] = uid
    started, finished = _times(driver, now)
    if failed and not counted:
        _keep_error(status, _error(driver), _text(finished), _terminated(driver))
    if policy.type == "Never" or (policy.type == "OnFailure" and not failed):
        status["ended"] = wanted_hash
        return _ended_for_good(status, failed=failed)
    if not counted or "nextStart" not in status:
        long_run = finished - started >= timedelta(seconds=LONG_RUN_S)
        status["failures"] = 1 if long_run else status.get("failures", 0) + 1
        status["restarts"] += 1
        status["nextStart"] = _text(finished + timedelta(seconds=policy.delay(status["failures"])))
    left = (datetime.fromisoformat(status["nextStart"]) - now).total_seconds()
    what = status["lastError"] if failed else "the application ended without an error"
    reason = _failure(status) if failed else Reason.PROGRESSING
    verdict = Verdict(reason, f"{what}; start {status['restarts'] + 1} at {status['nextStart']}")
    step = Step.DELETE if left <= 0 else Step.NONE
    return _decision(step, Phase.BACKING_OFF, verdict, status, max(left, 0.0))


def _stays_ended(pipeline: Pipeline, wanted_hash: str, before: Mapping[str, Any]) -> bool:
    """Return whether the current restart policy permits no further start of this pipeline."""
    if before.get("ended") != wanted_hash:
        return False
    stays = ("Never",) if before.get("phase") == Phase.FAILED else ("Never", "OnFailure")
    return pipeline.restart_policy.type in stays


def _ended_for_good(status: Status, *, failed: bool) -> Decision:
    if failed:
        verdict = Verdict(_failure(status), f"{status['lastError']}; restartPolicy.type is Never")
        return _decision(Step.NONE, Phase.FAILED, verdict, status)
    verdict = Verdict(Reason.COMPLETED, "the application ended without an error")
    return _decision(Step.NONE, Phase.COMPLETED, verdict, status)


def _keep_error(status: Status, text: str, time: str, terminated: Manifest) -> None:
    """Record the error of a driver. `terminated` is the state of its terminated container, empty if unknown."""
    status["lastError"], status["lastErrorTime"] = text, time
    status.pop("lastExitCode", None)
    if terminated:
        status["lastExitCode"] = terminated["exitCode"]


def _failure(status: Status) -> Reason:
    return Reason.QUERY_FAILED if status.get("lastExitCode") == QUERY_FAILED else Reason.APPLICATION_FAILED


def _decision(step: Step, phase: Phase, verdict: Verdict, status: Status, wait_s: float | None = None) -> Decision:
    return Decision(step, verdict, {**status, "phase": str(phase)}, wait_s)


def _progressing(text: str) -> Verdict:
    return Verdict(Reason.PROGRESSING, text)


def _runs(pod: Manifest) -> bool:
    return pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _terminated(driver: Manifest) -> Manifest:
    containers = driver.get("status", {}).get("containerStatuses", [])
    found: Manifest = containers[0].get("state", {}).get("terminated", {}) if containers else {}
    return found


def _error(driver: Manifest) -> str:
    """Return the termination message of the container, or why the pod failed without one."""
    ended, status = _terminated(driver), driver["status"]
    if not ended:
        return cut(f"{status.get('reason', 'Failed')}: {status.get('message', 'the pod ended')}")
    lines = [line.strip() for line in str(ended.get("message", "")).splitlines() if line.strip()]
    if lines and ended["exitCode"] == QUERY_FAILED:
        return cut(lines[-1])
    reason = ended.get("reason", "Error")
    what = f"exit code {ended['exitCode']}" + ("" if reason in ("Error", "Completed") else f" ({reason})")
    return f"{what}: {cut(lines[-1])}" if lines else f"{what} and no output"


def _times(driver: Manifest, now: datetime) -> tuple[datetime, datetime]:
    """Return start and end of the container. The end is `now` if none is recorded, such as after an eviction."""
    ended = _terminated(driver)
    started = ended.get("startedAt") or driver["metadata"].get("creationTimestamp")
    finished = ended.get("finishedAt")
    end = datetime.fromisoformat(finished) if finished else now
    return (datetime.fromisoformat(started) if started else end), end


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
