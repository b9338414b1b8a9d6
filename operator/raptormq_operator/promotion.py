"""The master of each group in mode masterSlave, and manual promotion of a slave. No I/O.

The configuration of the members defines the master: the member whose ConfigMap has a `brokerRole` other than SLAVE. A
promotion (`replication.promote`) has these steps, and the operator may crash after each of them:

1. The promotion is announced with the range that may be lost: `status.promotion`, the condition Promoting, an Event.
2. The old master is configured as a slave, and its pod is evicted. Now no member is configured as master.
3. When no pod of the old master runs with the earlier configuration, the new master is configured and restarted.
4. The new master reports that it is the master. `status.promotion` keeps the range that may be lost.

Step 3 waits without a limit for a pod on an unreachable node, because that pod may still accept messages. A refused
promotion is not retried automatically. Otherwise it would happen unexpectedly at the next restart of a healthy master.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from raptormq_operator.cluster_probe import MASTER, SLAVE, ClusterProbe
from raptormq_operator.conditions import Concern, Reason, Verdict
from raptormq_operator.manifests import config
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Mastery, Member

FAR_BEHIND_BYTES = 256 << 20
"""Maximum lag of a slave for a promotion without an annotation. Brokers with at most this lag count as in sync
(`haMaxGapNotInSync`).
"""
_AHEAD_BYTES = 1 << 20
"""Difference in bytes between the logs of an unconnected slave and its master, above which the master counts as having
lost its log.
"""


class State(StrEnum):
    """Progress of a promotion."""

    REFUSED = "Refused"
    WAITING = "Waiting"
    """The decision must wait; nothing has changed."""
    PROMOTING = "Promoting"
    PROMOTED = "Promoted"


@dataclass(frozen=True, slots=True)
class Promotion:
    """State of a requested promotion (`replication.promote`)."""

    member: str
    state: State
    message: str
    former: str = ""
    """The old master."""
    lost_from: int | None = None
    """End of the log of the new master at its selection."""
    lost_up_to: int | None = None
    """Known end of the old master's log, if it is after `lost_from`."""

    def to_status(self) -> dict[str, Any]:
        """Return `status.promotion`."""
        found: dict[str, Any] = {"member": self.member, "state": str(self.state), "message": self.message}
        if self.former:
            found["former"] = self.former
        if self.lost_from is not None:
            found["lostFrom"] = self.lost_from
        if self.lost_up_to is not None:
            found["lostUpTo"] = self.lost_up_to
        return found

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Promotion | None:
        """Parse `status.promotion`; None if it is absent."""
        found = status.get("promotion")
        if not found:
            return None
        return cls(
            found["member"],
            State(found["state"]),
            found.get("message", ""),
            found.get("former", ""),
            found.get("lostFrom"),
            found.get("lostUpTo"),
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of the decision."""

    config_maps: Mapping[str, Manifest]
    """ConfigMaps of the existing members, by name of the member."""
    status: Mapping[str, Any]
    """The last read status of the resource."""
    probe: ClusterProbe
    ended: frozenset[str] = frozenset()
    """Members without a pod with an earlier configuration (`plan.ended`)."""
    losing: frozenset[str] = frozenset()
    """Members whose log will be deleted with their pod, because the claim is being deleted
    (`concerns.losing_claims`).
    """
    lost: frozenset[str] = frozenset()
    """Members that have recently lost their log (`concerns.stores`)."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Masters by group, and the state of their promotions."""

    masters: Mapping[int, Mastery] = field(default_factory=dict)
    promotion: Promotion | None = None
    at_once: frozenset[str] = frozenset()
    """Members that are changed immediately."""
    groups: frozenset[int] = frozenset()
    """Groups with a promotion. Their disruption budgets must not prevent the restart of the new master."""
    waits_for: str = ""
    """Reason why a promotion in progress waits; empty without one."""

    def status(self) -> dict[str, Any]:
        """Return the part of the status about the promotion."""
        return {} if self.promotion is None else {"promotion": self.promotion.to_status()}

    def said_with(self, verdict: Verdict) -> Verdict:
        """Return the verdict on the cluster, extended with the reason why the promotion waits. The cluster is not Ready
        during a promotion, so that it is reconciled again soon.
        """
        if self.waits_for:
            return replace(verdict, message=f"{verdict.message}; {self.waits_for}")
        if verdict.ready and self.promotion is not None and self.promotion.state is State.PROMOTING:
            return Verdict(Reason.PROGRESSING, self.promotion.message)
        return verdict

    def concerns(self) -> dict[Concern, str]:
        """Return the conditions about the promotion, with their messages."""
        if self.promotion is None or (not self.promotion.former and self.promotion.state is not State.REFUSED):
            return {}
        kinds = {State.REFUSED: Concern.PROMOTION_REFUSED, State.WAITING: Concern.PROMOTION_REFUSED}
        kinds |= {State.PROMOTING: Concern.PROMOTING, State.PROMOTED: Concern.PROMOTED}
        return {kinds[self.promotion.state]: self.promotion.message}


def configured(cluster: Cluster, facts: Facts) -> dict[int, Mastery]:
    """Return the masters according to the ConfigMaps of the members. A group with only slaves is in the middle of a
    promotion.
    """
    return {group: _configured(cluster, group, facts) for group in range(cluster.groups)}


def _configured(cluster: Cluster, group: int, facts: Facts) -> Mastery:
    members = cluster.group(group)
    roles = {
        member.index: config.role_in(facts.config_maps[member.name])
        for member in members
        if member.name in facts.config_maps
    }
    masters = [index for index, role in roles.items() if role != config.SLAVE]
    if masters:
        return Mastery(masters[0])
    before = Promotion.from_status(facts.status)
    if before is not None and before.state is State.PROMOTING:
        new, old = _member(cluster, before.member), _member(cluster, before.former)
        if new is not None and old is not None and new.group == group:
            return Mastery(old.index, successor=new.index)
    # A new group, or one whose ConfigMap was deleted.
    missing = [member.index for member in members if member.index not in roles] or [member.index for member in members]
    recorded = [each["name"] for each in facts.status.get("brokers", ()) if each.get("role") == MASTER]
    indices = {member.name: member.index for member in members}
    likely = [indices[name] for name in (*recorded, cluster.replication.promote) if name in indices]
    return Mastery(next((index for index in likely if index in missing), missing[0]))


def decide(cluster: Cluster, facts: Facts) -> Decision:
    """Return the masters to configure. `cluster` has the configured masters (`configured`)."""
    promotion = _promotion(cluster, facts)
    masters = {group: _next_mastery(cluster, group, facts, promotion) for group in range(cluster.groups)}
    at_once: set[str] = set()
    groups: set[int] = set()
    waits_for = ""
    for group, mastery in masters.items():
        master = cluster.group(group)[mastery.index]
        state = facts.probe.replication.get(master.address)
        if mastery.successor is not None or (state is not None and state.role == SLAVE):
            groups.add(group)
            at_once.add(master.name)
        if mastery.successor is not None:
            waits_for = (
                f"the promotion of {cluster.group(group)[mastery.successor].name} waits until pod {master.name}-0 of"
                " the old master has ended, since it may still take messages; if its node is off for good, delete the"
                " pod with --force"
            )
    return Decision(masters, promotion, frozenset(at_once), frozenset(groups), waits_for)


def _next_mastery(cluster: Cluster, group: int, facts: Facts, promotion: Promotion | None) -> Mastery:
    mastery = cluster.mastery(group)
    if mastery.successor is not None:
        return _succeeded(cluster, group, facts)
    if promotion is not None and promotion.state is State.PROMOTING and _announced(facts, promotion):
        new = _member(cluster, promotion.member)
        if new is not None and new.group == group and new.index != mastery.index:
            return Mastery(mastery.index, successor=new.index)
    return mastery


def _succeeded(cluster: Cluster, group: int, facts: Facts) -> Mastery:
    """Return the new master when no pod runs as master any more. Until then the group is not changed."""
    mastery = cluster.mastery(group)
    assert mastery.successor is not None
    former = cluster.group(group)[mastery.index]
    return Mastery(mastery.successor) if _has_stepped_down(former, facts) else mastery


def _has_stepped_down(former: Member, facts: Facts) -> bool:
    if former.name not in facts.config_maps or config.role_in(facts.config_maps[former.name]) != config.SLAVE:
        return False
    state = facts.probe.replication.get(former.address)
    return former.name in facts.ended or (state is not None and state.role == SLAVE)


def _announced(facts: Facts, promotion: Promotion) -> bool:
    """Return whether the status contains the promotion, which is announced before it begins."""
    before = Promotion.from_status(facts.status)
    return before is not None and (before.member, before.state) == (promotion.member, State.PROMOTING)


def _promotion(cluster: Cluster, facts: Facts) -> Promotion | None:
    before = Promotion.from_status(facts.status)
    under_way = [group for group in range(cluster.groups) if cluster.mastery(group).successor is not None]
    if before is not None and before.state is State.PROMOTING:
        new = _member(cluster, before.member)
        if (
            new is not None and new.group in under_way
        ):  # the promotion cannot be cancelled any more, whatever the spec has
            return _under_way(before, new, facts)
        if new is not None and cluster.is_master(new):
            return _promoted(before, new, facts)
    wanted = cluster.replication.promote
    if not wanted:
        return None
    if before is not None and before.member != wanted:
        before = None
    if before is not None and before.state is State.REFUSED:
        return before
    member = _member(cluster, wanted)
    if member is None:
        which = ", ".join(each.name for each in cluster.members)
        return Promotion(wanted, State.REFUSED, _refused(f"there is no member {wanted}, only {which}"))
    if cluster.is_master(member):
        if before is not None and before.state is State.PROMOTED:
            return before
        return Promotion(wanted, State.PROMOTED, f"{wanted} is the master of {member.broker_name}")
    return _considered(cluster, member, facts)


def _considered(cluster: Cluster, member: Member, facts: Facts) -> Promotion:
    """Return a promotion that has not begun: refused or waiting with the reason, or with the messages that may be
    lost.
    """
    probe = facts.probe
    master = cluster.group(member.group)[cluster.mastery(member.group).index]
    own, other = probe.replication.get(member.address), probe.replication.get(master.address)
    if own is None or own.role != SLAVE:
        text = f"{member.name} does not respond as a slave, so it is not known what it has; it is asked again"
        return Promotion(member.name, State.WAITING, text, master.name)
    is_ahead = other is not None and own.last_offset - other.last_offset > _AHEAD_BYTES
    has_lost = not probe.follows(member) and (master.name in facts.lost or is_ahead)
    if probe.brokers[master.address] is None and master.name not in facts.losing and not has_lost:
        text = (
            f"{master.name} is the master and responds. A slave can be promoted only when the master is lost:"
            " its pod cannot start, or its volume claim is gone or being deleted"
        )
        return Promotion(member.name, State.REFUSED, _refused(text), master.name)
    better = [
        each.name
        for each in cluster.group(member.group)
        if each not in (member, master)
        and (state := probe.replication.get(each.address)) is not None
        and state.last_offset > own.last_offset
    ]
    if better:
        return Promotion(member.name, State.REFUSED, _refused(f"{', '.join(better)} has more of the log"), master.name)
    if own.missing is not None and cluster.replication.accept_loss != member.name:
        text = (
            f"the log of {member.name} begins at offset {own.missing.end}, and that of its master began at"
            f" {own.missing.begin}: consumers would skip the messages between, which are younger than fileReservedTime."
            f" Promote another slave, or restore {master.name}; to give them up, annotate this resource with"
            f" {names.ACCEPT_LOSS_ANNOTATION}={member.name}"
        )
        return Promotion(member.name, State.REFUSED, _refused(text), master.name)
    behind = next((copy.lag_bytes for copy in own.members if copy.id == own.member), None) or 0
    known = max(own.last_offset + behind, _recorded_end(facts, master))
    missing = known - own.last_offset
    if missing > FAR_BEHIND_BYTES and cluster.replication.accept_loss != member.name:
        text = (
            f"{member.name} lacks {missing} bytes that its master is known to have had, more than haMaxGapNotInSync. To"
            f" lose them, annotate this resource with {names.ACCEPT_LOSS_ANNOTATION}={member.name}"
        )
        return Promotion(member.name, State.REFUSED, _refused(text), master.name, own.last_offset, known)
    lost = f"offsets {own.last_offset} to {known} of the log, {missing} bytes, and " if missing else ""
    if own.missing is not None:
        lost = f"offsets {own.missing.begin} to {own.missing.end} at the beginning of the log, {lost}"
        lost = lost if missing else f"{lost}and "
    text = (
        f"{member.name} becomes the master of {member.broker_name} in place of {master.name}. Its log ends at offset"
        f" {own.last_offset}; its master's ended at {known} when it was last heard of. Lost are {lost}what the master"
        f" took since{_not_acknowledged(cluster)}"
    )
    up_to = known if missing else None
    return Promotion(member.name, State.PROMOTING, text, master.name, own.last_offset, up_to)


def _recorded_end(facts: Facts, master: Member) -> int:
    """Return the recorded end of the master's log; the end before the loss if the log was lost."""
    stores = {each["name"]: each.get("store", {}) for each in facts.status.get("brokers", ())}
    store = stores.get(master.name, {})
    return max(int(store.get("maxOffset", 0)), int(store.get("lostUpTo", 0)))


def _not_acknowledged(cluster: Cluster) -> str:
    sure = cluster.replication.acknowledge == "SYNC" and cluster.replicas == 2
    return "; with acknowledge SYNC none of it was answered with SEND_OK" if sure else ""


def _under_way(before: Promotion, new: Member, facts: Facts) -> Promotion:
    """Return the promotion in progress, with the last end of the new master's log as a slave."""
    state = facts.probe.replication.get(new.address)
    if state is None or state.role != SLAVE:
        return before
    return replace(before, lost_from=max(before.lost_from or 0, state.last_offset))


def _promoted(before: Promotion, new: Member, facts: Facts) -> Promotion:
    """Return the promotion as complete when the new master reports that it is the master, otherwise as in progress."""
    state = facts.probe.replication.get(new.address)
    if state is None or state.role != MASTER:
        return before
    known = f", as far as {before.lost_up_to} for certain" if before.lost_up_to is not None else ""
    text = (
        f"{new.name} is the master of {new.broker_name} in place of {before.former}: its log went on at offset"
        f" {before.lost_from}. Messages that the old master has from there on are not here{known}"
    )
    return Promotion(before.member, State.PROMOTED, text, before.former, before.lost_from, before.lost_up_to)


def _refused(why: str) -> str:
    return f"{why}. This is not tried again: remove replication.promote, and set it again when this has changed"


def _member(cluster: Cluster, name: str) -> Member | None:
    return next((member for member in cluster.members if member.name == name), None)
