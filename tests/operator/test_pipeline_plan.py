"""Actions on the driver of a SparkPipeline, derived from its pod and the last status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.pipeline import QUERY_FAILED, driver_pod, hash_of
from raptormq_operator.model.pipeline import Pipeline, RestartPolicy
from raptormq_operator.pipeline_plan import Decision, Seen, Step, decide, starts_driver
from tests.operator.resources import pipeline_body

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ADDRESS = "demo-namesrv-0:9876"
CLAIM = {"kind": "PersistentVolumeClaim", "status": {"phase": "Bound"}}


def pipeline(**spec: Any) -> Pipeline:
    return Pipeline.from_object(pipeline_body(**spec))


def wanted(of: Pipeline) -> dict[str, Any]:
    return driver_pod(of, ADDRESS)


def pod(of: Pipeline, uid: str = "u1", **status: Any) -> dict[str, Any]:
    found = wanted(of)
    found["metadata"] |= {"uid": uid, "creationTimestamp": "2026-11-20T11:00:00Z"}
    return {**found, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], **status}}


def ended(of: Pipeline, uid: str = "u1", code: int = 1, text: str = "", ran_s: int = 5) -> dict[str, Any]:
    started = (NOW - timedelta(seconds=ran_s)).isoformat()
    end = {"exitCode": code, "message": text, "startedAt": started, "finishedAt": NOW.isoformat()}
    return pod(
        of,
        uid,
        phase="Failed" if code else "Succeeded",
        containerStatuses=[{"state": {"terminated": end}}],
        conditions=[],
    )


def executors(count: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"exec-{n}"}, "status": {"phase": "Running"}} for n in range(count)]


def decided(of: Pipeline, seen: Seen, before: dict[str, Any] | None = None, now: datetime = NOW) -> Decision:
    return decide(of, hash_of(wanted(of)), seen, before or {}, None, now)


def test_a_driver_is_made_once_and_is_ready_with_its_executors() -> None:
    of = pipeline(executors={"min": 2})
    assert decided(of, Seen(None)).step is Step.CREATE
    first = decided(of, Seen(pod(of), executors(1), CLAIM))
    assert (first.step, first.verdict.reason) == (Step.NONE, Reason.PODS_NOT_READY)
    assert first.verdict.message == "1 of 2 executors run"
    second = decided(of, Seen(pod(of), executors(2), CLAIM))
    assert (second.verdict.reason, second.status["phase"], second.status["executors"]) == (Reason.READY, "Running", 2)


def test_a_driver_that_is_terminating_is_waited_for() -> None:
    of = pipeline()
    leaving = pod(of)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    found = decided(of, Seen(leaving))
    assert (found.step, found.status["phase"]) == (Step.NONE, "Restarting")


def test_a_changed_spec_replaces_the_driver_and_forgets_failures() -> None:
    of = pipeline()
    after = pipeline(arguments=["--other"])
    found = decided(after, Seen(pod(of)), {"failures": 4, "nextStart": "2026-11-20T13:00:00Z", "restarts": 4})
    assert found.step is Step.DELETE
    assert {"failures", "nextStart"}.isdisjoint(found.status)
    assert found.status["restarts"] == 4


def test_suspended_pipeline_deletes_its_driver_and_starts_no_other() -> None:
    of, running = pipeline(suspend=True), pod(pipeline())
    failed = {"failures": 4, "nextStart": "2026-11-20T13:00:00Z", "restarts": 4}
    found = decided(of, Seen(running, executors(1)), failed)
    assert (found.step, found.verdict.reason, found.status["phase"]) == (Step.DELETE, Reason.SUSPENDED, "Suspended")
    assert not found.verdict.ready
    assert (found.status["restarts"], found.status["executors"]) == (4, 1)
    assert {"failures", "nextStart"}.isdisjoint(found.status)
    running["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    found = decided(of, Seen(running))
    assert (found.step, found.verdict.message) == (Step.NONE, "suspend is true, the driver is terminating")
    found = decided(of, Seen(None))
    assert (found.step, found.verdict.message) == (Step.NONE, "suspend is true")
    assert not starts_driver(of, hash_of(wanted(of)), Seen(None), {})


def test_completed_application_starts_again_after_it_was_suspended() -> None:
    of = pipeline()
    completed = decided(of, Seen(ended(of, code=0))).status
    assert decided(of, Seen(None), completed).step is Step.NONE
    suspended = decided(pipeline(suspend=True), Seen(None), completed).status
    assert decided(of, Seen(None), suspended).step is Step.CREATE


def test_a_refusal_starts_nothing_and_leaves_a_running_driver_alone() -> None:
    of, no = pipeline(), Verdict(Reason.TOPIC_NOT_FOUND, "no topic")
    for driver, phase in ((None, "Pending"), (pod(pipeline(arguments=["old"])), "Running")):
        found = decide(of, hash_of(wanted(of)), Seen(driver), {}, no, NOW)
        assert (found.step, found.verdict, found.status["phase"]) == (Step.NONE, no, phase)


def test_a_failed_driver_is_counted_once_and_starts_again_after_its_delay() -> None:
    of = pipeline()
    failed = ended(of, text="Traceback\nValueError: no such column\n")
    first = decided(of, Seen(failed))
    assert first.step is Step.NONE
    assert first.wait_s == 10
    assert first.status["lastError"] == "exit code 1: ValueError: no such column"
    assert first.verdict.reason is Reason.APPLICATION_FAILED
    assert "start 2 at 2026-11-20T12:00:10Z" in first.verdict.message
    again = decided(of, Seen(failed), first.status, NOW + timedelta(seconds=4))
    assert (again.status, again.wait_s) == (first.status, 6)
    due = decided(of, Seen(failed), first.status, NOW + timedelta(seconds=10))
    assert (due.step, due.status["restarts"]) == (Step.DELETE, 1)
    start = decided(of, Seen(None), due.status)
    assert (start.step, start.status["failures"]) == (Step.CREATE, 1)
    second = decided(of, Seen(ended(of, "u2")), start.status)
    assert (second.wait_s, second.status["failures"], second.status["restarts"]) == (20, 2, 2)
    long = decided(of, Seen(ended(of, "u3", ran_s=600)), second.status)
    assert (long.wait_s, long.status["failures"]) == (10, 1)


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_dead_query_is_the_last_error_in_one_sentence(policy: str) -> None:
    of = pipeline(restartPolicy={"type": policy})
    dead = "query count is stalled: no task and no batch was completed for 1800 s"
    found = decided(of, Seen(ended(of, code=QUERY_FAILED, text=dead)))
    assert (found.verdict.reason, found.verdict.ready) == (Reason.QUERY_FAILED, False)
    assert found.verdict.message.startswith(f"{dead}; ")
    assert (found.status["lastError"], found.status["lastExitCode"]) == (dead, QUERY_FAILED)
    if policy == "Never":
        assert decided(of, Seen(None), found.status).verdict == found.verdict
        return
    for other in (ended(of, "u2", text="ValueError"), pod(of, "u2", phase="Failed", reason="Evicted", conditions=[])):
        after = decided(of, Seen(other), found.status)
        assert after.verdict.reason is Reason.APPLICATION_FAILED


def test_an_evicted_driver_is_counted_once_although_it_has_no_end() -> None:
    of = pipeline()
    evicted = pod(of, phase="Failed", reason="Evicted", message="The node was low on resource: memory.", conditions=[])
    first = decided(of, Seen(evicted))
    assert first.status["lastError"] == "Evicted: The node was low on resource: memory."
    again = decided(of, Seen(evicted), first.status, NOW + timedelta(seconds=3))
    assert again.status == first.status


@pytest.mark.parametrize(
    ("policy", "code", "phase", "reason"),
    [
        ("OnFailure", 0, "Completed", Reason.COMPLETED),
        ("Never", 0, "Completed", Reason.COMPLETED),
        ("Never", 1, "Failed", Reason.APPLICATION_FAILED),
        ("Always", 0, "BackingOff", Reason.PROGRESSING),
    ],
)
def test_what_the_restart_policy_says(policy: str, code: int, phase: str, reason: Reason) -> None:
    of = pipeline(restartPolicy={"type": policy})
    found = decided(of, Seen(ended(of, code=code)))
    assert (found.status["phase"], found.verdict.reason) == (phase, reason)
    if phase == "BackingOff":
        return
    # This does not change if the pod is deleted, until the spec changes or the policy requires a new run.
    seal = hash_of(wanted(of))
    assert not starts_driver(of, seal, Seen(None), found.status)
    alone = decided(of, Seen(None), found.status)
    assert (alone.step, alone.status["phase"], alone.verdict) == (Step.NONE, phase, found.verdict)
    other = pipeline(restartPolicy={"type": policy}, arguments=["--other"])
    assert decided(other, Seen(None), found.status).step is Step.CREATE
    always = pipeline(restartPolicy={"type": "Always"})
    assert decided(always, Seen(None), found.status).step is Step.CREATE


def test_a_driver_that_cannot_start_says_why() -> None:
    of = pipeline()
    waiting = {"name": "driver", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    image = decided(of, Seen(pod(of, phase="Pending", conditions=[], containerStatuses=[waiting]), (), CLAIM))
    assert (image.step, image.verdict.reason) == (Step.NONE, Reason.PODS_FAILING)
    assert "ErrImagePull: not found" in image.verdict.message
    pending = pod(of, phase="Pending", conditions=[])
    unbound = {"status": {"phase": "Pending"}}
    volume = decided(of, Seen(pending, (), unbound, 'storageclass "fast" not found'))
    assert volume.verdict.reason is Reason.CHECKPOINT_PENDING
    assert 'delays-checkpoint is not bound: storageclass "fast" not found' in volume.verdict.message


@given(failures=st.integers(1, 10_000), first=st.integers(1, 3600), more=st.integers(0, 80_000))
def test_delays_grow_to_their_limit(failures: int, first: int, more: int) -> None:
    policy = RestartPolicy("OnFailure", first, first + more, 60)
    assert policy.delay(1) == first
    assert policy.delay(failures) <= policy.delay(failures + 1) <= first + more
