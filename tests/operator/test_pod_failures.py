"""Which pods fail, and what they are quoted with."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.pod_failures import PODS_MAX, TEXT_MAX, failures

LOG = "2026-01-01 reading /etc/raptormq/broker.conf\nraptormq: setting a = 'b' is not usable\n"
ENDED = {"exitCode": 2, "reason": "Error", "message": LOG}
LOOP = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
QUOTED = "demo-broker-0-0-0 ended with exit code 2: raptormq: setting a = 'b' is not usable"


def pod(
    name: str = "demo-broker-0-0-0", /, *, status: dict[str, Any] | None = None, **container: Any
) -> dict[str, Any]:
    """A pod with one container."""
    found = {"containerStatuses": [{"ready": False, "restartCount": 0, **container}]} if status is None else status
    return {"metadata": {"name": name}, "status": found}


@pytest.mark.parametrize(
    "container",
    [
        {"state": LOOP, "lastState": {"terminated": ENDED}, "restartCount": 1},
        {"state": {"terminated": ENDED}},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 2},
    ],
    ids=["waits for its restart", "has just ended", "runs once more"],
)
def test_a_container_that_ends_again_and_again(container: dict[str, Any]) -> None:
    assert failures([pod(**container)]) == QUOTED


@pytest.mark.parametrize(
    "container",
    [
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        {"state": {"waiting": {"reason": "PodInitializing"}}},
        {"state": {"running": {}}},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 1},
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 7, "ready": True},
        {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {},
    ],
    ids=["is made", "after others", "starts", "starts again", "serves", "is done", "says nothing yet"],
)
def test_a_container_that_may_become_ready(container: dict[str, Any]) -> None:
    assert failures([pod(**container)]) == ""


def test_an_image_that_cannot_be_had() -> None:
    waiting = {"reason": "ErrImagePull", "message": "no such host"}
    assert failures([pod(state={"waiting": waiting})]) == "demo-broker-0-0-0 cannot start, ErrImagePull: no such host"


def test_a_pod_without_a_node() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    assert failures([pod(status={"conditions": [unscheduled]})]) == "demo-broker-0-0-0 finds no node: 0/3 nodes"


def test_an_init_container_of_others() -> None:
    status = {"initContainerStatuses": [{"ready": False, "state": {"terminated": ENDED}}]}
    assert failures([pod(status=status)]) == QUOTED


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "ended with exit code 137: OOMKilled"),
        ({"exitCode": 137}, "ended with exit code 137: it said nothing"),
        ({"exitCode": 0, "reason": "Completed", "message": "\n"}, "ended with exit code 0: Completed"),
    ],
)
def test_one_that_says_nothing(ended: dict[str, Any], words: str) -> None:
    assert failures([pod(state=LOOP, lastState={"terminated": ended})]) == f"demo-broker-0-0-0 {words}"


def test_pods_that_go_are_not_quoted() -> None:
    going = pod(state={"terminated": ENDED})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert failures([going, {"metadata": {"name": "new"}}]) == ""


def test_a_long_text_is_cut() -> None:
    text = failures([pod("p", state={"terminated": {"exitCode": 1, "message": "x" * 3000}})])
    assert text == f"p ended with exit code 1: {'x' * (TEXT_MAX - 3)}..."


def test_some_of_many_in_order() -> None:
    text = failures([pod(f"p-{number}", state={"terminated": ENDED}) for number in reversed(range(PODS_MAX + 2))])
    assert text.startswith("p-0 ended")
    assert text.count("ended with") == PODS_MAX
    assert text.endswith("; 2 more pods")
