"""The brokers of a BrokerCluster of masters and slaves, with pods, claims and logs, in place of a Kubernetes cluster.

A pod takes its role from the ConfigMap when it starts, and keeps it. A log is as long as a number; a slave takes what
its master has, unless its own log is longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raptormq.protocol.bodies.replication import MASTER_SLAVE, CopyState, ReplicationState
from raptormq_operator.manifests import config
from raptormq_operator.manifests.metadata import digest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Member
from raptormq_operator.reconcile_cluster import ClusterReconciler
from tests.operator.resources import NAMESPACE
from tests.operator.test_reconcile_cluster import Operator


@dataclass
class Pod:
    """A broker that runs."""

    revision: str
    role: str
    master_end: int = 0


class Pairs(Operator):
    """An operator, and the controllers and brokers of its cluster. `turn_all` lets both work until nothing moves."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**{"replicas": 2, "replication": {"mode": "masterSlave"}} | spec)
        self.pods: dict[str, Pod] = {}
        self.logs: dict[str, int] = {}
        self.claims: dict[str, int] = {}
        self.cut_off: set[str] = set()
        """Members whose node is lost: their pods neither answer nor end."""
        self.unschedulable: set[str] = set()
        """Members whose new pods find no node."""
        self.terminating: set[str] = set()
        """Members whose volume claim is being deleted."""
        self.evicted: list[str] = []
        self.most_masters = 0
        for server in self.cluster.name_server_addresses:
            self.admin.listings[server] = {}

    def member(self, group: int, index: int) -> Member:
        return self.cluster.group(group)[index]

    # --- what happens to pods ---

    def delete_pod(self, member: Member) -> None:
        """The pod ends, unless its node is lost; the next step of the controllers makes another."""
        if member.name not in self.cut_off:
            self.pods.pop(member.name, None)

    def delete_claim(self, member: Member) -> None:
        """Claim and pod are deleted: the next pod has an empty disk."""
        self.delete_pod(member)
        self.logs[member.name] = 0
        self.claims[member.name] = self.claims.get(member.name, 0) + 1

    def controllers(self) -> None:
        """StatefulSets and brokers do their work once."""
        self.kube.settle()
        for member in self.cluster.members:
            workload = self.kube.objects.get(("StatefulSet", NAMESPACE, member.name))
            if workload is not None:
                self._control(member, workload)
        self._brokers()

    def _control(self, member: Member, workload: dict[str, Any]) -> None:
        revision = digest(workload["spec"]["template"])
        known = self.kube.objects.get(("Pod", NAMESPACE, f"{member.name}-0"))
        if known is None and member.name in self.pods and member.name not in self.cut_off:  # it was evicted
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
            member.broker_name, MASTER_SLAVE, address, "slave", 0, leader, end, end, address, (own,), remark
        )
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
        """The operator is killed, and another one begins."""
        self.reconcile = ClusterReconciler(self.parts, clock=lambda: self.time, vary=lambda: 0.5, now=lambda: self.now)

    async def round(self) -> None:
        """The operator looks once, and the controllers work."""
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
        """The user changes the spec; what is in `replication` is changed within it."""
        body = self.kube.objects["BrokerCluster", NAMESPACE, "demo"]
        replication = body["spec"]["replication"] | spec.pop("replication", {})
        replication = {name: value for name, value in replication.items() if value is not None}
        metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
        metadata["annotations"] = spec.pop("annotations", {})
        after = body["spec"] | {"replication": replication} | spec
        self.kube.put(body | {"spec": after, "metadata": metadata})

    def roles(self) -> dict[str, str]:
        """Roles by member, as the status has them."""
        return {each["name"]: each.get("role", "") for each in self.status["brokers"]}

    def condition(self, kind: str) -> str:
        """The message of a condition; empty without it."""
        return next((each["message"] for each in self.status["conditions"] if each["type"] == kind), "")

    def settings(self, member: Member) -> dict[str, str]:
        """The broker.conf of a member."""
        file = self.kube.objects["ConfigMap", NAMESPACE, member.name]["data"][config.BROKER_FILE]
        return dict(line.partition("=")[::2] for line in file.splitlines())
