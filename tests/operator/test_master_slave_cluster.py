"""A BrokerCluster of masters and slaves: its objects, rolling updates, readiness, and the promotion of a slave."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from raptormq.protocol.bodies.replication import LostRange
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.manifests.config import broker_properties
from raptormq_operator.model.cluster import Cluster, Mastery
from tests.operator.master_slave_world import Pairs
from tests.operator.resources import NAMESPACE, SURROUNDINGS, cluster_body

SYNC = {"mode": "masterSlave", "acknowledge": "SYNC"}


def cluster_of(**spec: Any) -> Cluster:
    wants: dict[str, Any] = {"replicas": 2, "replication": {"mode": "masterSlave"}} | spec
    return Cluster.from_object(cluster_body(**wants), SURROUNDINGS)


# --- objects ---


def test_each_member_has_a_role_and_an_id_of_its_own() -> None:
    cluster = cluster_of(replicas=3, replication=SYNC)
    found = [broker_properties(cluster, member) for member in cluster.members]
    assert [(each["brokerRole"], each["brokerId"]) for each in found] == [
        ("SYNC_MASTER", "0"),
        ("SLAVE", "1"),
        ("SLAVE", "2"),
    ]
    assert {each["haListenPort"] for each in found} == {"10912"}
    assert {each["brokerName"] for each in found} == {"broker-0"}
    assert broker_properties(cluster_of(), cluster_of().members[0])["brokerRole"] == "ASYNC_MASTER"


@pytest.mark.parametrize("master", [0, 1, 2])
@pytest.mark.parametrize("successor", [None, 0, 1, 2])
def test_ids_differ_whoever_is_the_master(master: int, successor: int | None) -> None:
    if successor == master:
        return
    cluster = cluster_of(replicas=3).with_masters({0: Mastery(master, successor)})
    found = [broker_properties(cluster, member) for member in cluster.members]
    slaves = [each["brokerId"] for each in found if each["brokerRole"] == "SLAVE"]
    assert "0" not in slaves
    if successor is None:
        assert len(set(slaves)) == 2
        assert "1" in slaves, "it serves consumers"
    else:
        assert len(slaves) == 3
        before = broker_properties(cluster.with_masters({0: Mastery(master)}), cluster.members[successor])
        assert found[successor] == before, "the new master is not changed before the end of the old one"


def test_ports_budgets_and_nodes_are_those_of_a_group() -> None:
    objects = {(each["kind"], each["metadata"]["name"]): each for each in wanted(cluster_of(groups=2)).objects}
    service = objects["Service", "demo-broker-0"]["spec"]
    assert ("ha", 10912) in [(port["name"], port["port"]) for port in service["ports"]]
    for group in range(2):
        assert objects["PodDisruptionBudget", f"demo-broker-{group}"]["spec"]["maxUnavailable"] == 1
    spec = objects["StatefulSet", "demo-broker-0-1"]["spec"]["template"]["spec"]
    apart = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {each["podAffinityTerm"]["topologyKey"] for each in apart} == {"kubernetes.io/hostname"}


# --- readiness ---


async def test_ready_names_the_master_and_the_status_the_lag() -> None:
    operator = Pairs()
    await operator.until_ready()
    assert operator.ready["message"].endswith("demo-broker-0-0 is the master of broker-0")
    assert [(each["role"], each["lagBytes"]) for each in operator.status["brokers"]] == [("master", 0), ("slave", 0)]
    assert "promotion" not in operator.status


@pytest.mark.parametrize(("acknowledge", "reason"), [("SYNC", "NoSlave"), ("ASYNC", "SlaveBehind")])
async def test_a_slave_that_does_not_follow_is_named_with_its_reason(acknowledge: str, reason: str) -> None:
    operator = Pairs(replication={"mode": "masterSlave", "acknowledge": acknowledge})
    await operator.until_ready()
    operator.logs[operator.member(0, 1).name] = 500
    operator.controllers()
    await operator.pulse()
    assert operator.ready["reason"] == reason
    assert "demo-broker-0-1 does not follow its master: this log ends at 500" in operator.ready["message"]


async def test_a_group_without_its_master_is_not_ready() -> None:
    operator = Pairs(groups=2)
    await operator.until_ready()
    operator.admin.down.add(operator.member(1, 0).address)
    await operator.pulse()
    assert operator.ready["reason"] == "NoMaster"
    assert "master of broker-1: what its slaves have can be read" in operator.ready["message"]


# --- rolls ---


async def test_slaves_are_changed_first_and_their_master_last() -> None:
    operator = Pairs(groups=2, replicas=3)
    await operator.until_ready()
    operator.patch(flush="SYNC")
    await operator.turn_all(30)
    assert operator.ready["status"] == "True", operator.ready
    assert Counter(operator.evicted) == dict.fromkeys((member.name for member in operator.cluster.members), 1)
    for group in range(2):
        order = [name for name in operator.evicted if name.startswith(f"demo-broker-{group}-")]
        assert order[-1] == f"demo-broker-{group}-0"


async def test_a_master_waits_for_its_slaves_and_nobody_is_changed_while_one_is_behind() -> None:
    operator = Pairs(replicas=3)
    await operator.until_ready()
    operator.logs[operator.member(0, 2).name] = 500
    operator.controllers()
    operator.patch(flush="SYNC")
    await operator.turn_all()
    assert operator.evicted == ["demo-broker-0-2"], "the slave that does not follow, because the change may repair it"
    held = {each["name"]: each.get("waiting", {}).get("reason") for each in operator.status["brokers"]}
    assert held["demo-broker-0-1"] == "its master does not respond, or no other slave has caught up"
    assert held["demo-broker-0-0"] == "its slaves are changed first"


async def test_a_broker_that_refuses_its_restart_is_not_restarted() -> None:
    operator = Pairs()
    await operator.until_ready()
    operator.patch(flush="SYNC")
    for _ in range(4):
        operator.admin.restartable = set()
        await operator.turn()
    assert operator.evicted == []
    assert operator.ready["reason"] == "Progressing"


# --- promotion ---


async def lost_master(**spec: Any) -> Pairs:
    """The master's node is lost permanently, its pod was deleted by force, and the new pod cannot be scheduled."""
    operator = Pairs(**spec)
    await operator.until_ready()
    operator.logs[operator.member(0, 0).name] = 1000
    operator.controllers()
    await operator.turn_all(2)
    operator.unschedulable.add(operator.member(0, 0).name)
    operator.delete_pod(operator.member(0, 0))
    operator.controllers()
    await operator.turn()
    return operator


async def test_a_slave_is_promoted_when_the_master_is_lost_and_all_of_it_is_told() -> None:
    operator = await lost_master(replication=SYNC)
    assert operator.ready["reason"] == "NoMaster"
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn()
    assert operator.status["promotion"]["state"] == "Promoting"
    assert "Its log ends at offset 1000" in operator.condition("Promoting")
    assert "none of it was answered with SEND_OK" in operator.condition("Promoting")
    assert operator.settings(operator.member(0, 0))["brokerRole"] == "SYNC_MASTER", (
        "the status reports it before it is executed"
    )
    assert ("Warning", "Promoting") in operator.kube.events()
    await operator.turn_all()
    assert operator.status["promotion"] == {
        "member": "demo-broker-0-1",
        "state": "Promoted",
        "message": operator.condition("Promoted"),
        "former": "demo-broker-0-0",
        "lostFrom": 1000,
    }
    assert ("Warning", "Promoted") in operator.kube.events()
    assert operator.roles()["demo-broker-0-1"] == "master"
    roles = [operator.settings(member)["brokerRole"] for member in operator.cluster.members]
    assert roles == ["SLAVE", "SYNC_MASTER"]
    assert operator.settings(operator.member(0, 0))["brokerId"] == "1"
    operator.unschedulable.clear()
    operator.delete_pod(operator.member(0, 0))
    await operator.turn_all(3)
    assert operator.ready["status"] == "True", operator.ready
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}
    assert operator.evicted == ["demo-broker-0-0", "demo-broker-0-1"], (
        "the pod that was not scheduled, and the new master"
    )


async def test_an_operator_that_is_killed_anywhere_in_a_promotion_goes_on_with_it() -> None:
    """The next operator has only the API server's data: objects, and the last written status."""
    for killed_at in range(8):
        operator = await lost_master()
        operator.patch(replication={"promote": "demo-broker-0-1"})
        for number in range(20):
            if number == killed_at:  # after the steps of a reconciliation and before its status
                body = operator.kube.objects["BrokerCluster", NAMESPACE, "demo"]
                status = body["status"]
                await operator.turn()
                operator.kube.put(operator.kube.objects["BrokerCluster", NAMESPACE, "demo"] | {"status": status})
                operator.restart()
            await operator.round()
        assert operator.status["promotion"]["state"] == "Promoted", killed_at
        assert operator.roles()["demo-broker-0-1"] == "master"
        assert operator.most_masters == 1, "there are never two masters"


async def test_a_master_on_a_node_that_is_cut_off_keeps_the_promotion_waiting() -> None:
    operator = Pairs()
    await operator.until_ready()
    master = operator.member(0, 0)
    operator.cut_off.add(master.name)
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    assert operator.status["promotion"]["state"] == "Promoting"
    assert "waits until pod demo-broker-0-0-0 of the old master has ended" in operator.ready["message"]
    assert operator.settings(operator.member(0, 1))["brokerRole"] == "SLAVE"
    operator.patch(replication={"promote": None})
    await operator.turn_all(3)
    assert operator.status["promotion"]["state"] == "Promoting", "the promotion can no longer be cancelled"
    operator.cut_off.clear()
    operator.delete_pod(master)  # by force, or because its node is back
    await operator.turn_all()
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}
    assert operator.most_masters == 1


@pytest.mark.parametrize(
    ("promote", "why"),
    [
        ("demo-broker-0-1", "demo-broker-0-0 is the master and responds"),
        ("demo-broker-0-7", "there is no member demo-broker-0-7, only demo-broker-0-0, demo-broker-0-1"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_not_tried_again(promote: str, why: str) -> None:
    operator = Pairs()
    await operator.until_ready()
    operator.patch(replication={"promote": promote})
    await operator.turn_all(2)
    assert operator.ready["status"] == "True", "clients are served"
    assert why in operator.condition("PromotionRefused")
    operator.unschedulable.add("demo-broker-0-0")
    operator.delete_pod(operator.member(0, 0))
    operator.controllers()
    await operator.turn_all(4)
    assert operator.status["promotion"]["state"] == "Refused", "a restart of the master causes no promotion"
    operator.patch(replication={"promote": None})
    await operator.turn()
    assert "promotion" not in operator.status
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    assert operator.roles()["demo-broker-0-1"] == "master"


async def test_the_master_itself_is_promoted_without_any_step() -> None:
    operator = Pairs()
    await operator.until_ready()
    await operator.turn_all(1)  # annotates the claims
    writes = len(operator.kube.writes)
    operator.patch(replication={"promote": "demo-broker-0-0"})
    await operator.turn_all(2)
    assert operator.status["promotion"]["state"] == "Promoted"
    assert [kind for kind, *_ in operator.kube.writes[writes:] if kind != "status"] == []
    assert operator.condition("Promoted") == ""


async def test_promoted_twice_and_back_again() -> None:
    operator = await lost_master()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    operator.unschedulable.clear()
    operator.delete_pod(operator.member(0, 0))
    await operator.turn_all(3)
    evicted = list(operator.evicted)
    operator.patch(replication={"promote": None})
    await operator.turn_all(3)
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}, "it is kept without the field"
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(3)
    assert operator.evicted == evicted
    operator.unschedulable.add("demo-broker-0-1")
    operator.delete_pod(operator.member(0, 1))
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-0"})
    await operator.turn_all()
    assert operator.roles()["demo-broker-0-0"] == "master"
    assert operator.settings(operator.member(0, 1))["brokerRole"] == "SLAVE"


async def test_the_slave_that_has_most_is_promoted() -> None:
    operator = await lost_master(replicas=3)
    operator.logs["demo-broker-0-2"] = 1400
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(3)
    assert "demo-broker-0-2 has more of the log" in operator.condition("PromotionRefused")
    operator.patch(replication={"promote": "demo-broker-0-2"})
    await operator.turn_all()
    assert operator.roles()["demo-broker-0-2"] == "master"


async def test_a_slave_that_is_far_behind_needs_the_word_of_the_user() -> None:
    operator = await lost_master()
    operator.pods["demo-broker-0-1"].master_end = 1 << 30
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(3)
    assert "raptormq.io/accept-loss=demo-broker-0-1" in operator.condition("PromotionRefused")
    operator.patch(replication={"promote": None})
    await operator.turn()
    operator.patch(
        replication={"promote": "demo-broker-0-1"}, annotations={"raptormq.io/accept-loss": "demo-broker-0-1"}
    )
    await operator.turn()
    assert f"Lost are offsets 1000 to {1 << 30} of the log" in operator.condition("Promoting")
    await operator.turn_all()
    assert operator.status["promotion"]["lostUpTo"] == 1 << 30
    assert operator.roles()["demo-broker-0-1"] == "master"


async def test_slave_whose_log_begins_after_that_of_its_master_needs_the_annotation() -> None:
    operator = await lost_master()
    operator.missing["demo-broker-0-1"] = LostRange(0, 700)
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(3)
    refused = operator.condition("PromotionRefused")
    assert "begins at offset 700, and that of its master began at 0" in refused
    assert "raptormq.io/accept-loss=demo-broker-0-1" in refused
    assert operator.roles()["demo-broker-0-1"] == "slave"
    operator.patch(replication={"promote": None})
    await operator.turn()
    operator.patch(
        replication={"promote": "demo-broker-0-1"}, annotations={"raptormq.io/accept-loss": "demo-broker-0-1"}
    )
    await operator.turn()
    assert "Lost are offsets 0 to 700 at the beginning of the log, and what the master" in operator.condition(
        "Promoting"
    )
    await operator.turn_all()
    assert operator.roles()["demo-broker-0-1"] == "master"


async def test_a_slave_that_does_not_answer_is_waited_for() -> None:
    operator = await lost_master()
    operator.unschedulable.add("demo-broker-0-1")
    operator.delete_pod(operator.member(0, 1))
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(3)
    assert operator.status["promotion"]["state"] == "Waiting", "both members are down"
    operator.unschedulable.discard("demo-broker-0-1")
    operator.delete_pod(operator.member(0, 1))
    operator.controllers()
    await operator.turn_all()
    assert operator.roles()["demo-broker-0-1"] == "master"


async def test_a_master_that_came_back_with_an_empty_disk_is_replaced() -> None:
    operator = Pairs()
    await operator.until_ready()
    operator.logs["demo-broker-0-0"] = 1000
    operator.controllers()
    operator.time += 100
    await operator.turn_all(2)
    operator.delete_claim(operator.member(0, 0))
    operator.controllers()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}
    assert operator.logs == {"demo-broker-0-0": 1000, "demo-broker-0-1": 1000}
    assert operator.most_masters == 1


async def test_a_new_cluster_has_the_named_member_as_its_first_master() -> None:
    operator = Pairs(replication={"mode": "masterSlave", "promote": "demo-broker-0-1"})
    await operator.until_ready()
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}
    assert operator.evicted == []


async def test_a_deleted_config_map_moves_no_master() -> None:
    operator = await lost_master()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    operator.patch(replication={"promote": None}, replicas=3)
    del operator.kube.objects["ConfigMap", NAMESPACE, "demo-broker-0-1"]
    await operator.turn()
    assert operator.settings(operator.member(0, 1))["brokerRole"] == "ASYNC_MASTER"


# --- losses ---


async def test_both_members_come_back_with_the_roles_that_they_had() -> None:
    operator = await lost_master()
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    operator.unschedulable.clear()
    for member in operator.cluster.members:
        operator.delete_pod(member)
    await operator.turn_all(3)
    assert operator.ready["status"] == "True", operator.ready
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}


async def test_both_disks_are_lost_and_it_is_told() -> None:
    operator = Pairs()
    await operator.until_ready()
    operator.logs["demo-broker-0-0"] = 1000
    operator.controllers()
    operator.time += 100
    await operator.turn_all(2)
    for member in operator.cluster.members:
        operator.delete_claim(member)
    await operator.turn_all(3)
    assert operator.ready["status"] == "True", operator.ready
    assert "broker-0 (demo-broker-0-0) came back with an empty store" in operator.condition("MessagesLost")
    assert "demo-broker-0-1" not in operator.condition("MessagesLost")


async def test_a_slave_that_lost_its_disk_gets_everything_again_and_nothing_is_called_lost() -> None:
    operator = Pairs()
    await operator.until_ready()
    operator.logs["demo-broker-0-0"] = 1000
    operator.controllers()
    operator.time += 100
    await operator.turn_all(2)
    operator.delete_claim(operator.member(0, 1))
    await operator.turn_all(3)
    assert operator.ready["status"] == "True", operator.ready
    assert operator.logs["demo-broker-0-1"] == 1000
    assert operator.condition("MessagesLost") == ""


async def test_sync_without_its_slave_says_what_producers_get() -> None:
    operator = Pairs(replication=SYNC)
    await operator.until_ready()
    operator.unschedulable.add("demo-broker-0-1")
    operator.delete_pod(operator.member(0, 1))
    operator.controllers()
    await operator.turn()
    assert operator.ready["reason"] == "PodsNotReady"
    assert "no slave of broker-0 follows: sends are answered with SLAVE_NOT_AVAILABLE" in operator.ready["message"]


async def test_an_old_master_with_messages_that_nobody_has_follows_nobody_until_its_disk_is_emptied() -> None:
    operator = await lost_master()
    operator.logs["demo-broker-0-0"] = 1500  # messages that the slave does not have
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all()
    operator.unschedulable.clear()
    operator.delete_pod(operator.member(0, 0))
    await operator.turn_all(3)
    assert operator.ready["reason"] == "SlaveBehind"
    assert "demo-broker-0-0 does not follow its master: this log ends at 1500" in operator.ready["message"]
    assert operator.logs == {"demo-broker-0-0": 1500, "demo-broker-0-1": 1000}, "no log is truncated"
    operator.delete_claim(operator.member(0, 0))
    await operator.turn_all(3)
    assert operator.ready["status"] == "True", operator.ready
    assert operator.logs == {"demo-broker-0-0": 1000, "demo-broker-0-1": 1000}


async def test_a_claim_that_is_being_deleted_is_reason_enough_and_its_pod_is_not_evicted() -> None:
    operator = Pairs()
    await operator.until_ready()
    claim = operator.kube.objects["PersistentVolumeClaim", NAMESPACE, "store-demo-broker-0-0-0"]
    operator.terminating.add("demo-broker-0-0")
    operator.kube.put(claim | {"metadata": claim["metadata"] | {"deletionTimestamp": "t0"}})
    operator.patch(replication={"promote": "demo-broker-0-1"})
    await operator.turn_all(4)
    assert operator.status["promotion"]["state"] == "Promoting"
    assert operator.evicted == []
    assert operator.settings(operator.member(0, 0))["brokerRole"] == "SLAVE"
    operator.terminating.clear()
    operator.delete_claim(operator.member(0, 0))
    await operator.turn_all()
    assert operator.ready["status"] == "True", operator.ready
    assert operator.roles() == {"demo-broker-0-0": "slave", "demo-broker-0-1": "master"}
    assert operator.most_masters == 1
