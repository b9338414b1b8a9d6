"""Which Warning events explain a pod that is missing or has not begun."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.event_words import expects, listen
from raptormq_operator.pod_words import PODS_MAX, TEXT_MAX

SET, POD = "demo-broker-0-0", "demo-broker-0-0-0"
ONE = {SET: 1}


def pod(*, node: str | None = "n", uid: str = "u1", **container: Any) -> dict[str, Any]:
    """A pod of the set, with one volume claim and one container that waits unless `container` says otherwise."""
    one = {"name": "broker", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}, **container}
    volumes = [{"name": "store", "persistentVolumeClaim": {"claimName": f"store-{POD}"}}, {"name": "config"}]
    return {
        "metadata": {"name": POD, "uid": uid},
        "spec": {"volumes": volumes} | ({"nodeName": node} if node else {}),
        "status": {"containerStatuses": [one]} if node else {},
    }


def warning(reason: str, kind: str, name: str, message: str = "because", **more: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "uid": more.pop("uid", "u0")}
    return {"reason": reason, "message": message, "involvedObject": about, **more}


CREATE = warning("FailedCreate", "StatefulSet", SET)
PROVISION = warning("ProvisioningFailed", "PersistentVolumeClaim", f"store-{POD}")
MOUNT = warning("FailedMount", "Pod", POD, uid="u1")
ATTACH = warning("FailedAttachVolume", "Pod", POD, uid="u1")
WARNINGS = [CREATE, PROVISION, MOUNT]


@pytest.mark.parametrize(
    ("pods", "event"),
    [([], CREATE), ([pod(node=None)], PROVISION), ([pod()], MOUNT), ([pod()], ATTACH)],
    ids=["not made", "without a node", "not mounted", "not attached"],
)
def test_what_is_missing_is_explained_by_its_own_event(pods: list[dict[str, Any]], event: dict[str, Any]) -> None:
    others = [warning | {"message": "another"} for warning in WARNINGS if warning is not event]
    others = [other for other in others if event is not ATTACH or other["reason"] != "FailedMount"]
    assert expects(ONE, pods)
    assert listen(ONE, pods, [*others, event]) == f"{POD}: because"


@pytest.mark.parametrize(
    "container",
    [
        {"state": {"running": {}}},
        {"state": {"terminated": {"exitCode": 1}}},
        {"restartCount": 1},
    ],
)
def test_what_has_begun_needs_no_explanation(container: dict[str, Any]) -> None:
    pods = [pod(**container)]
    assert not expects(ONE, pods)
    assert listen(ONE, pods, WARNINGS) == ""


@pytest.mark.parametrize(
    "event",
    [
        CREATE | {"involvedObject": {"kind": "StatefulSet", "name": "other"}},
        CREATE | {"involvedObject": {"kind": "ReplicaSet", "name": SET}},
        CREATE | {"reason": "RecreatingFailedPod"},
    ],
)
def test_events_about_others_explain_nothing(event: dict[str, Any]) -> None:
    assert listen(ONE, [], [event]) == ""


def test_an_event_of_the_pod_before_it_explains_nothing() -> None:
    assert listen(ONE, [pod(uid="u2")], [MOUNT]) == ""
    assert listen(ONE, [pod(node=None)], [PROVISION | {"involvedObject": {"kind": "Pod", "name": POD}}]) == ""


def test_a_pod_that_goes_is_missing() -> None:
    going = pod()
    going["metadata"]["deletionTimestamp"] = "t"
    assert expects(ONE, [going])
    assert listen(ONE, [going], [CREATE]) == f"{POD}: because"


@pytest.mark.parametrize("name", ["lastTimestamp", "eventTime"])
def test_the_newest_is_quoted(name: str) -> None:
    times = ["2026-01-01T00:00:02Z", "2026-01-01T00:00:09Z", "2026-01-01T00:00:05Z"]
    assert listen(ONE, [], [CREATE | {name: time, "message": time} for time in times]) == f"{POD}: {times[1]}"
    series = CREATE | {"series": {"lastObservedTime": times[2]}, "lastTimestamp": None, "message": "series"}
    assert listen(ONE, [], [CREATE | {name: times[0]}, series]) == f"{POD}: series"


def test_every_missing_pod_is_named_as_far_as_there_is_room() -> None:
    many = {f"s-{number}": 1 for number in range(PODS_MAX + 1)}
    long = "x" * (TEXT_MAX + 1)
    text = listen(many, [], [warning("FailedCreate", "StatefulSet", name, long) for name in many])
    assert text.startswith(f"s-0-0: {long[: TEXT_MAX - 3]}...; s-1-0: ")
    assert text.endswith("; 1 more pods")


def test_each_pod_of_a_set_counts() -> None:
    second = pod() | {"metadata": {"name": f"{SET}-1", "uid": "u9"}}
    assert listen({SET: 2}, [second], [CREATE]) == f"{POD}: because"
    assert not expects({}, [])
