"""Failing and waiting pods, and their quoted reasons."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.pod_diagnostics import MAX_PODS, MAX_TEXT, PodDiagnostics, diagnose

LOG = "2026-01-01 reading /etc/raptormq/broker.conf\nraptormq: setting a = 'b' is not usable\n"
ENDED = {
    "exitCode": 2,
    "reason": "Error",
    "message": LOG,
    "startedAt": "2026-01-01T00:00:00Z",
    "finishedAt": "2026-01-01T00:00:01Z",
}
LATE = ENDED | {"finishedAt": "2026-01-01T00:10:00Z"}
LOOP = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
QUOTED = "demo-broker-0-0-0: broker ended with exit code 2: raptormq: setting a = 'b' is not usable"


def pod(
    name: str = "demo-broker-0-0-0", /, *, status: dict[str, Any] | None = None, **container: Any
) -> dict[str, Any]:
    """Return a pod with one container."""
    one = {"name": "broker", "ready": False, "restartCount": 0, **container}
    return {"metadata": {"name": name}, "status": {"containerStatuses": [one]} if status is None else status}


@pytest.mark.parametrize(
    "container",
    [
        {"state": LOOP, "lastState": {"terminated": ENDED}, "restartCount": 1},
        {"state": {"terminated": ENDED}, "restartCount": 1},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 2},
    ],
    ids=["waits for its restart", "has just ended once more", "runs once more"],
)
def test_a_container_that_ends_again_and_again(container: dict[str, Any]) -> None:
    assert diagnose([pod(**container)]) == PodDiagnostics(failing=QUOTED)


@pytest.mark.parametrize(
    "container",
    [
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        {"state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {"terminated": ENDED}, "restartCount": 5},
        {"state": {"running": {}}},
        {"state": {"terminated": ENDED}},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 1},
        {"state": {"running": {}}, "lastState": {"terminated": LATE}, "restartCount": 7},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 7, "ready": True},
        {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}, "restartCount": 3},
        {},
    ],
    ids=[
        "is made",
        "is made anew with its node",
        "starts",
        "ended once",
        "starts again",
        "starts again after long",
        "serves",
        "is done",
        "says nothing yet",
    ],
)
def test_a_container_that_may_become_ready(container: dict[str, Any]) -> None:
    assert diagnose([pod(**container)]) == PodDiagnostics()


def test_an_image_that_cannot_be_had() -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such host"}
    words = diagnose([pod(state={"waiting": waiting})])
    assert words.failing == "demo-broker-0-0-0: broker cannot start, ErrImagePull: no such host"


def test_a_pod_without_a_node_waits() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    words = diagnose([pod(status={"conditions": [unscheduled]})])
    assert words == PodDiagnostics(waiting="demo-broker-0-0-0: not schedulable: 0/3 nodes")


def test_a_pod_that_its_node_has_put_out() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on ephemeral-storage"}
    assert diagnose([pod(status=status)]).failing == "demo-broker-0-0-0: Evicted: low on ephemeral-storage"


def test_containers_of_others_are_named() -> None:
    sidecar = {"name": "proxy", "ready": False, "state": LOOP, "lastState": {"terminated": ENDED}}
    for kind in ("initContainerStatuses", "containerStatuses"):
        assert diagnose([pod(status={kind: [sidecar]})]).failing == QUOTED.replace("broker ended", "proxy ended")


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (
            {"exitCode": 137, "reason": "OOMKilled", "message": "a line of the log\n"},
            "137 (OOMKilled): a line of the log",
        ),
        ({"exitCode": 137}, "137 and no output"),
        ({"exitCode": 0, "reason": "Completed", "message": "\n"}, "0 and no output"),
    ],
)
def test_an_end_with_a_reason_or_without_words(ended: dict[str, Any], words: str) -> None:
    said = diagnose([pod(state=LOOP, lastState={"terminated": ended})]).failing
    assert said == f"demo-broker-0-0-0: broker ended with exit code {words}"


def test_pods_that_are_being_deleted_are_named_and_not_quoted() -> None:
    going = pod(state=LOOP, lastState={"terminated": ENDED})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = diagnose([going, {"metadata": {"name": "new"}}])
    assert found == PodDiagnostics(ending="demo-broker-0-0-0: being deleted")


def test_a_long_text_is_cut() -> None:
    ended = {"exitCode": 1, "message": "x" * 3000}
    words = diagnose([pod("p", state=LOOP, lastState={"terminated": ended})])
    assert words.failing == f"p: broker ended with exit code 1: {'x' * (MAX_TEXT - 3)}..."


def test_some_of_many_in_order() -> None:
    many = [pod(f"p-{number}", state=LOOP, lastState={"terminated": ENDED}) for number in reversed(range(MAX_PODS + 2))]
    text = diagnose(many).failing
    assert text.startswith("p-0: ")
    assert text.count("ended with") == MAX_PODS
    assert text.endswith("; 2 more pods")
