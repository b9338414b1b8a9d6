"""Volume claims of earlier clusters: which a new broker may use, and which need a decision of the user."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq_operator.concerns import claim_of
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster
from raptormq_operator.reused_claims import refusal, to_record
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body
from tests.operator.test_reconcile_cluster import Operator

DLEDGER: dict[str, Any] = {"replicas": 3, "replication": {"mode": "dledger"}}
GROUP = Cluster.from_object(cluster_body(**DLEDGER), SURROUNDINGS)
SINGLE = Cluster.from_object(cluster_body(), SURROUNDINGS)
OWN = f"dledger/{GROUP.uid}"
NOTHING: frozenset[str] = frozenset()


def claim(index: int, writer: str | None) -> dict[str, Any]:
    annotations = {} if writer is None else {names.STORE_ANNOTATION: writer}
    metadata = {
        "name": claim_of(GROUP.members[index]),
        "namespace": NAMESPACE,
        "uid": f"claim-{index}",
        "labels": names.broker_labels("demo", 0, index),
        "annotations": annotations,
    }
    spec = {"resources": {"requests": {"storage": "10Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def claims(*writers: str | None) -> list[dict[str, Any]]:
    return [claim(index, writer) for index, writer in enumerate(writers) if writer != ""]


@pytest.mark.parametrize(
    ("cluster", "writers", "existing", "conflicting"),
    [
        (GROUP, (), NOTHING, ()),
        (GROUP, (None, None, None), NOTHING, ()),
        (GROUP, ("dledger/a", "dledger/a", "dledger/a"), NOTHING, ()),
        (GROUP, ("dledger/a", "", "dledger/a"), NOTHING, ()),
        (GROUP, (OWN, OWN, OWN), NOTHING, ()),
        (GROUP, ("none/b", "dledger/a", "dledger/a"), NOTHING, (0, 1, 2)),
        (GROUP, ("dledger/b", "dledger/a", "dledger/a"), NOTHING, (0, 1, 2)),
        (GROUP, ("masterSlave/a", "masterSlave/a", ""), NOTHING, (0, 1)),
        (SINGLE, ("dledger/a", "dledger/a", "dledger/a"), NOTHING, (0,)),
        (GROUP, (f"none/{GROUP.uid}", "dledger/a", "dledger/a"), frozenset({GROUP.members[0].name}), (1, 2)),
        (GROUP, (f"none/{GROUP.uid}", "", ""), frozenset({GROUP.members[0].name}), ()),
        (GROUP, ("none/b", "dledger/a", "dledger/a"), frozenset(each.name for each in GROUP.members), ()),
    ],
)
def test_claims_of_one_earlier_cluster_of_the_same_mode_are_used_again(
    cluster: Cluster, writers: tuple[str | None, ...], existing: frozenset[str], conflicting: tuple[int, ...]
) -> None:
    verdict = refusal(cluster, claims(*writers), existing)
    named = {
        index for index in range(3) if verdict and f"claim {claim_of(GROUP.members[index])} was" in verdict.message
    }
    assert named == set(conflicting)


def test_claims_are_recorded_when_all_brokers_of_their_group_exist() -> None:
    everyone = frozenset(each.name for each in GROUP.members)
    found = to_record(GROUP, claims("dledger/a", None, OWN), everyone)
    assert found == {claim_of(GROUP.members[0]): OWN, claim_of(GROUP.members[1]): OWN}
    assert to_record(GROUP, claims("dledger/a", None, OWN), everyone - {GROUP.members[2].name}) == {}


async def test_a_cluster_does_not_start_on_claims_of_another_mode_until_the_user_decides() -> None:
    operator = Operator(**DLEDGER)
    for each in claims("none/b", "dledger/a", "dledger/a"):
        operator.kube.put(each)
    await operator.turn()
    assert operator.ready["reason"] == "ClaimConflict"
    assert (
        "claim store-demo-broker-0-0-0 was written last by a cluster with replication.mode none"
        in (operator.ready["message"])
    )
    assert operator.names("StatefulSet") == []
    accepted = operator.ready["message"].rpartition("=")[2]
    metadata = operator.body["metadata"] | {"annotations": {names.USE_CLAIMS_ANNOTATION: accepted}}
    operator.kube.put({**operator.kube.objects["BrokerCluster", NAMESPACE, "demo"], "metadata": metadata})
    await operator.until_ready()
    marks = {
        each["metadata"]["annotations"][names.STORE_ANNOTATION]
        for (kind, _, _), each in operator.kube.objects.items()
        if kind == "PersistentVolumeClaim"
    }
    assert marks == {f"dledger/{operator.cluster.uid}"}


async def test_a_running_broker_is_not_changed_to_a_group_with_claims_of_an_earlier_group() -> None:
    operator = Operator()
    operator.kube.put(claim(0, None))
    await operator.until_ready()
    operator.kube.put(claim(1, "dledger/a"))
    operator.kube.put(claim(2, "dledger/a"))
    body = operator.kube.objects["BrokerCluster", NAMESPACE, "demo"]
    operator.kube.put({**body, "spec": body["spec"] | DLEDGER})
    await operator.turn()
    assert operator.ready["reason"] == "ClaimConflict"
    assert operator.names("StatefulSet") == ["demo-broker-0-0", "demo-namesrv"]
    for index in (1, 2):
        del operator.kube.objects["PersistentVolumeClaim", NAMESPACE, claim_of(GROUP.members[index])]
    await operator.turn()
    assert operator.ready["reason"] == "Progressing"
