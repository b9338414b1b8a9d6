"""Written statuses, and the logged changes."""

from __future__ import annotations

from prometheus_client import REGISTRY

from raptormq_operator.conditions import Concern, Reason, Verdict
from raptormq_operator.kube.events import EventRecorder
from raptormq_operator.metrics import REASON
from raptormq_operator.status_writer import StatusWriter
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, cluster_body

READY = Verdict(Reason.READY, "all well")


class Writing:
    """A cluster whose status is written repeatedly."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.now = "t0"
        self.writer = StatusWriter(self.kube, EventRecorder(self.kube, lambda: self.now), lambda: self.now)
        self.kube.put(cluster_body())

    async def write(self, verdict: Verdict, concerns: dict[Concern, str] | None = None) -> None:
        body = self.kube.objects["BrokerCluster", NAMESPACE, "demo"]
        await self.writer.write(body, {}, verdict, concerns or {})

    def told(self) -> list[tuple[str, str, str]]:
        return [
            (event["type"], event["reason"], event["message"])
            for (kind, _, _), event in self.kube.objects.items()
            if kind == "Event"
        ]


async def test_what_blocks_is_a_warning_with_the_words_of_the_condition_again_when_they_change() -> None:
    writing = Writing()
    no_class = Verdict(Reason.PODS_NOT_READY, 'storageclass "nosuch" not found', blocked=True)
    for verdict in (
        Verdict(Reason.PODS_NOT_READY, "pods are not available yet"),
        no_class,
        no_class,
        Verdict(Reason.PODS_NOT_READY, "exceeded quota", blocked=True),
        Verdict(Reason.PODS_NOT_READY, "one pod fewer"),
    ):
        await writing.write(verdict)
    assert writing.told() == [
        ("Normal", "PodsNotReady", "pods are not available yet"),
        ("Warning", "PodsNotReady", 'storageclass "nosuch" not found'),
        ("Warning", "PodsNotReady", "exceeded quota"),
    ]


async def test_a_concern_is_a_condition_and_a_warning_while_it_lasts() -> None:
    writing = Writing()
    await writing.write(READY)
    writing.now = "t1"
    await writing.write(READY, {Concern.SECRET_MISSING: "there is no Secret pull"})
    writing.now = "t2"
    await writing.write(READY, {Concern.SECRET_MISSING: "there is no Secret pull, nor tls"})
    ready, missing = writing.kube.objects["BrokerCluster", NAMESPACE, "demo"]["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["lastTransitionTime"]) == ("Ready", "True", "t0")
    assert (missing["type"], missing["status"], missing["reason"]) == ("SecretMissing", "True", "SecretMissing")
    assert (missing["lastTransitionTime"], missing["message"]) == ("t1", "there is no Secret pull, nor tls")
    assert writing.told()[1:] == [
        ("Warning", "SecretMissing", "there is no Secret pull"),
        ("Warning", "SecretMissing", "there is no Secret pull, nor tls"),
    ]
    await writing.write(READY)
    (ready,) = writing.kube.objects["BrokerCluster", NAMESPACE, "demo"]["status"]["conditions"]
    assert ready["type"] == "Ready"


async def test_the_reason_is_a_metric_of_which_there_is_one_for_each_resource() -> None:
    def reasons() -> dict[str, float]:
        (family,) = [each for each in REGISTRY.collect() if each.name == "raptormq_operator_resource_reason"]
        return {one.labels["reason"]: one.value for one in family.samples if one.labels["name"] == "demo"}

    REASON.clear()
    writing = Writing()
    await writing.write(Verdict(Reason.PROGRESSING, "making"))
    assert reasons() == {"Progressing": 1.0}
    await writing.write(READY)
    assert reasons() == {"Ready": 1.0}
    writing.writer.forget("BrokerCluster", NAMESPACE, "demo")
    assert reasons() == {}
