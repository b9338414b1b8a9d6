"""Conditions beside Ready, for problems that need attention although clients are served. Pure functions.

    MessagesLost         a broker's volume claim was replaced, or its commit log ends earlier than before. The second
                         check detects an emptied disk under the same claim. A Dledger group has lost messages if all of
                         its claims were replaced, if the confirmed log of a leader with a majority ends earlier than
                         that of the group did, or if a member reports a lost range: it began to lead with a log
                         that begins later than that of the group
    ClaimDiffers         an existing claim is used whose size or storage class differs from the spec
    ClaimTerminating     a claim is being deleted; its volume is released when the pod that uses it terminates
    SecretMissing        a Secret named in the spec does not exist; running pods are not affected until they restart
    CertificateExpires   the certificate of a server expires within `SOON`

`status.brokers[].store` records the compared values: the uid of the claim and the end offset of the commit log. A loss
is recorded there for `LOSS_SHOWN`, which is longer than the default retention time of messages (72 hours). A lost range
remains recorded while the member reports it, so that it is not shown again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from raptormq.protocol.bodies.replication import LostRange
from raptormq_operator.conditions import Concern
from raptormq_operator.event_diagnostics import time_of
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.quantity import quantity

SOON = timedelta(days=14)
LOSS_SHOWN = timedelta(days=7)
LATELY = timedelta(minutes=10)
"""Maximum age of a kubelet event that counts. The kubelet repeats its mount and pull events more often than this."""
_LACKS_SECRET = frozenset({"FailedMount", "FailedToRetrieveImagePullSecret"})

Stores = dict[str, dict[str, Any]]
"""`status.brokers[].store` by the name of the broker's StatefulSet."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Observations for the conditions. A value that could not be determined is absent."""

    claims: Sequence[Manifest] = ()
    missing_secrets: Sequence[str] = ()
    certificate_ends: Mapping[str, datetime] = field(default_factory=dict)
    """Expiry times by address of the server."""
    slave_ends: Mapping[str, int] = field(default_factory=dict)
    """Ends of the logs of the slaves, by name of the broker."""


def concerns(cluster: Cluster, facts: Facts, stores: Stores, now: datetime) -> dict[Concern, str]:
    """Return the messages of the conditions that are True."""
    found = {
        Concern.MESSAGES_LOST: [*_losses(cluster, stores, facts.slave_ends), *_lost_ranges(cluster, stores, now)],
        Concern.CLAIM_DIFFERS: _claims(cluster, facts.claims),
        Concern.CLAIM_TERMINATING: _terminating(cluster, facts.claims),
        Concern.SECRET_MISSING: _secrets(cluster, facts.missing_secrets),
        Concern.CERTIFICATE_EXPIRES: _certificates(cluster, facts.certificate_ends, now),
    }
    return {concern: "; ".join(texts) for concern, texts in found.items() if texts}


def stores(
    cluster: Cluster,
    claims: Sequence[Manifest],
    max_offsets: Mapping[str, int],
    previous: Mapping[str, Mapping[str, Any]],
    now: datetime,
    *,
    record: bool,
    leaders: Mapping[str, Member] | None = None,
    lost_ranges: Mapping[str, LostRange | None] | None = None,
) -> Stores:
    """Return the state of each broker's store to record in the status.

    `max_offsets` has the end offsets by address, `previous` the recorded states by broker. A greater offset is recorded
    only with `record`, which limits the number of status updates. For Dledger groups the offsets are those of the
    confirmed logs, `leaders` has the leaders that a majority responds to, by broker name, and `lost_ranges` what the
    responding members report as lost, by address.
    """
    uids = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in claims}
    found: dict[str, dict[str, Any]] = {}
    if cluster.is_dledger:
        for group in range(cluster.groups):
            leader = (leaders or {}).get(names.broker(group))
            found |= _group_stores(cluster.group(group), leader, uids, max_offsets, previous, now, record=record)
        return _with_lost_ranges(cluster, found, lost_ranges or {}, now)
    # The group loses no message when a slave loses its disk or truncates its log.
    members = cluster.members if not cluster.is_replicated else filter(cluster.is_master, cluster.members)
    for member in members:
        before = dict(previous.get(member.name, {}))
        store = _store(before, uids.get(claim_of(member)), max_offsets.get(member.address), now, record=record)
        if store:
            found[member.name] = store
    return found


def _store(
    before: dict[str, Any], claim: str | None, offset: int | None, now: datetime, *, record: bool
) -> dict[str, Any]:
    store, ended = dict(before), before.get("maxOffset", 0)
    another = claim is not None and before.get("claim", claim) != claim
    shorter = offset is not None and offset < ended
    if (another or shorter) and ended:
        store |= {"lostAt": _text(now), "lostUpTo": ended, "lostFrom": 0 if another else offset}
        del store["maxOffset"]
    return _seen(store, claim, offset, now, record=record)


def _seen(
    store: dict[str, Any], claim: str | None, offset: int | None, now: datetime, *, record: bool
) -> dict[str, Any]:
    """Return the store with the observed claim and offset, without a loss that has been shown long enough."""
    if "lostAt" in store and now - datetime.fromisoformat(store["lostAt"]) > LOSS_SHOWN:
        for name in ("lostAt", "lostUpTo", "lostFrom"):
            store.pop(name, None)
    if claim is not None:
        store["claim"] = claim
    if offset is not None and (record or "maxOffset" not in store):
        store["maxOffset"] = offset
    return store


def _group_stores(
    members: Sequence[Member],
    leader: Member | None,
    uids: Mapping[str, str],
    confirmed: Mapping[str, int],
    previous: Mapping[str, Mapping[str, Any]],
    now: datetime,
    *,
    record: bool,
) -> Stores:
    """Return the state of the stores of a Dledger group. A loss of the group is recorded at its leader.

    The group loses nothing when one member loses its disk, and its confirmed log is that of any leader that a majority
    responds to.
    """
    found = {member.name: dict(previous.get(member.name, {})) for member in members}
    ended = max(store.get("maxOffset", 0) for store in found.values())
    claims = [(found[member.name].get("claim"), uids.get(claim_of(member))) for member in members]
    all_replaced = all(before and after and before != after for before, after in claims)
    end = confirmed.get(leader.address) if leader is not None else None
    if ended and (all_replaced or (end is not None and end < ended)):
        for store in found.values():
            store.pop("maxOffset", None)
        start = 0 if all_replaced or end is None else end
        found[(leader or members[0]).name] |= {"lostAt": _text(now), "lostUpTo": ended, "lostFrom": start}
    stores = {
        member.name: _seen(
            found[member.name], uids.get(claim_of(member)), confirmed.get(member.address), now, record=record
        )
        for member in members
    }
    return {name: store for name, store in stores.items() if store}


def _with_lost_ranges(
    cluster: Cluster, found: Stores, reported: Mapping[str, LostRange | None], now: datetime
) -> Stores:
    """Return the stores with the lost ranges that members report. Only the member that began to lead reports one."""
    for member in cluster.members:
        if member.address not in reported:
            continue
        store, lost = found.get(member.name, {}), reported[member.address]
        known = store.get("lostRange")
        if lost is None:
            if known is not None and now - datetime.fromisoformat(known["at"]) > LOSS_SHOWN:
                del store["lostRange"]
        elif known is None or (known["from"], known["upTo"]) != lost:
            found[member.name] = store | {"lostRange": {"from": lost.begin, "upTo": lost.end, "at": _text(now)}}
    return {name: store for name, store in found.items() if store}


def claim_of(member: Member) -> str:
    """Return the name of a broker's volume claim."""
    return f"store-{member.name}-0"


def secrets_of(cluster: Cluster) -> list[str]:
    """Return the names of the Secrets in the spec: pull secrets and the TLS Secret."""
    secrets = [*cluster.image.pull_secrets, *([cluster.tls.secret_name] if cluster.tls is not None else [])]
    return list(dict.fromkeys(secrets))


def lacking(secrets: Sequence[str], events: Sequence[Manifest], now: datetime) -> list[str]:
    """Return the Secrets that recent Warning events of the kubelet report as missing."""
    texts = [
        str(event.get("message", ""))
        for event in events
        if event.get("reason") in _LACKS_SECRET and now - time_of(event) < LATELY
    ]
    words = {word.strip("\"',.()") for text in texts for word in text.split()}
    return [name for name in secrets if name in words]


def _losses(cluster: Cluster, kept: Stores, slave_ends: Mapping[str, int]) -> list[str]:
    texts = []
    for member in cluster.members:
        store = kept.get(member.name, {})
        if "lostAt" not in store:
            continue
        start, end = store.get("lostFrom", 0), store["lostUpTo"]
        who = f"the group {member.broker_name}" if cluster.is_dledger else f"{member.broker_name} ({member.name})"
        others = [each for each in cluster.group(member.group) if each != member and each.name in slave_ends]
        best = max(others, key=lambda each: slave_ends[each.name], default=None)
        if best is not None and slave_ends[best.name] > start:
            what = _on_another_copy(start, end, best.name, slave_ends[best.name])
        elif start:
            what = (
                f"with a commit log that ends at offset {start}, before its previous end {end}: the messages between "
                f"are lost, or all messages up to {end} if the disk was emptied"
            )
        else:
            what = f"with an empty store: messages up to offset {end} of its commit log are lost"
        texts.append(f"{who} came back {what}, seen at {store['lostAt']}")
    return texts


def _lost_ranges(cluster: Cluster, kept: Stores, now: datetime) -> list[str]:
    texts = []
    for member in cluster.members:
        lost = kept.get(member.name, {}).get("lostRange")
        if lost is None or now - datetime.fromisoformat(lost["at"]) > LOSS_SHOWN:
            continue
        texts.append(
            f"the group {member.broker_name} has lost offsets {lost['from']} to {lost['upTo']} of its commit log:"
            f" {member.name}, whose log begins later, began to lead after no member that has them had responded for"
            f" dLegerShortenedLogWait, seen at {lost['at']}"
        )
    return texts


def _on_another_copy(start: int, end: int, slave: str, slave_end: int) -> str:
    """Return the text about a master that has lost messages which a slave has."""
    log = (
        f"with a commit log that ends at offset {start}, before its previous end {end}"
        if start
        else ("with an empty store")
    )
    has = (
        f"all messages up to offset {end}"
        if slave_end >= end
        else (f"the messages up to offset {slave_end}; those up to {end} are lost")
    )
    return f"{log}, but {slave} has {has}. Set replication.promote to {slave}"


def _claims(cluster: Cluster, claims: Sequence[Manifest]) -> list[str]:
    ours = {claim_of(member) for member in cluster.members}
    texts = []
    for claim in claims:
        name, spec = claim["metadata"]["name"], claim["spec"]
        size, storage_class = spec["resources"]["requests"]["storage"], spec.get("storageClassName")
        wanted_class = cluster.storage.storage_class_name
        differs = [
            f"size {size}, the spec says {cluster.storage.size}" if not _same(size, cluster.storage.size) else "",
            f"class {storage_class}, the spec says {wanted_class}" if wanted_class not in (None, storage_class) else "",
        ]
        if name in ours and any(differs):
            texts.append(f"claim {name} has {' and '.join(filter(None, differs))}")
    return texts


def losing_claims(cluster: Cluster, claims: Sequence[Manifest]) -> frozenset[str]:
    """Return the names of the brokers whose volume claim is being deleted. The deletion cannot be undone; Kubernetes
    completes it when the pod that uses the claim has terminated."""
    going = {claim["metadata"]["name"] for claim in claims if "deletionTimestamp" in claim["metadata"]}
    return frozenset(member.name for member in cluster.members if claim_of(member) in going)


def _terminating(cluster: Cluster, claims: Sequence[Manifest]) -> list[str]:
    losing = losing_claims(cluster, claims)
    return [
        f"claim {claim_of(member)} is being deleted: the messages of {member.broker_name} are lost when pod "
        f"{member.name}-0 ends. The operator does not evict the pod; to keep the messages, set "
        "persistentVolumeReclaimPolicy of the volume to Retain"
        for member in cluster.members
        if member.name in losing
    ]


def _same(size: str, wanted: str) -> bool:
    has, wants = quantity(size), quantity(wanted)
    return has is None or wants is None or abs(has - wants) < 1  # the API server rounds parts of a byte


def _secrets(cluster: Cluster, missing: Sequence[str]) -> list[str]:
    texts = []
    for name in missing:
        tls = cluster.tls is not None and cluster.tls.secret_name == name
        effect = "new pods do not start" if tls else "nodes that do not have the image cannot pull it"
        texts.append(f"there is no Secret {name} in {cluster.namespace}: {effect}")
    return texts


def _certificates(cluster: Cluster, ends: Mapping[str, datetime], now: datetime) -> list[str]:
    secret = cluster.tls.secret_name if cluster.tls is not None else ""
    servers: dict[datetime, list[str]] = {}
    for address, end in sorted(ends.items()):
        if end - now <= SOON:
            servers.setdefault(end, []).append(address)
    return [
        f"the certificate of {addresses[0]}{f' and {len(addresses) - 1} others' if addresses[1:] else ''} "
        f"{'expired' if end <= now else 'expires'} at {_text(end)}, renew Secret {secret}"
        for end, addresses in sorted(servers.items())
    ]


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
