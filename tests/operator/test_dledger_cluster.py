"""A BrokerCluster of one Dledger group, with simulated objects and members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raptormq.protocol.bodies.replication import UNREPLICATED, LostRange, ReplicationState
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.config import broker_properties
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body
from tests.operator.test_reconcile_cluster import Operator

SPEC: dict[str, Any] = {"replicas": 3, "replication": {"mode": "dledger"}}
CLUSTER = Cluster.from_object(cluster_body(**SPEC), SURROUNDINGS)
FIRST, SECOND, THIRD = CLUSTER.members


def named(kind: str, name: str, **options: Any) -> Manifest:
    objects = wanted(CLUSTER, **options).objects
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def test_each_member_knows_all_members_by_their_stable_names() -> None:
    settings = broker_properties(CLUSTER, SECOND)
    assert settings["enableDLegerCommitLog"] == "true"
    assert settings["dLegerSelfId"] == "n1"
    assert settings["dLegerPeers"] == ";".join(
        f"n{index}-demo-broker-0-{index}-0.demo-broker-0.{CLUSTER.zone}:10913" for index in range(3)
    )
    assert "brokerId" not in settings, "it depends on the role"
    ports = named("Service", "demo-broker-0")["spec"]["ports"]
    assert ("replication", 10913) in [(port["name"], port["port"]) for port in ports]


def test_members_go_to_nodes_of_their_own_where_they_can_and_the_affinity_of_the_user_stays() -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    spec = SPEC | {"scheduling": {"affinity": affinity}}
    objects = wanted(Cluster.from_object(cluster_body(**spec), SURROUNDINGS)).objects
    (workload,) = [each for each in objects if each["metadata"]["name"] == FIRST.name and each["kind"] == "StatefulSet"]
    anti = workload["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    preferred = anti["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert anti["requiredDuringSchedulingIgnoredDuringExecution"] == [{"topologyKey": "zone"}]


async def test_it_is_ready_when_each_group_has_a_leader_and_says_who_leads() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    assert operator.ready["message"].endswith("demo-broker-0-0 leads broker-0")
    roles = [(each["name"], each["role"], each["lagBytes"]) for each in operator.status["brokers"]]
    assert roles == [(FIRST.name, "leader", 0), (SECOND.name, "follower", 7), (THIRD.name, "follower", 14)]
    operator.admin.lead(operator.cluster, None)
    await operator.pulse()
    assert (operator.ready["reason"], operator.ready["message"]) == ("NoLeader", "no member leads broker-0")
    assert all("lagBytes" not in each for each in operator.status["brokers"])
    assert operator.status["brokersReady"] == "0/3", "no member accepts messages during an election"
    assert not any(each["ready"] for each in operator.status["brokers"])


async def test_a_range_that_a_member_reports_as_lost_is_a_condition_of_the_cluster() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    assert [each["type"] for each in operator.status["conditions"]] == ["Ready"]
    leader = operator.admin.replicas[FIRST.address]
    operator.admin.replicas[FIRST.address] = replace(leader, lost=LostRange(0, 700))
    await operator.turn()
    ready, lost = operator.status["conditions"]
    assert (ready["status"], lost["type"], lost["status"]) == ("True", "MessagesLost", "True")
    assert "the group broker-0 has lost offsets 0 to 700" in lost["message"]


def ending(operator: Operator, member: Member) -> dict[str, Any]:
    """Simulate the deletion of a member's pod by somebody: the StatefulSet counts it, but not as an updated one."""
    workload = operator.kube.objects["StatefulSet", NAMESPACE, member.name]
    workload["status"] |= {"updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0, "updateRevision": "now"}
    labels = names.broker_labels("demo", 0, member.index) | {names.REVISION_LABEL: "now"}
    metadata = {"name": f"{member.name}-0", "namespace": NAMESPACE, "labels": labels, "deletionTimestamp": "t"}
    return operator.kube.put({"kind": "Pod", "metadata": metadata, "spec": {}, "status": {}})


async def test_no_leader_takes_precedence_over_pods_that_are_not_ready() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    ending(operator, FIRST)
    operator.admin.lead(operator.cluster, None)
    operator.admin.down.add(FIRST.address)
    await operator.turn()
    assert operator.ready["reason"] == "NoLeader"
    assert operator.ready["message"] == (
        "no member leads broker-0; pods are not available yet: demo-broker-0-0; demo-broker-0-0-0: being deleted"
    )


async def test_group_of_a_new_cluster_that_has_no_leader_yet_waits_for_its_pods() -> None:
    operator = Operator(**SPEC)
    operator.admin.serve(operator.cluster)
    operator.admin.lead(operator.cluster, None)
    await operator.turn()
    await operator.turn()
    assert operator.ready["reason"] == "PodsNotReady"


async def test_deleted_pod_of_a_leader_is_neither_a_change_nor_a_reason_to_transfer_leadership() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    ending(operator, FIRST)
    await operator.turn()
    assert operator.admin.transferred == []
    assert operator.ready["reason"] == "PodsNotReady"
    assert operator.ready["message"] == (
        "pods are not available yet: demo-broker-0-0; demo-broker-0-0-0: being deleted"
    )
    operator.admin.lead(operator.cluster, SECOND)
    await operator.turn()
    service = operator.kube.objects["Service", NAMESPACE, "demo-broker-0-leader"]
    assert service["spec"]["selector"]["raptormq.io/member"] == "1"
    assert operator.ready["reason"] == "PodsNotReady", "the Service follows the leader, which is no change"


async def test_leader_that_responds_only_to_its_followers_is_unreachable_and_not_missing() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.down.add(FIRST.address)
    await operator.pulse()
    assert operator.ready["reason"] == "BrokerUnreachable"
    assert operator.status["brokersReady"] == "2/3"


async def test_a_new_leader_is_seen_by_the_next_pulse() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    looked_at = operator.topics_looked_at
    operator.admin.lead(operator.cluster, THIRD)
    await operator.follow_leaders(NAMESPACE, "demo")
    await operator.pulse()
    assert operator.ready["message"].endswith("demo-broker-0-2 leads broker-0")
    assert operator.topics_looked_at == looked_at + 1


async def test_a_leader_that_name_servers_list_as_a_follower_is_not_registered() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    for server, listing in operator.admin.listings.items():
        operator.admin.listings[server] = {(*key[:2], key[2] or 1): address for key, address in listing.items()}
    await operator.pulse()
    assert operator.ready["reason"] == "NotRegistered"


async def test_the_leader_hands_over_before_it_is_changed() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.kube.put(operator.body | {"spec": operator.body["spec"] | {"flush": "SYNC"}})
    for member in (SECOND, THIRD):
        operator.admin.restartable = {member.address}
        await operator.turn()
        workload = operator.kube.objects["StatefulSet", NAMESPACE, member.name]
        assert "=SYNC_FLUSH" in str(operator.kube.objects["ConfigMap", NAMESPACE, member.name]), workload
        operator.kube.settle()
    assert operator.admin.transferred == []
    operator.admin.restartable = {FIRST.address}
    await operator.turn()
    assert operator.admin.transferred == [FIRST.address]
    assert "=SYNC_FLUSH" not in str(operator.kube.objects["ConfigMap", NAMESPACE, FIRST.name])
    assert ("Normal", "LeaderTransferred") in operator.kube.events()


async def test_nobody_is_changed_while_the_leader_says_no() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.restartable = set()
    operator.kube.put(operator.body | {"spec": operator.body["spec"] | {"flush": "SYNC"}})
    await operator.turn()
    assert operator.ready["reason"] == "Progressing"
    assert "no quorum of caught-up members without it" in operator.ready["message"]
    assert not any(
        "=SYNC_FLUSH" in str(body) for (kind, _, _), body in operator.kube.objects.items() if kind == "ConfigMap"
    )


async def test_the_budget_lets_the_broker_with_the_data_go_until_the_group_is_formed() -> None:
    operator = Operator()
    await operator.until_ready()
    unreplicated = ReplicationState("broker-0", UNREPLICATED, "", "leader", 0, "", 10, 10)
    operator.admin.replicas[FIRST.address] = unreplicated
    operator.kube.put(operator.body | {"spec": operator.body["spec"] | SPEC})
    await operator.turn()
    budget = operator.kube.objects["PodDisruptionBudget", NAMESPACE, "demo-broker-0"]
    assert budget["spec"]["maxUnavailable"] == 3
    operator.admin.serve(CLUSTER)
    assert replace(operator.admin.replicas[FIRST.address], members=()).role == "leader"
    for _ in range(4):
        operator.kube.settle()
        await operator.turn()
    budget = operator.kube.objects["PodDisruptionBudget", NAMESPACE, "demo-broker-0"]
    assert budget["spec"]["maxUnavailable"] == 1


async def test_member_whose_store_has_messages_that_its_group_lacks_makes_the_cluster_not_ready() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    member = operator.cluster.members[1]
    state = operator.admin.replicas[member.address]
    operator.admin.replicas[member.address] = replace(state, diverged="n0 leads a group without it")
    await operator.turn()
    assert operator.ready["reason"] == "StoresDiverge"
    assert f"may lack acknowledged messages of {member.name}" in operator.ready["message"]
    assert "n0 leads a group without it" in operator.ready["message"]
    operator.admin.replicas[member.address] = state
    await operator.turn()
    assert operator.ready["reason"] == "Ready"


async def test_diverged_store_is_shown_together_with_a_missing_leader() -> None:
    operator = Operator(**SPEC)
    await operator.until_ready()
    operator.admin.lead(operator.cluster, None)
    member = operator.cluster.members[2]
    state = operator.admin.replicas[member.address]
    operator.admin.replicas[member.address] = replace(state, diverged="its data belongs to no group")
    await operator.turn()
    assert operator.ready["reason"] == "StoresDiverge"
    assert "no member leads broker-0" in operator.ready["message"]
