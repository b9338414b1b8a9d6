"""After `helm uninstall`: finalizers are removed, and statuses say that nobody updates them."""

from __future__ import annotations

from typing import Any, Self

import pytest

from raptormq_operator.kube.errors import KubeError
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.topic_finalizer import set_finalizer
from raptormq_operator.uninstall import KINDS, Release, ResourcesRemain
from tests.operator.fake_kube import FakeKube
from tests.operator.resources import NAMESPACE, cluster_body, pipeline_body, topic_body

NOW = "2026-11-29T08:00:00Z"
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Ready",
    "message": "1 brokers have the wanted values",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-11-01T00:00:00Z",
}
LOST = {**READY, "type": "MessagesLost", "reason": "MessagesLost", "message": "broker-0 lost its disk"}


class Installed(FakeKube):
    """A cluster, a pipeline, and three Topics with the finalizer in two namespaces, as an operator left them."""

    passes = 0

    async def meanwhile(self) -> None:
        """Do what happens before pass number `passes`."""

    async def page(
        self, kind: str, namespace: str | None, selector: str = "", limit: int = 2, after: str = ""
    ) -> Manifest:
        if kind == KINDS[0] and not after:
            self.passes += 1
            await self.meanwhile()
        return await super().page(kind, namespace, selector, limit, after)

    async def fill(self) -> Self:
        self.put({**cluster_body(), "status": {"observedGeneration": 1, "conditions": [READY, LOST]}})
        self.put({**pipeline_body(), "status": {"conditions": [READY]}})
        for name, namespace in (("orders", NAMESPACE), ("bills", NAMESPACE), ("moves", "bank")):
            body = topic_body(name, deletionPolicy="Delete")
            body["metadata"]["namespace"] = namespace
            body["status"] = {"topicName": name, "conditions": [READY]}
            await set_finalizer(self, self.put(body), present=True)
        return self

    def conditions(self, kind: str, name: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.objects[kind, namespace, name]["status"]["conditions"]
        return found

    def guarded(self) -> set[str]:
        return {place[2] for place, body in self.objects.items() if body["metadata"].get("finalizers")}


async def released(kube: FakeKube, *namespaces: str | None, limit: float = 60.0) -> None:
    await Release(kube, namespaces or (None,), lambda: NOW)(limit=limit, pause=0.0)


async def test_ready_is_unknown_with_the_last_state_and_other_conditions_stay() -> None:
    kube = await Installed().fill()
    await released(kube)
    unknown = {
        **READY,
        "status": "Unknown",
        "reason": "OperatorRemoved",
        "message": "the operator was uninstalled; the last state was Ready: 1 brokers have the wanted values",
        "lastTransitionTime": NOW,
    }
    assert kube.conditions("BrokerCluster", "demo") == [unknown, LOST]
    assert kube.conditions("SparkPipeline", "delays") == [unknown]
    assert kube.conditions("Topic", "moves", "bank") == [unknown]
    assert kube.objects["Topic", NAMESPACE, "orders"]["status"]["topicName"] == "orders"


async def test_finalizers_of_all_pages_are_removed_and_those_of_others_stay() -> None:
    kube = await Installed().fill()
    kube.objects["Topic", NAMESPACE, "bills"]["metadata"]["finalizers"].insert(0, "theirs")
    await released(kube, "bank")
    assert kube.guarded() == {"orders", "bills"}
    kube.rewrite = _keeps("theirs")
    await released(kube)
    assert kube.guarded() == {"bills"}
    assert kube.objects["Topic", NAMESPACE, "bills"]["metadata"]["finalizers"] == ["theirs"]


def _keeps(finalizer: str) -> Any:
    """Return the API server's merge of a set: an apply removes only the entries of its manager."""

    def merge(manifest: Manifest) -> Manifest:
        if manifest["metadata"]["name"] == "bills":
            manifest["metadata"]["finalizers"] = [finalizer]
        return manifest

    return merge


async def test_second_run_writes_nothing() -> None:
    kube = await Installed().fill()
    await released(kube)
    kube.writes.clear()
    await released(kube)
    assert kube.writes == []


async def test_operator_that_still_runs_is_outlasted() -> None:
    """An operator with rights beyond the chart's roles restores statuses and finalizers until its process ends."""

    class Restored(Installed):
        async def meanwhile(self) -> None:
            if self.passes <= 3:
                await self.fill()

    kube = await Restored().fill()
    await released(kube)
    assert kube.passes > 3
    assert kube.guarded() == set()
    assert kube.conditions("BrokerCluster", "demo")[0]["status"] == "Unknown"


async def test_writes_that_fail_for_a_while_are_repeated() -> None:
    class Recovering(Installed):
        async def meanwhile(self) -> None:
            if self.passes == 3:
                self.refuse.clear()

    kube = await Recovering().fill()
    kube.refuse["Topic"] = KubeError(0, "no response")
    await released(kube)
    assert kube.guarded() == set()
    assert kube.conditions("Topic", "moves", "bank")[0]["status"] == "Unknown"


async def test_api_server_without_response_is_an_error_that_names_the_command() -> None:
    kube = await Installed().fill()
    kube.refuse_lists["Topic"] = KubeError(0, "no response")
    with pytest.raises(ResourcesRemain, match=r"no response.*kubectl patch topic NAME --type=merge"):
        await released(kube, limit=0.05)
    assert kube.conditions("BrokerCluster", "demo")[0]["status"] == "Unknown", "one kind does not delay the others"


async def test_definitions_that_were_deleted_before_need_nothing() -> None:
    kube = FakeKube()
    kube.refuse_lists |= dict.fromkeys(("BrokerCluster", "SparkPipeline", "Topic"), KubeError(404, "not found"))
    await released(kube)
    assert kube.writes == []


async def test_topic_that_is_being_deleted_goes_with_its_finalizer() -> None:
    class Deleted(Installed):
        async def apply(self, manifest: Manifest, manager: str = names.FIELD_MANAGER) -> Manifest:
            answer = await super().apply(manifest, manager)
            if "finalizers" not in manifest["metadata"]:
                del self.objects["Topic", manifest["metadata"]["namespace"], manifest["metadata"]["name"]]
            return answer

    kube = await Deleted().fill()
    await released(kube)
    assert {kind for kind, _, _ in kube.objects} == {"BrokerCluster", "SparkPipeline"}
