"""Warning events that explain a missing pod, or one that has not started."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.event_diagnostics import Subject, diagnose, subjects
from raptormq_operator.pod_diagnostics import MAX_PODS, MAX_TEXT

SET, POD, CLAIM = "demo-broker-0-0", "demo-broker-0-0-0", "store-demo-broker-0-0-0"
MADE = "2026-01-01T00:00:05Z"
OF_SET = Subject(POD, "StatefulSet", SET, "s1")
OF_CLAIM = Subject(POD, "PersistentVolumeClaim", CLAIM, "", MADE)
OF_POD = Subject(POD, "Pod", POD, "u1")


def workload(name: str = SET, replicas: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "s1"}, "spec": {"replicas": replicas}}


def pod(*, node: str | None = "n", **container: Any) -> dict[str, Any]:
    """Return a pod of the set, with one volume claim and one container, which waits unless `container` has another
    state.
    """
    one = {"name": "broker", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}, **container}
    volumes = [{"name": "store", "persistentVolumeClaim": {"claimName": CLAIM}}, {"name": "config"}]
    return {
        "metadata": {"name": POD, "uid": "u1", "creationTimestamp": MADE},
        "spec": {"volumes": volumes} | ({"nodeName": node} if node else {}),
        "status": {"containerStatuses": [one]} if node else {},
    }


def ready_to_start(which: dict[str, Any], said: str) -> dict[str, Any]:
    condition = {"type": "PodReadyToStartContainers", "status": said}
    return which | {"status": which["status"] | {"conditions": [condition]}}


def going(which: dict[str, Any]) -> dict[str, Any]:
    return which | {"metadata": which["metadata"] | {"deletionTimestamp": MADE}}


def event(reason: str, message: str = "because", uid: str = "u1", **more: Any) -> dict[str, Any]:
    return {"reason": reason, "message": message, "involvedObject": {"uid": uid}, "lastTimestamp": MADE, **more}


def create(message: str = f"create Pod {POD} in StatefulSet {SET} failed", **more: Any) -> dict[str, Any]:
    return event("FailedCreate", message, "s1", **more)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ([], [OF_SET]),
        ([pod(node=None)], [OF_CLAIM]),
        ([pod()], [OF_POD]),
        ([pod(state={"running": {}})], []),
        ([pod(state={"terminated": {"exitCode": 1}})], []),
        ([pod(restartCount=1)], []),
        ([going(pod())], []),
        ([ready_to_start(pod(), "True")], []),
        ([ready_to_start(pod(), "False")], [OF_POD]),
    ],
    ids=["not made", "without a node", "has not begun", "runs", "ended", "begins again", "goes", "pulls", "mounts"],
)
def test_whose_events_may_explain_it(pods: list[dict[str, Any]], found: list[Subject]) -> None:
    assert subjects([workload()], pods) == found


def test_each_pod_of_a_set_is_looked_for_as_far_as_there_is_room() -> None:
    second = pod() | {"metadata": {"name": f"{SET}-1", "uid": "u9", "creationTimestamp": MADE}}
    assert [each.name for each in subjects([workload(replicas=2)], [second])] == [SET, f"{SET}-1"]
    many = [workload(f"s-{number}") for number in range(MAX_PODS + 1)]
    assert [each.pod for each in subjects(many, [])] == [f"s-{number}-0" for number in range(MAX_PODS)]
    assert subjects([], [second]) == []


@pytest.mark.parametrize(
    ("subject", "events"),
    [
        (OF_SET, [create()]),
        (OF_CLAIM, [event("ProvisioningFailed", uid="c1")]),
        (OF_CLAIM, [event("ProvisioningFailed", lastTimestamp=None, eventTime="2026-01-01T00:00:05.250000Z")]),
        (OF_POD, [event("FailedMount")]),
        (OF_POD, [event("FailedAttachVolume")]),
        (OF_POD, [event("FailedCreatePodSandBox")]),
    ],
)
def test_what_explains_it(subject: Subject, events: list[dict[str, Any]]) -> None:
    assert diagnose([(subject, events)]) == f"{POD}: {events[0]['message']}"


@pytest.mark.parametrize(
    ("subject", "other"),
    [
        (OF_SET, create(f"create Pod {SET}-1 in StatefulSet {SET} failed")),
        (OF_SET, event("FailedCreate", create()["message"], uid="of the set before it")),
        (OF_SET, event("FailedDelete", create()["message"], uid="s1")),
        (OF_CLAIM, event("ProvisioningFailed", lastTimestamp="2026-01-01T00:00:04Z")),
        (OF_CLAIM, event("FailedBinding")),
        (OF_POD, event("FailedMount", uid="of the pod before it")),
        (OF_POD, event("BackOff")),
    ],
)
def test_what_does_not(subject: Subject, other: dict[str, Any]) -> None:
    assert diagnose([(subject, [other])]) == ""


def test_fractions_of_a_second_count_and_may_be_left_out() -> None:
    times = ["2026-01-01T00:00:05Z", "2026-01-01T00:00:05.700000Z", "2026-01-01T00:00:05.250000Z"]
    said = [event("FailedMount", time, lastTimestamp=None, eventTime=time) for time in times]
    assert diagnose([(OF_POD, said)]) == f"{POD}: {times[1]}"


@pytest.mark.parametrize("message", [None, ""])
def test_an_event_without_a_message_has_a_reason(message: str | None) -> None:
    assert diagnose([(OF_POD, [event("FailedMount") | {"message": message}])]) == f"{POD}: FailedMount"


@pytest.mark.parametrize("name", ["lastTimestamp", "eventTime"])
def test_the_newest_is_quoted(name: str) -> None:
    times = ["2026-01-01T00:00:06Z", "2026-01-01T00:00:09Z", "2026-01-01T00:00:07Z"]
    plain = event("FailedMount", lastTimestamp=None)
    assert diagnose([(OF_POD, [plain | {name: time, "message": time} for time in times])]) == f"{POD}: {times[1]}"
    series = plain | {"series": {"lastObservedTime": times[2]}, "message": "series"}
    assert diagnose([(OF_POD, [plain | {name: times[0]}, series])]) == f"{POD}: series"


def test_a_text_is_cut() -> None:
    assert diagnose([(OF_POD, [event("FailedMount", "x" * (MAX_TEXT + 1))])]) == f"{POD}: {'x' * (MAX_TEXT - 3)}..."
