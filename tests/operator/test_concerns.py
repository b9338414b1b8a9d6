"""Conditions in addition to Ready: lost stores, claims of an earlier cluster, missing Secrets, expiring
certificates.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raptormq.protocol.bodies.replication import LostRange
from raptormq_operator.concerns import (
    LOSS_SHOWN,
    Facts,
    Stores,
    claim_of,
    concerns,
    lacking,
    losing_claims,
    secrets_of,
    stores,
)
from raptormq_operator.conditions import Concern
from raptormq_operator.manifests.cluster_objects import wanted
from raptormq_operator.model.cluster import Cluster
from tests.operator.resources import SURROUNDINGS, cluster_body

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
PLAIN = Cluster.from_object(cluster_body(groups=2), SURROUNDINGS)
FIRST, SECOND = PLAIN.members


def claim(uid: str = "c1", size: str = "10Gi", storage_class: str = "essd", member: Any = FIRST) -> dict[str, Any]:
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": storage_class}
    return {"metadata": {"name": claim_of(member), "uid": uid}, "spec": spec}


def look(before: Stores, uid: str, offset: int | None, now: datetime = NOW, *, record: bool = True) -> Stores:
    offsets = {} if offset is None else {FIRST.address: offset}
    return stores(PLAIN, [claim(uid)], offsets, before, now, record=record)


def lost(kept: Stores, now: datetime = NOW) -> str | None:
    return concerns(PLAIN, Facts(), kept, now).get(Concern.MESSAGES_LOST)


def test_claims_have_the_names_that_kubernetes_gives_them() -> None:
    workload = wanted(PLAIN).brokers[0].objects[-1]
    (template,) = workload["spec"]["volumeClaimTemplates"]
    assert claim_of(FIRST) == f"{template['metadata']['name']}-{workload['metadata']['name']}-0"


def test_a_store_that_grows_is_no_loss_and_is_kept_now_and_then() -> None:
    kept = look({}, "c1", 1000)
    assert kept == {FIRST.name: {"claim": "c1", "maxOffset": 1000}}
    assert look(kept, "c1", 2000, record=False) == kept
    assert look(kept, "c1", 2000) == {FIRST.name: {"claim": "c1", "maxOffset": 2000}}
    assert look(kept, "c1", None) == kept, "a broker that is down"
    assert lost(kept) is None


def test_another_claim_is_an_empty_disk() -> None:
    kept = look(look({}, "c1", 1000), "c2", None)
    assert "maxOffset" not in kept[FIRST.name]
    assert lost(kept) == (
        "broker-0 (demo-broker-0-0) came back with an empty store: messages up to offset 1000 of its commit log are "
        "lost, seen at 2026-11-25T12:00:00Z"
    )
    again = look(kept, "c2", 5, NOW + timedelta(minutes=1))
    assert lost(again) == lost(kept), "the same loss is reported"
    assert again[FIRST.name]["maxOffset"] == 5


def test_a_log_that_ends_earlier_under_the_same_claim_is_a_loss() -> None:
    kept = look(look({}, "c1", 1000), "c1", 0)
    assert "came back with an empty store: messages up to offset 1000" in str(lost(kept))
    kept = look(look({}, "c1", 1000), "c1", 700, record=False)
    assert "ends at offset 700, before its previous end 1000" in str(lost(kept))
    assert kept[FIRST.name]["maxOffset"] == 700


def test_a_loss_is_shown_for_a_while_and_an_empty_store_loses_nothing() -> None:
    kept = look(look({}, "c1", 1000), "c2", 0)
    assert lost(look(kept, "c2", 1, NOW + LOSS_SHOWN)) is not None
    assert lost(look(kept, "c2", 1, NOW + LOSS_SHOWN + timedelta(seconds=1))) is None
    assert lost(look(look({}, "c1", 0), "c2", 0)) is None
    assert lost(look(look({}, "c1", None), "c2", 0)) is None


GROUP = Cluster.from_object(cluster_body(replicas=3, replication={"mode": "dledger"}), SURROUNDINGS)
PAIR = Cluster.from_object(
    cluster_body(replicas=2, replication={"mode": "masterSlave", "acknowledge": "SYNC"}), SURROUNDINGS
)


def look_at_group(before: Stores, uids: str, *ends: int | None, leader: int | None = 0) -> Stores:
    """Return the stores of a group with these claims and confirmed ends, which has a leader with a majority or none."""
    members = GROUP.members
    claims = [claim(uid, member=member) for uid, member in zip(uids, members, strict=True)]
    offsets = {member.address: end for member, end in zip(members, ends, strict=True) if end is not None}
    leaders = {} if leader is None else {"broker-0": members[leader]}
    return stores(GROUP, claims, offsets, before, NOW, record=True, leaders=leaders)


def group_lost(kept: Stores) -> str | None:
    return lost_in_group(kept, NOW)


def lost_in_group(kept: Stores, now: datetime) -> str | None:
    return concerns(GROUP, Facts(), kept, now).get(Concern.MESSAGES_LOST)


def test_a_group_that_lost_all_its_disks_has_lost_its_messages() -> None:
    kept = look_at_group(look_at_group({}, "abc", 1000, 1000, 900), "xyz", 0, 0, 0, leader=1)
    assert group_lost(kept) == (
        "the group broker-0 came back with an empty store: messages up to offset 1000 of its commit log are lost, "
        "seen at 2026-11-25T12:00:00Z"
    )
    grown = look_at_group(kept, "xyz", 50, 50, 50)
    assert group_lost(grown) == group_lost(kept)
    assert {store["maxOffset"] for store in grown.values()} == {50}
    slow = look_at_group(look_at_group({}, "abc", 1000, 1000, 900), "xyz", 2000, 2000, None)
    assert "up to offset 1000" in str(group_lost(slow)), "also if the new log is longer already"


def test_a_group_whose_log_ends_earlier_has_lost_messages() -> None:
    kept = look_at_group(look_at_group({}, "abc", 1000, 1000, 900), "abc", None, 700, 700, leader=2)
    assert "the group broker-0 came back with a commit log that ends at offset 700" in str(group_lost(kept))


def test_a_group_with_a_majority_of_its_disks_has_lost_nothing() -> None:
    before = look_at_group({}, "abc", 1000, 1000, 900)
    assert group_lost(look_at_group(before, "xbc", 0, 1000, 1000, leader=1)) is None, "one disk is new"
    assert group_lost(look_at_group(before, "xyc", 0, 0, 1000, leader=None)) is None, "there is no leader"
    assert group_lost(look_at_group(before, "abc", 700, None, None, leader=None)) is None, "the leader has no majority"


def reported(before: Stores, lost: LostRange | None, now: datetime = NOW) -> Stores:
    """Return the stores after the second member has reported a lost range, or none, and the first one nothing."""
    second = GROUP.members[1]
    return stores(GROUP, [], {}, before, now, record=True, lost_ranges={second.address: lost})


def test_a_lost_range_of_a_group_is_shown_for_a_while_and_once() -> None:
    kept = reported({}, LostRange(0, 700))
    expected = (
        "the group broker-0 has lost offsets 0 to 700 of its commit log: demo-broker-0-1, whose log begins later, began"
        " to lead after no member that has them had responded for dLegerShortenedLogWait, seen at 2026-11-25T12:00:00Z"
    )
    assert group_lost(kept) == expected
    assert group_lost(stores(GROUP, [], {}, kept, NOW, record=True)) == expected, "the member does not respond"
    day, end = NOW + timedelta(days=1), NOW + LOSS_SHOWN + timedelta(seconds=1)
    assert group_lost(reported(kept, None, day)) == expected, "the member has a new disk"
    assert group_lost(reported(kept, LostRange(0, 700), day)) == expected, "the range is known"
    assert "offsets 700 to 900" in str(group_lost(reported(kept, LostRange(700, 900), day)))
    assert lost_in_group(reported(kept, LostRange(0, 700), end), end) is None
    assert GROUP.members[1].name not in reported(kept, None, end)


@pytest.mark.parametrize(
    ("slave_end", "expected"),
    [
        (1000, "came back with an empty store, but demo-broker-0-1 has all messages up to offset 1000. Set"),
        (900, "but demo-broker-0-1 has the messages up to offset 900; those up to 1000 are lost. Set"),
        (0, "came back with an empty store: messages up to offset 1000 of its commit log are lost"),
    ],
)
def test_a_lost_master_names_the_slave_that_has_its_messages(slave_end: int, expected: str) -> None:
    master, slave = PAIR.members
    before: Stores = {}
    for uid in ("c1", "c2"):
        before = stores(PAIR, [claim(uid)], {master.address: 1000} if uid == "c1" else {}, before, NOW, record=True)
    text = concerns(PAIR, Facts(slave_ends={slave.name: slave_end}), before, NOW)[Concern.MESSAGES_LOST]
    assert expected in text
    assert (f"replication.promote to {slave.name}" in text) is bool(slave_end)


def test_claims_of_an_earlier_cluster_are_told_with_what_differs() -> None:
    cluster = Cluster.from_object(
        cluster_body(groups=2, storage={"size": "1.3333Gi", "storageClassName": "essd"}), SURROUNDINGS
    )
    claims = [claim(size="1431619973939200u"), claim(size="5Gi", storage_class="standard", member=SECOND)]
    foreign = {"metadata": {"name": "store-demo-broker-7-0-0"}, "spec": claims[1]["spec"]}
    found = concerns(cluster, Facts([*claims, foreign]), {}, NOW)
    assert found == {
        Concern.CLAIM_DIFFERS: "claim store-demo-broker-1-0-0 has size 5Gi, the spec says 1.3333Gi and class standard, "
        "the spec says essd"
    }
    assert concerns(PLAIN, Facts([claim(storage_class="any")]), {}, NOW) == {}, (
        "a spec without a class accepts any class"
    )


def test_a_claim_that_goes_with_its_pod_is_told() -> None:
    going = claim()
    going["metadata"]["deletionTimestamp"] = "2026-11-25T11:59:00Z"
    claims = [going, claim(member=SECOND)]
    assert losing_claims(PLAIN, claims) == {FIRST.name}
    (text,) = concerns(PLAIN, Facts(claims), {}, NOW).values()
    assert text.startswith(
        "claim store-demo-broker-0-0-0 is being deleted: the messages of broker-0 are lost when pod "
        "demo-broker-0-0-0 ends. "
    )


ENCRYPTED = Cluster.from_object(
    cluster_body(tls={"secretName": "certificate"}, imagePullSecrets=[{"name": "pull"}]), SURROUNDINGS
)


def test_secrets_that_are_missing_are_named_with_what_follows() -> None:
    assert secrets_of(ENCRYPTED) == ["pull", "certificate"]
    found = concerns(ENCRYPTED, Facts(missing_secrets=["pull", "certificate"]), {}, NOW)
    assert found == {
        Concern.SECRET_MISSING: "there is no Secret pull in shop: nodes that do not have the image cannot pull it; "
        "there is no Secret certificate in shop: new pods do not start"
    }


@pytest.mark.parametrize(
    ("reason", "message", "age", "expected"),
    [
        (
            "FailedMount",
            'MountVolume.SetUp failed for volume "tls" : secret "certificate" not found',
            1,
            ["certificate"],
        ),
        (
            "FailedToRetrieveImagePullSecret",
            "Unable to retrieve some image pull secrets (pull); attempting to pull the image may not succeed.",
            1,
            ["pull"],
        ),
        ("FailedMount", 'secret "certificate" not found', 11, []),
        ("FailedMount", 'configmap "other" not found', 1, []),
        ("BackOff", 'secret "certificate" not found', 1, []),
    ],
)
def test_what_the_kubelet_lacks_lately(reason: str, message: str, age: int, expected: list[str]) -> None:
    event = {"reason": reason, "message": message, "lastTimestamp": (NOW - timedelta(minutes=age)).isoformat()}
    assert lacking(["pull", "certificate"], [event], NOW) == expected


def test_a_certificate_is_told_of_two_weeks_before_its_end() -> None:
    def told(end: datetime) -> str | None:
        ends = {"a:1": end, "b:1": end, "c:1": NOW + timedelta(days=90)}
        return concerns(ENCRYPTED, Facts(certificate_ends=ends), {}, NOW).get(Concern.CERTIFICATE_EXPIRES)

    assert told(NOW + timedelta(days=14, seconds=1)) is None
    assert told(NOW + timedelta(days=14)) == (
        "the certificate of a:1 and 1 others expires at 2026-12-09T12:00:00Z, renew Secret certificate"
    )
    assert "expired at 2026-11-25T12:00:00Z" in str(told(NOW))
