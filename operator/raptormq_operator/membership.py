"""Members that join and leave Dledger groups while `replicas` of a BrokerCluster changes. No I/O.

A group serves clients while it grows and shrinks. `decide` is called after every change, with the existing objects and
the reports of the members; it keeps no state. The rules:

1. Only a leader that a majority responds to defines the members. Without one, nothing is added or removed.
2. Growth: first, a rolling update gives the existing brokers all members in `dLegerPeers`. Then the new brokers are
   created one at a time: a broker that is not a member yet is not ready, and the disruption budget of the group would
   otherwise block the rolling update of the others.
3. A new broker is added as a learner, which receives the log and does not vote. It is promoted while the existing
   voters have the log and form a majority of the larger group without it. Then the next broker follows.
4. Shrinking: a leader that will be removed transfers leadership to a member that stays. A member is removed from the
   group while the others that have the log form a majority of the smaller group. Unresponsive members are removed
   first. Then its StatefulSet is deleted, and its volume claim as configured in the spec.
5. After all removals, a rolling update gives the others the shorter `dLegerPeers`. The list always contains all
   members.
6. One member of a group changes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES, CopyState, ReplicationState
from raptormq_operator.cluster_probe import LEADER, VOTERS, ClusterProbe, has_majority
from raptormq_operator.conditions import Concern, Reason, Verdict
from raptormq_operator.manifests.config import peer_count_in
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, GroupSize, Member

_ABSENT, _JOINING, _LEARNER = "absent", "joining", "learner"


class Action(StrEnum):
    """A request to the leader of a group: an action of CHANGE_MEMBERS (31014), or a transfer of leadership."""

    ADD = "addLearner"
    PROMOTE = "promote"
    REMOVE = "remove"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A membership change to request from the leader of a group."""

    action: Action
    leader: Member
    member: Member
    """The member to add, promote or remove, or the next leader."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The existing objects of the groups of a cluster."""

    brokers: Mapping[int, int] = field(default_factory=dict)
    """Number of brokers by group: the highest index of a StatefulSet plus one."""
    peers: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Numbers of members in `dLegerPeers` of the ConfigMaps by group. Empty for a group that is not replicated yet."""

    @classmethod
    def of(cls, cluster: Cluster, config_maps: Iterable[Manifest], workloads: Iterable[Manifest]) -> Facts:
        """Return the facts in the objects of the brokers, without those of other owners."""
        brokers: dict[int, int] = {}
        peers: dict[int, set[int]] = {}
        for manifest in workloads:
            if (place := _place(cluster, manifest)) is not None:
                brokers[place[0]] = max(brokers.get(place[0], 0), place[1] + 1)
        for manifest in config_maps:
            if (place := _place(cluster, manifest)) is not None and (count := peer_count_in(manifest)):
                peers.setdefault(place[0], set()).add(count)
        return cls(brokers, {group: frozenset(counts) for group, counts in peers.items()})


@dataclass(frozen=True, slots=True)
class Decision:
    """The current target sizes of the groups, and the changes to request from their leaders."""

    sizes: Mapping[int, GroupSize] = field(default_factory=dict)
    changes: tuple[MemberChange, ...] = ()
    progress: tuple[str, ...] = ()
    """For each group whose members differ from the spec, a text that says what the group waits for."""

    def said_with(self, verdict: Verdict) -> Verdict:
        """Return the verdict with the progress appended. The cluster is not Ready while its members change."""
        if not self.progress:
            return verdict
        text = "; ".join(self.progress)
        if verdict.ready:
            return Verdict(Reason.PROGRESSING, text)
        return Verdict(verdict.reason, f"{verdict.message}; {text}", verdict.blocked)

    def concerns(self, cluster: Cluster) -> dict[Concern, str]:
        """Return the condition about the change. Its message is constant while there is no progress."""
        if not self.progress:
            return {}
        sizes = {group: size.brokers for group, size in self.sizes.items() if size.brokers != cluster.replicas}
        counts = [f"{names.broker(group)} has {count} brokers" for group, count in sorted(sizes.items())]
        text = f"the members of Dledger groups change to {cluster.replicas} each"
        return {Concern.MEMBERS_CHANGING: ": ".join([text, ", ".join(counts)]) if counts else text}


def sizes_to_probe(cluster: Cluster, facts: Facts) -> dict[int, GroupSize]:
    """Return the sizes including all brokers that exist or may be created."""
    groups = range(cluster.groups)
    counts = {group: max(cluster.replicas, facts.brokers.get(group, 0)) for group in groups}
    return {group: GroupSize(count, count) for group, count in counts.items()}


def decide(cluster: Cluster, facts: Facts, probe: ClusterProbe) -> Decision:
    """Return the decision. `probe` must include all brokers (`sizes_to_probe`)."""
    sizes: dict[int, GroupSize] = {}
    changes: list[MemberChange] = []
    progress: list[str] = []
    everyone = cluster.with_sizes(sizes_to_probe(cluster, facts))
    for number in range(cluster.groups):
        group = _Group(everyone, number, facts, probe)
        sizes[number], change, text = group.unseen() if group.view is None else group.seen(group.view)
        if change is not None:
            changes.append(change)
        if text:
            progress.append(f"{names.broker(number)}: {text}")
    return Decision(sizes, tuple(changes), tuple(progress))


_Outcome = tuple[GroupSize, MemberChange | None, str]


class _Group:
    """One group of a cluster, with all brokers that exist or may be created."""

    def __init__(self, cluster: Cluster, number: int, facts: Facts, probe: ClusterProbe) -> None:
        self._cluster, self._number = cluster, number
        self._brokers = cluster.group(number)
        self._wanted = cluster.replicas
        self._there = facts.brokers.get(number, 0)
        self._peers = facts.peers.get(number, frozenset())
        self._probe = probe
        self._leader = probe.leader(cluster, number)
        self.view = self._view()

    def _member(self, copy_id: str) -> Member:
        return Member(self._cluster.name, self._cluster.zone, self._number, _index(copy_id))

    def _view(self) -> ReplicationState | None:
        """Return the leader's view of the group; None without a leader that a majority responds to."""
        if self._leader is None:
            return None
        view = self._probe.replication[self._leader.address]
        return view if has_majority(view) else None

    def unseen(self) -> _Outcome:
        """Return the decision without a leader's view: existing brokers and peers are kept, and a new group is created
        completely.
        """
        wanted, there, peers = self._wanted, self._there, self._peers
        done = GroupSize(wanted, wanted)
        if there > wanted or (peers and min(peers) > wanted):
            size = GroupSize(max(there, wanted), max({*peers, wanted}))
        elif any(count < wanted for count in peers):
            size = GroupSize(max(there, min(peers)), wanted)
        else:
            return done, None, ""
        return size, None, f"the change to {wanted} members waits for a leader with a majority"

    def seen(self, view: ReplicationState) -> _Outcome:
        """Return the decision for the view of a leader."""
        members = {copy.id: copy for copy in view.members if copy.role != _ABSENT}
        leaving = {copy_id: index for copy_id in members if (index := _index(copy_id)) >= self._wanted}
        if leaving:
            highest = max(leaving.values()) + 1
            size = GroupSize(highest, max({*self._peers, highest + (highest + 1) % 2}))
            change, text = self._removal(members, leaving)
            return size, change, text
        missing = [
            member for member in self._brokers[: self._wanted] if members.get(member.id, _NOBODY).role not in VOTERS
        ]
        done = GroupSize(self._wanted, self._wanted)
        if not missing:
            shrinks = any(count > self._wanted for count in self._peers) or self._there > self._wanted
            return done, None, f"the others get the list of {self._wanted} members" if shrinks else ""
        if len(members) == self._wanted and all(members[each.id].role == _JOINING for each in missing):
            # These members have lost their disks. The leader makes them voters again automatically.
            return done, None, ""
        if strangers := self._without_peers():
            size = GroupSize(min(self._there, self._wanted), self._wanted)
            return size, None, f"the list of {self._wanted} members is not known yet to {', '.join(strangers)}"
        first = missing[0]
        size = GroupSize(min(max(self._there, first.index + 1), self._wanted), self._wanted)
        change, text = self._addition(members, first)
        return size, change, text

    def _without_peers(self) -> list[str]:
        """Return the names of the existing brokers that do not report all members of the spec as known."""
        wanted = {member.id for member in self._brokers[: self._wanted]}
        found = []
        for member in self._brokers[: min(self._there, self._wanted)]:
            state = self._probe.replication.get(member.address)
            if state is None or not wanted <= {copy.id for copy in state.members}:
                found.append(member.name)
        return found

    def _addition(self, members: Mapping[str, CopyState], member: Member) -> tuple[MemberChange | None, str]:
        """Return the next change that makes a broker a voter, and a text about the progress."""
        copy = members.get(member.id)
        assert self._leader is not None
        if copy is None:
            if self._probe.brokers.get(member.address, "") is not None:
                return None, f"{member.name} does not answer yet"
            return MemberChange(Action.ADD, self._leader, member), f"{member.name} becomes a learner"
        if copy.role != _LEARNER or not has_the_log(copy):
            behind = "" if copy.lag_bytes is None else f" and lacks {copy.lag_bytes} bytes"
            return None, f"{member.name} gets the log{behind}"
        voters = [each for each in members.values() if each.role in VOTERS]
        sound, needed = _sound(voters), _majority(len(voters) + 1)
        if len(sound) < needed:
            return None, (
                f"{member.name} has the log, and is promoted when {needed} voters have it without {member.name}; now"
                f" {len(sound)} have ({', '.join(sorted(self._member(each.id).name for each in sound))})"
            )
        return MemberChange(Action.PROMOTE, self._leader, member), f"{member.name} becomes a voter"

    def _removal(self, members: Mapping[str, CopyState], leaving: Mapping[str, int]) -> tuple[MemberChange | None, str]:
        """Return the next change that removes the members in `leaving`, and a text about the progress."""
        assert self._leader is not None
        if self._leader.id in leaving:
            fit = [
                copy
                for copy in members.values()
                if copy.id not in leaving and copy.role in VOTERS and has_the_log(copy)
            ]
            if not fit:
                return None, f"{self._leader.name} leads and has to go, and no member that stays has the log"
            successor = self._member(min(fit, key=lambda copy: (copy.lag_bytes or 0, copy.id)).id)
            return MemberChange(Action.TRANSFER, self._leader, successor), f"{self._leader.name} hands leadership over"
        target = min(leaving, key=lambda each: (bool(members[each].answering), -leaving[each]))
        member = self._member(target)
        staying = [copy for copy in members.values() if copy.id != target and copy.role in VOTERS]
        sound, needed = _sound(staying), _majority(len(staying))
        if len(sound) < needed:
            return None, (
                f"{member.name} leaves when {needed} of the other voters have the log; now {len(sound)} of"
                f" {len(staying)} have"
            )
        return MemberChange(Action.REMOVE, self._leader, member), f"{member.name} leaves"


_NOBODY = CopyState("", "", _ABSENT)


def _index(copy_id: str) -> int:
    """Return the index of the member with this id (`Member.id`)."""
    return int(copy_id.removeprefix("n"))


def has_the_log(copy: CopyState) -> bool:
    """Return whether a member responds to its leader and has its log except the latest messages."""
    return bool(copy.answering) and copy.lag_bytes is not None and copy.lag_bytes <= CAUGHT_UP_MEMBER_BYTES


def _sound(voters: Iterable[CopyState]) -> list[CopyState]:
    return [copy for copy in voters if copy.role == LEADER or has_the_log(copy)]


def _majority(count: int) -> int:
    return count // 2 + 1


def _place(cluster: Cluster, manifest: Manifest) -> tuple[int, int] | None:
    """Return group and index of a broker's object; None for an object of another owner."""
    metadata = manifest["metadata"]
    if not any(owner.get("uid") == cluster.uid for owner in metadata.get("ownerReferences", [])):
        return None
    labels = metadata.get("labels", {})
    group, index = labels.get(names.GROUP_LABEL, ""), labels.get(names.MEMBER_LABEL, "")
    return (int(group), int(index)) if group.isdecimal() and index.isdecimal() else None
