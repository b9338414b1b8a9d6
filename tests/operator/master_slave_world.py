"""Simulation of the brokers of a BrokerCluster of masters and slaves: pods, claims and logs.

A pod reads its role from the ConfigMap at its start. A log is represented by its length. A slave copies the log of its
master, unless its own log is longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raptormq.protocol.bodies.replication import MASTER_SLAVE, CopyState, LostRange, ReplicationState
from raptormq_operator.manifests import config
from raptormq_operator.manifests.metadata import digest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Member
from raptormq_operator.reconcile_cluster import ClusterReconciler
from tests.operator.resources import NAMESPACE
from tests.operator.test_reconcile_cluster import Operator


@dataclass
class Pod:
    """A running broker."""

    revision: str
    role: str
    master_end: int = 0


class Pairs(Operator):
    """An operator with the controllers and brokers of its cluster. `turn_all` runs both until nothing changes."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**{"replicas": 2, "replication": {"mode": "masterSlave"}} | spec)
        self.pods: dict[str, Pod] = {}
        self.logs: dict[str, int] = {}
        self.missing: dict[str, LostRange] = {}
        """What slaves report as missing at the beginning of their logs."""
        self.claims: dict[str, int] = {}
        self.cut_off: set[str] = set()
        """Members whose node is lost. Their pods neither respond nor end."""
        self.unschedulable: set[str] = set()
        """Members whose new pods cannot be scheduled."""
        self.terminating: set[str] = set()
        """Members whose volume claim is being deleted."""
        self.evicted: list[str] = []
        self.most_masters = 0
        for server in self.cluster.name_server_addresses:
            self.admin.listings[server] = {}

    def member(self, group: int, index: int) -> Member:
        return self.cluster.group(group)[index]

    # --- events of pods ---

    def delete_pod(self, member: Member) -> None:
        """Delete the pod, which ends unless its node is lost. The next step of the controllers creates another pod."""
        if member.name not in self.cut_off:
            self.pods.pop(member.name, None)

    def delete_claim(self, member: Member) -> None:
        """Delete claim and pod, so that the next pod has an empty disk."""
        self.delete_pod(member)
        self.logs[member.name] = 0
        self.claims[member.name] = self.claims.get(member.name, 0) + 1

    def controllers(self) -> None:
        """Execute one step of the StatefulSet controller and of the brokers."""
        self.kube.settle()
        for member in self.cluster.members:
            workload = self.kube.objects.get(("StatefulSet", NAMESPACE, member.name))
            if workload is not None:
                self._control(member, workload)
        self._brokers()

    def _control(self, member: Member, workload: dict[str, Any]) -> None:
        revision = digest(workload["spec"]["template"])
        known = self.kube.objects.get(("Pod", NAMESPACE, f"{member.name}-0"))
        if known is None and member.name in self.pods and member.name not in self.cut_off:  # evicted
            self.evicted.append(member.name)
            self.pods.pop(member.name)
        if member.name not in self.pods:
            file = self.kube.objects["ConfigMap", NAMESPACE, member.name]
            starting = "Pending" if member.name in self.unschedulable else config.role_in(file)
            self.pods[member.name] = Pod(revision, starting)
            self.logs.setdefault(member.name, 0)
        pod = self.pods[member.name]
        is_there = self._serves(member)
        labels = names.broker_labels("demo", member.group, member.index) | {names.REVISION_LABEL: pod.revision}
        metadata = {"name": f"{member.name}-0", "namespace": NAMESPACE, "labels": labels, "uid": f"uid-{id(pod)}"}
        if member.name in self.cut_off:
            metadata["deletionTimestamp"] = "t0"
        self.kube.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node"}, "status": {}})
        updated = pod.revision == revision and member.name not in self.cut_off
        workload["status"] |= {
            "updateRevision": revision,
            "replicas": 1,
            "updatedReplicas": int(updated),
            **dict.fromkeys(("availableReplicas", "readyReplicas"), int(is_there)),
        }
        claim: dict[str, Any] = {
            "name": f"store-{member.name}-0",
            "namespace": NAMESPACE,
            "labels": names.broker_labels("demo", member.group, member.index),
            "uid": f"claim-{self.claims.get(member.name, 0)}",
        }
        before = self.kube.objects.get(("PersistentVolumeClaim", NAMESPACE, claim["name"]))
        if before is not None and before["metadata"]["uid"] == claim["uid"]:
            claim["annotations"] = before["metadata"].get("annotations", {})
        if member.name in self.terminating:
            claim["deletionTimestamp"] = "t0"
        spec = {"resources": {"requests": {"storage": "10Gi"}}}
        self.kube.put({"kind": "PersistentVolumeClaim", "metadata": claim, "spec": spec})

    def _serves(self, member: Member) -> bool:
        pod = self.pods.get(member.name)
        return pod is not None and pod.role != "Pending" and member.name not in self.cut_off

    def _brokers(self) -> None:
        admin = self.admin
        for group in range(self.cluster.groups):
            members = self.cluster.group(group)
            masters = [each for each in members if self._serves(each) and self.pods[each.name].role != config.SLAVE]
            self.most_masters = max(self.most_masters, len(masters))
            master = masters[0] if masters else None
            for member in members:
                admin.down.discard(member.address)
                if not self._serves(member):
                    admin.down.add(member.address)
                    continue
                admin.topics.setdefault(member.address, {})
                self._answer(member, master)
        self._register()

    def _answer(self, member: Member, master: Member | None) -> None:
        pod = self.pods[member.name]
        admin, address = self.admin, member.address
        if pod.role != config.SLAVE:
            end = self.logs[member.name]
            state = ReplicationState(member.broker_name, MASTER_SLAVE, address, "master", 0, address, end, end, address)
            admin.replicas[address], admin.max_offsets[address] = state, end
            return
        follows = master is not None and self.logs[member.name] <= self.logs[master.name]
        remark = ""
        if master is not None and follows:
            self.logs[member.name] = pod.master_end = self.logs[master.name]
        elif master is not None:
            remark = (
                f"this log ends at {self.logs[member.name]}, but the log of the master ends at {self.logs[master.name]}"
            )
        end = self.logs[member.name]
        own = CopyState(address, address, "slave", max(0, pod.master_end - end), None, follows)
        leader = master.address if master is not None else ""
        admin.replicas[address] = ReplicationState(
            member.broker_name, MASTER_SLAVE, address, "slave", 0, leader, end, end, address, (own,), remark,
            missing=self.missing.get(member.name),
        )  # fmt: skip
        admin.max_offsets[address] = end

    def _register(self) -> None:
        found: dict[tuple[str, str, int], str] = {}
        for member in self.cluster.members:
            if self._serves(member):
                role = self.pods[member.name].role
                number = member.index + 1 if role == config.SLAVE else 0
                found["demo", member.broker_name, number] = member.address
        for server in self.admin.listings:
            self.admin.listings[server] = dict(found)
        self.admin.restartable = {member.address for member in self.cluster.members}

    # --- the operator ---

    def restart(self) -> None:
        """Kill the operator, and start another one."""
        self.reconcile = ClusterReconciler(self.parts, clock=lambda: self.time, vary=lambda: 0.5, now=lambda: self.now)

    async def round(self) -> None:
        """Run one reconciliation and one step of the controllers."""
        await self.turn()
        self.controllers()

    async def turn_all(self, rounds: int = 12) -> None:
        for _ in range(rounds):
            await self.round()
        await self.turn()

    async def until_ready(self) -> None:
        await self.turn_all(5)
        assert self.ready["status"] == "True", self.ready

    def patch(self, **spec: Any) -> None:
        """Change the spec as a user. Fields of `replication` are merged."""
        body = self.kube.objects["BrokerCluster", NAMESPACE, "demo"]
        replication = body["spec"]["replication"] | spec.pop("replication", {})
        replication = {name: value for name, value in replication.items() if value is not None}
        metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
        metadata["annotations"] = spec.pop("annotations", {})
        after = body["spec"] | {"replication": replication} | spec
        self.kube.put(body | {"spec": after, "metadata": metadata})

    def roles(self) -> dict[str, str]:
        """Return the roles by member according to the status."""
        return {each["name"]: each.get("role", "") for each in self.status["brokers"]}

    def condition(self, kind: str) -> str:
        """Return the message of a condition; empty without the condition."""
        return next((each["message"] for each in self.status["conditions"] if each["type"] == kind), "")

    def settings(self, member: Member) -> dict[str, str]:
        """Return the broker.conf of a member."""
        file = self.kube.objects["ConfigMap", NAMESPACE, member.name]["data"][config.BROKER_FILE]
        return dict(line.partition("=")[::2] for line in file.splitlines())
