"""Test of a Dledger group of three members. The leader's pod is deleted while Java clients are connected, which follow
the leader through its Service. While records are sent, it is deleted twice, and a third time with its volume.
"""

from __future__ import annotations

import json
import time
from typing import Any

from e2e import command_line, documented, records
from e2e.brokers import NAMESPACE, stored, uid
from e2e.errors import Failed
from e2e.java_pod import STOP, JavaPod
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from e2e.sender import Sender

GUIDE = "docs/guides/choosing-replication.md"
NAME = "ledger"
CLUSTER = f"brokercluster/{NAME}"
TOPIC = "topic/ledger-flights"
READY_TIMEOUT_S = 240
BACK_TIMEOUT_S = 180
SEND_TIMEOUT_S = 900.0
FOLLOWED = "followed"
"""Topic of the Java clients."""
ROUTES_MS = 600_000
"""Interval at which the clients of `java_follows` request routes. Without the Service they would need this long."""
GAP_S = 120.0
"""Maximum time between acknowledgements of a Java client that follows the Service. The goal is 10 s; the limit is far
above it and far below `ROUTES_MS`, so that only a client without the Service exceeds it.
"""
READ_S = 240
"""More than the 2 x 90 s for which the client sends and reads its last messages at most."""
PACE_S = 0.6
"""Pause in seconds between two small chunks of the second half of the records, which takes at most 600 s."""


def becomes_ready(kubernetes: Kubernetes, *, from_one_copy: bool = False) -> None:
    """Create the group, and wait until it has a leader and its Topic is ready. With `from_one_copy` it is a broker
    first, which the documented command replicates.
    """
    spec = {
        "groups": 1,
        **({} if from_one_copy else {"replicas": 3, "replication": {"mode": "dledger"}}),
        "config": {"stagedMessagesEnable": "true"},
        "nameServers": {"replicas": 1},
        "storage": {"size": "2Gi", "whenDeleted": "Delete"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "768Mi"}},
    }
    _apply(kubernetes, "BrokerCluster", NAME, spec)
    if from_one_copy:
        kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
        documented.execute(kubernetes, GUIDE, "From one copy to three", {"NAME": NAME}, namespace=NAMESPACE)
    make_topic(kubernetes, TOPIC.partition("/")[2], name="flights", queueType="BatchCQ", readQueues=8)
    kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    say(f"{leader(kubernetes)} leads: {roles(kubernetes)}")


def make_topic(kubernetes: Kubernetes, resource: str, **spec: Any) -> None:
    """Apply a Topic of the group."""
    _apply(kubernetes, "Topic", resource, {"clusterRef": {"name": NAME}, **spec})


def _apply(kubernetes: Kubernetes, kind: str, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    document = {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(document))


def loses_nothing(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Check that every record is acknowledged and can be read although leaders and a volume are deleted."""
    sender = Sender(kubernetes, NAMESPACE, "ledger-sender")
    sender.start(image, f"{NAME}-namesrv:9876", "flights", pace_s=PACE_S)

    def take_away() -> None:
        for with_volume in (False, False, True):
            if sender.phase != "Running":
                raise Failed("the sender ended before the last deletion")
            take_leader(kubernetes, with_volume=with_volume)

    outcome = sender.follow(take_away, SEND_TIMEOUT_S)
    if outcome.get("acknowledged") != len(sent):
        raise Failed(f"{outcome} at the end of the sender, expected {len(sent)} acknowledged records")
    found = command_line.consume(kubernetes, NAME, "flights")
    records.check((json.loads(message["body"]) for message in found), sent)
    say(f"{len(sent)} records acknowledged and read, failures on the way: {outcome['failures']}")


def java_follows(kubernetes: Kubernetes, image: str) -> None:
    """Check that Java clients, which do not request routes meanwhile, continue when the only leader is lost."""
    make_topic(kubernetes, FOLLOWED)
    kubernetes.wait_ready(f"topic/{FOLLOWED}", namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    kubernetes.wait_until("the leader is reached by its Service", lambda: _is_reached(kubernetes), BACK_TIMEOUT_S)
    kubernetes.wait_until("the route is known", lambda: stored(kubernetes, NAME, FOLLOWED) == 0, READY_TIMEOUT_S)
    client = start_following(kubernetes, image, ROUTES_MS)
    take_leader(kubernetes, with_volume=False, force=True)
    report = client.end(READ_S)
    if not report["acknowledged"] or report["missing"] or report["longest_gap_s"] > GAP_S:
        raise Failed(f"the Java clients report {report}")
    say(
        f"{report['acknowledged']} messages acknowledged, none missing, the longest time without one"
        f" {report['longest_gap_s']} s, without one consumed {report['longest_consumer_gap_s']} s"
    )


def start_following(kubernetes: Kubernetes, image: str, routes_ms: int) -> JavaPod:
    """Start Java clients that request routes every `routes_ms`, and wait until messages are consumed."""
    client = JavaPod(kubernetes, "follows")
    program = "io.raptormq.interop.produce.FollowLeader"
    client.start(image, [program, f"{NAME}-namesrv:9876", FOLLOWED, STOP, str(routes_ms)], "flowing", {})
    return client


def _is_reached(kubernetes: Kubernetes) -> bool:
    ready = kubernetes.ready(CLUSTER, NAMESPACE)
    return ready["status"] == "True" and "by their route" not in ready["message"]


def goes(kubernetes: Kubernetes) -> None:
    """Delete the cluster with its volumes."""
    kubernetes.kubectl("delete", TOPIC, f"topic/{FOLLOWED}", CLUSTER, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.kubectl("delete", "pod/ledger-sender", "-n", NAMESPACE, "--wait=false")


def leader(kubernetes: Kubernetes) -> str:
    """Wait until exactly one member leads according to the status. Return its name."""
    leading: list[str] = []

    def one() -> bool:
        leading[:] = [name for name, role in roles(kubernetes).items() if role == "leader"]
        return len(leading) == 1

    kubernetes.wait_until("one member leads", one, BACK_TIMEOUT_S)
    return leading[0]


def roles(kubernetes: Kubernetes) -> dict[str, str]:
    """Return the roles by broker according to the status."""
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    return {broker["name"]: broker.get("role", "") for broker in status["brokers"]}


def take_leader(kubernetes: Kubernetes, *, with_volume: bool, force: bool = False) -> None:
    """Delete the leader's pod, optionally with its volume claim. Wait until another member leads and all others follow.
    With `force` Kubernetes does not wait until the pod has ended."""
    taken = leader(kubernetes)
    pod = f"{taken}-0"
    before = uid(kubernetes, "pod", pod)
    began = time.monotonic()
    if with_volume:
        claim = f"store-{pod}"
        lost = uid(kubernetes, "pvc", claim)
        documented.execute(kubernetes, GUIDE, "A lost disk", {"NAME-broker-0-1-0": pod}, namespace=NAMESPACE)
    else:
        how = ["--force", "--grace-period=0"] if force else ["--wait=false"]
        kubernetes.kubectl("delete", "pod", pod, "-n", NAMESPACE, *how)

    def back() -> bool:
        standing = roles(kubernetes)
        # A status with the old leader was written before the deletion.
        whole = sorted(standing.values()) == ["follower", "follower", "leader"] and standing[taken] != "leader"
        anew = uid(kubernetes, "pod", pod) not in ("", before)
        return whole and anew and kubernetes.is_ready(CLUSTER, NAMESPACE)

    kubernetes.wait_until(f"{pod} is a member again", back, BACK_TIMEOUT_S)
    if with_volume and uid(kubernetes, "pvc", claim) == lost:
        raise Failed(f"the volume claim {claim} was not replaced")
    what = f"{pod} and its volume" if with_volume else pod
    say(f"{what} deleted, group complete after {time.monotonic() - began:.0f} s; {leader(kubernetes)} leads")
