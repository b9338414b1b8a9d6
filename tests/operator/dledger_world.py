"""Simulation of the brokers of a BrokerCluster with one Dledger group: pods, disruption budget and membership.

A pod reads its peers from the ConfigMap at its start. It is ready when it votes. The leader refuses what a real leader
refuses. `controllers` fails if a rule of `raptormq_operator.membership` is violated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from raptormq.errors import ServerError
from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES, CopyState, ReplicationState, Verdict
from raptormq_operator.manifests.config import BROKER_FILE, NAME_SERVER_FILE, peer_count_in
from raptormq_operator.manifests.metadata import digest
from raptormq_operator.manifests.pod import security_of
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Member
from raptormq_operator.model.peer_security import PeerSecurity
from raptormq_operator.reconcile_cluster import ClusterReconciler
from tests.operator.fake_admin import FakeAdmin
from tests.operator.resources import NAMESPACE
from tests.operator.test_reconcile_cluster import Operator

EVERYONE = range(5)
BEGINNING = 3 * CAUGHT_UP_MEMBER_BYTES
"""Lag of a new learner in bytes. Each step of the controllers reduces it by CAUGHT_UP_MEMBER_BYTES."""


@dataclass
class Pod:
    """A running broker."""

    revision: str
    peers: int
    security: PeerSecurity = field(default_factory=PeerSecurity)
    starting: int = 0
    """Number of steps until the broker of a replaced pod responds."""


class GroupAdmin(FakeAdmin):
    """Answers membership changes like the leader of the group."""

    def __init__(self, group: DledgerGroup) -> None:
        super().__init__()
        self._group = group

    async def replication(self, broker: str, *, restarting: str | None = None) -> ReplicationState:
        state = await super().replication(broker)
        if restarting is None:
            return state
        return replace(state, restart=Verdict(self._group.may_restart(int(restarting[1:])), ""))

    async def transfer_leadership(self, broker: str, to: str | None = None) -> None:
        await super().transfer_leadership(broker, to)
        successor = int(to[1:]) if to is not None else self._group.successor()
        self._group.lead(successor)
        self._group.changed.append(("transfer", f"n{successor}"))

    async def change_members(self, broker: str, action: str, member: str) -> None:
        await super().change_members(broker, action, member)
        self._group.change(broker, action, int(member[1:]))
        self._group.changed.append((str(action), member))


class DledgerGroup(Operator):
    """An operator with the controllers and brokers of its cluster."""

    def __init__(self, replicas: int = 3, **spec: Any) -> None:
        super().__init__(replicas=replicas, replication={"mode": "dledger"}, **spec)
        self.admin = self.group_admin = GroupAdmin(self)
        self.renew()
        self.pods: dict[int, Pod] = {}
        self.voters: set[int] = set()
        self.learners: dict[int, int] = {}
        """Lag of each learner in bytes."""
        self.changed: list[tuple[str, str]] = []
        """Actions of the leaders, in order."""
        self.leader: int | None = None
        self.term = 0
        self.down: set[int] = set()
        """Members that do not respond, in any state of their pods."""
        self.largest = 0
        self.start_steps = 0
        """Number of steps for which the broker of a replaced pod does not respond."""
        for server in self.cluster.name_server_addresses:
            self.admin.listings[server] = {}

    def renew(self) -> None:
        """Start another operator process."""
        self.parts = replace(self.parts, admin=self.admin)
        self.reconcile = ClusterReconciler(
            self.parts, self._look_at_topics, clock=lambda: self.time, vary=lambda: 0.5, now=lambda: self.now
        )

    def member(self, index: int) -> Member:
        return Member("demo", self.cluster.zone, 0, index)

    def resize(self, replicas: int) -> None:
        """Change `replicas` of the cluster."""
        self.change_spec(replicas=replicas)

    def change_spec(self, **fields: Any) -> None:
        """Change the spec of the cluster. A field with the value None is removed."""
        body = self.kube.objects["BrokerCluster", NAMESPACE, "demo"]
        metadata = body["metadata"] | {"generation": body["metadata"]["generation"] + 1}
        spec = {name: value for name, value in (body["spec"] | fields).items() if value is not None}
        self.kube.put(body | {"metadata": metadata, "spec": spec})

    # --- the group ---

    def serving(self) -> set[int]:
        return {index for index, pod in self.pods.items() if not pod.starting} - self.down

    def lead(self, index: int | None) -> None:
        self.leader = index
        self.term += 1

    def successor(self) -> int:
        return min(self.voters & self.serving() - {self.leader})

    def has_majority(self, voters: set[int]) -> bool:
        return len(voters & self.serving()) > len(voters) // 2

    def may_restart(self, index: int) -> bool:
        return len(self.voters & self.serving() - {index}) > len(self.voters) // 2

    def change(self, broker: str, action: str, index: int) -> None:
        """Apply a membership change.

        Raises:
            ServerError: The leader refuses the change.
        """
        assert self.leader is not None
        assert broker == self.member(self.leader).address
        if index >= self.pods[self.leader].peers:
            raise ServerError(604, f"n{index} is not in dLegerPeers", broker)
        if action == "addLearner":
            if index not in self.serving():
                raise ServerError(604, f"n{index} has not contacted the leader", broker)
            if index in self.voters | self.learners.keys():
                raise ServerError(604, f"n{index} is already a member of the group", broker)
            assert not self.learners, "two changes at a time"
            self.learners[index] = BEGINNING
        elif action == "promote":
            if self.learners.get(index, 1):
                raise ServerError(604, f"n{index} lacks committed data", broker)
            grown = self.voters | {index}
            assert len(self.voters & self.serving()) > len(grown) // 2, "there is no majority without the new voter"
            del self.learners[index]
            self.voters = grown
        else:
            assert index != self.leader, "the leader must not be removed"
            self.learners.pop(index, None)
            self.voters.discard(index)
            assert self.has_majority(self.voters)

    # --- the controllers ---

    def controllers(self) -> None:
        """Execute one step of the StatefulSet controller, of the brokers and of the disruption budget."""
        self.kube.settle()
        for index in EVERYONE:
            workload = self.kube.objects.get(("StatefulSet", NAMESPACE, self.member(index).name))
            if workload is None:
                assert index not in self.voters | self.learners.keys(), "the StatefulSet of a member is deleted"
                self.pods.pop(index, None)
                self.kube.objects.pop(("Pod", NAMESPACE, f"{self.member(index).name}-0"), None)
            else:
                self._control(index, workload)
        self._check_peers()
        self._group_works()
        self._describe()
        ready = {index: self._is_ready(index) for index in self.pods}
        is_whole = all(ready.values())
        self.kube.protected = {f"{self.member(index).name}-0" for index in self.pods if ready[index] and not is_whole}
        for index in (self.voters | self.learners.keys()) & self.pods.keys():
            assert self.pods[index].peers > max(self.voters | self.learners.keys()), "dLegerPeers lacks a member"
        self.largest = max(self.largest, len(self.voters))

    def _control(self, index: int, workload: dict[str, Any]) -> None:
        member = self.member(index)
        revision = digest(workload["spec"]["template"])
        place = ("Pod", NAMESPACE, f"{member.name}-0")
        if index not in self.pods or place not in self.kube.objects:  # new, or evicted
            config_map = self.kube.objects["ConfigMap", NAMESPACE, member.name]
            security = security_of(workload, config_map, BROKER_FILE)
            starting = self.start_steps if index in self.pods else 0
            self.pods[index] = Pod(revision, peer_count_in(config_map), security, starting)
            if index == self.leader:
                self.lead(None)
        else:
            self.pods[index].starting = max(0, self.pods[index].starting - 1)
        pod = self.pods[index]
        labels = names.broker_labels("demo", 0, index) | {names.REVISION_LABEL: pod.revision}
        metadata = {"name": f"{member.name}-0", "namespace": NAMESPACE, "labels": labels, "uid": f"uid-{id(pod)}"}
        self.kube.put({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node"}, "status": {}})
        workload["status"] |= {
            "updateRevision": revision,
            "replicas": 1,
            "updatedReplicas": int(pod.revision == revision),
            **dict.fromkeys(("availableReplicas", "readyReplicas"), int(self._is_ready(index))),
        }

    def _check_peers(self) -> None:
        """Check that all running brokers accept each other."""
        running = [self.pods[index] for index in sorted(self.serving())]
        for own in running:
            refused = [peer.security for peer in running if not own.security.accepts(peer.security)]
            assert not refused, f"a broker with {own.security} refuses {refused}"
        name = names.name_server("demo")
        objects = [self.kube.objects.get((kind, NAMESPACE, name)) for kind in ("StatefulSet", "ConfigMap")]
        if objects[0] is not None and objects[1] is not None:
            server = security_of(objects[0], objects[1], NAME_SERVER_FILE)
            refused = [pod.security for pod in running if not server.accepts(pod.security)]
            assert not refused, f"the name servers with {server} refuse {refused}"

    def _is_ready(self, index: int) -> bool:
        return index in self.serving() & self.voters and self.leader is not None

    def _group_works(self) -> None:
        if not self.voters and self.pods and all(pod.peers == len(self.serving()) for pod in self.pods.values()):
            self.voters = self.serving()
        if self.leader not in self.serving() or not self.has_majority(self.voters):
            self.lead(None)
        if self.leader is None and self.has_majority(self.voters):
            self.lead(min(self.voters & self.serving()))
        for index in self.learners.keys() & self.serving():
            self.learners[index] = max(0, self.learners[index] - CAUGHT_UP_MEMBER_BYTES)

    def _describe(self) -> None:
        admin, leader = self.group_admin, self.leader
        admin.down = {self.member(index).address for index in EVERYONE if index not in self.serving()}
        listing = {}
        for index, pod in self.pods.items():
            member = self.member(index)
            admin.topics.setdefault(member.address, {})
            role = "leader" if index == leader else "learner" if index in self.learners else "follower"
            role = role if leader is not None and index in self.voters | self.learners.keys() else "candidate"
            copies = tuple(self._copy(other, leads=index == leader) for other in sorted(self._known(pod)))
            state = ReplicationState(
                "broker-0", "dledger", member.id, role, self.term, f"n{leader}", 10, 10, members=copies
            )
            admin.replicas[member.address] = state
            if index in self.voters:
                listing["demo", "broker-0", 0 if index == leader else index + 1] = member.address
        for server in admin.listings:
            admin.listings[server] = dict(listing)

    def _known(self, pod: Pod) -> set[int]:
        return {*range(pod.peers), *self.voters, *self.learners}

    def _copy(self, index: int, *, leads: bool) -> CopyState:
        role = "leader" if index == self.leader else "follower" if index in self.voters else "absent"
        role = "learner" if index in self.learners else role
        if not leads or role == "absent":
            return CopyState(f"n{index}", "", role)
        return CopyState(f"n{index}", "", role, self.learners.get(index, 0), 0, index in self.serving())

    async def until(self, reason: str = "Ready", turns: int = 80) -> None:
        """Execute steps of the operator and of the controllers alternately."""
        for _ in range(turns):
            self.controllers()
            await self.turn()
            if self.ready["reason"] == reason:
                return
        raise AssertionError(self.ready)
