"""Events: repetitions are counted, and a failure to write an event has no other effect."""

from __future__ import annotations

import pytest

from raptormq_operator.kube.errors import KubeError
from raptormq_operator.kube.events import MAX_MESSAGE, EventRecorder
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, cluster_body

BODY = cluster_body()


async def test_the_same_thing_said_twice_is_one_event() -> None:
    kube, times = FakeKube(), iter(["t1", "t2", "t3"])
    events = EventRecorder(kube, lambda: next(times))
    await events.warning(BODY, "NotRegistered", "one is missing")
    await events.warning(BODY, "NotRegistered", "one is missing")
    await events.normal(BODY, "Ready", "all well")
    first, second = kube.objects.values()
    assert (first["count"], first["firstTimestamp"], first["lastTimestamp"]) == (2, "t1", "t2")
    assert first["involvedObject"]["uid"] == BODY["metadata"]["uid"]
    assert (second["type"], second["count"]) == ("Normal", 1)


async def test_a_long_message_is_cut_to_what_the_server_takes() -> None:
    kube = FakeKube()
    await EventRecorder(kube, lambda: "t").normal(BODY, "Ready", "x" * 5000)
    (event,) = kube.objects.values()
    assert len(event["message"]) == MAX_MESSAGE


async def test_a_failure_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    kube = FakeKube()
    kube.refuse["Event"] = KubeError(403, "no")
    await EventRecorder(kube, lambda: "t").normal(BODY, "Ready", "all well")
    assert "event Ready about demo was not written: no" in caplog.text
    assert BODY["metadata"]["namespace"] == NAMESPACE


async def test_each_is_a_line_of_the_log_with_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    events = EventRecorder(FakeKube(), lambda: "t")
    await events.normal(BODY, "Created", "made Service demo-namesrv")
    await events.warning(BODY, "NotRegistered", "one is missing")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "BrokerCluster shop/demo: Created: made Service demo-namesrv"),
        ("WARNING", "BrokerCluster shop/demo: NotRegistered: one is missing"),
    ]
    fields = {"kind": "BrokerCluster", "namespace": "shop", "name": "demo", "reason": "Created"}
    assert vars(caplog.records[0])["fields"] == fields
