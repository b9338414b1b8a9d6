"""Volume claims of an earlier cluster that a new broker must not use without a decision of the user. Pure.

Claims outlive their cluster, and a cluster of the same name uses them again. The annotation `names.STORE_ANNOTATION` of
a claim says which cluster has written its store last, and with which replication mode::

    raptormq.io/store: dledger/4f7c3a1e-…    mode of replication, and uid of the BrokerCluster

It is set when all brokers of a group exist. A new broker uses the claim of an earlier cluster only if that cluster had
the same mode, and if no other claim of the group was written by another cluster since. Otherwise the newest messages
may be on a disk whose broker is not elected, and would be discarded. Claims without the annotation, of earlier
versions, are used as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from raptormq_operator.concerns import claim_of
from raptormq_operator.conditions import Reason, Verdict
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member


class Writer(NamedTuple):
    """The last cluster that has written the store of a claim."""

    mode: str
    uid: str

    def __str__(self) -> str:
        return f"{self.mode}/{self.uid}"


def writers(claims: Sequence[Manifest]) -> dict[str, Writer]:
    """Return the last writers by name of the claim, without claims whose writer is not known."""
    found = {}
    for claim in claims:
        mode, _, uid = claim["metadata"].get("annotations", {}).get(names.STORE_ANNOTATION, "").partition("/")
        if uid:
            found[claim["metadata"]["name"]] = Writer(mode, uid)
    return found


def has_foreign(cluster: Cluster, claims: Sequence[Manifest]) -> bool:
    """Return whether another cluster has written a store of this cluster last."""
    own = {claim_of(member) for member in cluster.members}
    return any(name in own and writer.uid != cluster.uid for name, writer in writers(claims).items())


def refusal(cluster: Cluster, claims: Sequence[Manifest], existing: frozenset[str]) -> Verdict | None:
    """Return why brokers must not be created; None if they may. `existing` has the names of the existing StatefulSets
    of the cluster.
    """
    found = dict(_conflicts(cluster, writers(claims), existing))
    conflicts = {name: text for name, text in found.items() if name not in cluster.accepted_claims}
    if not conflicts:
        return None
    listed = ",".join(found)
    text = (
        f"{'; '.join(conflicts.values())}. Messages may be lost if brokers start with these stores, so that nothing was"
        " changed. To keep the messages, create the earlier cluster again, or copy the volumes. To start with empty"
        f" disks, delete the claims. To use the stores nevertheless, annotate this resource with"
        f" {names.USE_CLAIMS_ANNOTATION}={listed}"
    )
    return Verdict(Reason.CLAIM_CONFLICT, text, blocked=True)


def _conflicts(cluster: Cluster, written: Mapping[str, Writer], existing: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Return the conflicting claims of brokers that do not exist yet, with the reasons."""
    for member in cluster.members:
        claim = claim_of(member)
        writer = written.get(claim)
        if writer is None or writer.uid == cluster.uid or member.name in existing:
            continue
        mode = cluster.replication.mode
        if writer.mode != mode:
            yield claim, f"claim {claim} was written last by a cluster with replication.mode {writer.mode}, not {mode}"
        elif others := _others(cluster, member, written):
            yield claim, f"claim {claim} was written last by another cluster than {', '.join(others)}"


def _others(cluster: Cluster, member: Member, written: Mapping[str, Writer]) -> list[str]:
    """Return the claims of the group that another cluster has written last."""
    own = written[claim_of(member)]
    claims = [claim_of(each) for each in cluster.group(member.group)]
    return [claim for claim in claims if claim in written and written[claim].uid != own.uid]


def to_record(cluster: Cluster, claims: Sequence[Manifest], existing: frozenset[str]) -> dict[str, str]:
    """Return the annotations to set, by name of the claim. A group is recorded when all of its brokers exist: a crash
    in between must not make its claims look like those of two clusters.
    """
    writer = Writer(cluster.replication.mode, cluster.uid)
    written = writers(claims)
    present = {claim["metadata"]["name"] for claim in claims}
    groups = [cluster.group(number) for number in range(cluster.groups)]
    ours = {claim_of(each) for members in groups if all(each.name in existing for each in members) for each in members}
    return {name: str(writer) for name in sorted(ours & present) if written.get(name) != writer}
