"""What needs attention although clients can work: conditions beside Ready. Pure, from what the API server and the
servers of a cluster showed.

    MessagesLost         the store of a broker has another volume claim than before, or its commit log ends earlier:
                         so a disk that was replaced by an empty one is noticed under the same claim, too
    ClaimDiffers         a claim of an earlier cluster was taken up, with another size or class than the spec's
    SecretMissing        a Secret that the spec names is not there: pods that run go on until they are made anew
    CertificateExpires   the certificate that servers show ends within `SOON`

`store` in the status of a broker keeps what is compared: the uid of its claim and where its commit log ended. A loss
stays there for `LOSS_SHOWN`, which is longer than brokers keep messages by default (72 hours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from raptormq_operator.conditions import Concern
from raptormq_operator.event_diagnostics import time_of
from raptormq_operator.manifests.metadata import Manifest
from raptormq_operator.model.cluster import Cluster, Member
from raptormq_operator.quantity import quantity

SOON = timedelta(days=14)
LOSS_SHOWN = timedelta(days=7)
LATELY = timedelta(minutes=10)
"""The kubelet says again what it lacks more often than this."""
_LACKS_SECRET = frozenset({"FailedMount", "FailedToRetrieveImagePullSecret"})

Stores = dict[str, dict[str, Any]]
"""`store` of each broker, by the name of its StatefulSet."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found; nothing of what could not be."""

    claims: Sequence[Manifest] = ()
    missing_secrets: Sequence[str] = ()
    certificate_ends: Mapping[str, datetime] = field(default_factory=dict)
    """By the address of the server that shows it."""


def concerns(cluster: Cluster, facts: Facts, stores: Stores, now: datetime) -> dict[Concern, str]:
    """Messages of the conditions that hold."""
    found = {
        Concern.MESSAGES_LOST: _losses(cluster, stores),
        Concern.CLAIM_DIFFERS: _claims(cluster, facts.claims),
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
) -> Stores:
    """What is to be kept of each broker's store. `max_offsets` are by address, `previous` is what was kept before.
    Without `record` an offset that has only grown stays as it was kept: it grows all the time."""
    uids = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in claims}
    found = {}
    for member in cluster.members:
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
    elif "lostAt" in store and now - datetime.fromisoformat(store["lostAt"]) > LOSS_SHOWN:
        for name in ("lostAt", "lostUpTo", "lostFrom"):
            store.pop(name, None)
    if claim is not None:
        store["claim"] = claim
    if offset is not None and (record or "maxOffset" not in store):
        store["maxOffset"] = offset
    return store


def claim_of(member: Member) -> str:
    """Name of the volume claim of a broker."""
    return f"store-{member.name}-0"


def secrets_of(cluster: Cluster) -> list[str]:
    """Names of the Secrets that the spec names."""
    names = [*cluster.image.pull_secrets, *([cluster.tls.secret_name] if cluster.tls is not None else [])]
    return list(dict.fromkeys(names))


def lacking(secrets: Sequence[str], events: Sequence[Manifest], now: datetime) -> list[str]:
    """Which of the Secrets the kubelet did not find lately, by its Warning events about pods."""
    texts = [
        str(event.get("message", ""))
        for event in events
        if event.get("reason") in _LACKS_SECRET and now - time_of(event) < LATELY
    ]
    words = {word.strip("\"',.()") for text in texts for word in text.split()}
    return [name for name in secrets if name in words]


def _losses(cluster: Cluster, kept: Stores) -> list[str]:
    texts = []
    for member in cluster.members:
        store = kept.get(member.name, {})
        if "lostAt" not in store:
            continue
        start, end = store.get("lostFrom", 0), store["lostUpTo"]
        if start:
            what = (
                f"with a commit log that ends at offset {start}: it ended at {end} before, and the messages between are"
            )
            what += f" gone, or all up to {end} where the disk was emptied"
        else:
            what = f"with an empty store: messages up to offset {end} of its commit log are gone"
        texts.append(f"{member.broker_name} ({member.name}) came back {what}, seen at {store['lostAt']}")
    return texts


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


def _same(size: str, wanted: str) -> bool:
    has, wants = quantity(size), quantity(wanted)
    return has is None or wants is None or abs(has - wants) < 1  # the API server rounds parts of a byte


def _secrets(cluster: Cluster, missing: Sequence[str]) -> list[str]:
    texts = []
    for name in missing:
        tls = cluster.tls is not None and cluster.tls.secret_name == name
        effect = "pods that are made anew do not start" if tls else "nodes that do not have the image cannot pull it"
        texts.append(f"there is no Secret {name} in {cluster.namespace}: {effect}")
    return texts


def _certificates(cluster: Cluster, ends: Mapping[str, datetime], now: datetime) -> list[str]:
    secret = cluster.tls.secret_name if cluster.tls is not None else ""
    servers: dict[datetime, list[str]] = {}
    for address, end in sorted(ends.items()):
        if end - now <= SOON:
            servers.setdefault(end, []).append(address)
    return [
        f"the certificate that {addresses[0]}{f' and {len(addresses) - 1} others show' if addresses[1:] else ' shows'} "
        f"{'ended' if end <= now else 'ends'} at {_text(end)}, renew Secret {secret}"
        for end, addresses in sorted(servers.items())
    ]


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
