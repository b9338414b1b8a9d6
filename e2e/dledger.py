"""A Dledger group of three members. Its leader's pod is taken away under Java clients, which follow the leader through
its Service, and twice while records are sent; then its volume is."""

from __future__ import annotations

import json
import time
from typing import Any

from e2e import command_line, records
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.java_pod import STOP, JavaPod
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from e2e.sender import Sender

NAME = "ledger"
CLUSTER = f"brokercluster/{NAME}"
TOPIC = "topic/ledger-flights"
READY_TIMEOUT_S = 240
BACK_TIMEOUT_S = 180
SEND_TIMEOUT_S = 600.0
FOLLOWED = "followed"
"""Topic of the Java clients."""
GAP_S = 25.0
"""Time without an acknowledgement after which a Java client has followed its route, for which it asks every 30 s, and
not the Service. Wanted are less than 10 s; a busy machine may need longer."""
READ_S = 120
PACE_S = 0.6
"""10,000 records in 60 s: longer than three members need to come back."""


def becomes_ready(kubernetes: Kubernetes) -> None:
    """The group elects a leader, and its Topic becomes ready."""
    spec = {
        "groups": 1,
        "replicas": 3,
        "replication": {"mode": "dledger"},
        "config": {"stagedMessagesEnable": "true"},
        "nameServers": {"replicas": 1},
        "storage": {"size": "2Gi", "whenDeleted": "Delete"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "768Mi"}},
    }
    _apply(kubernetes, "BrokerCluster", NAME, spec)
    make_topic(kubernetes, TOPIC.partition("/")[2], name="flights", queueType="BatchCQ", readQueues=8)
    kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    say(f"{leader(kubernetes)} leads: {roles(kubernetes)}")


def make_topic(kubernetes: Kubernetes, resource: str, **spec: Any) -> None:
    """Applies a Topic of the group."""
    _apply(kubernetes, "Topic", resource, {"clusterRef": {"name": NAME}, **spec})


def _apply(kubernetes: Kubernetes, kind: str, name: str, spec: dict[str, Any]) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    document = {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(document))


def loses_nothing(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Every record is acknowledged and can be read, although leaders and a disk are lost, after `brokers.send`."""
    sender = Sender(kubernetes, NAMESPACE, "ledger-sender")
    sender.start(image, f"{NAME}-namesrv:9876", "flights", pace_s=PACE_S)

    def take_away() -> None:
        for with_volume in (False, False, True):
            if sender.phase != "Running":
                raise Failed("the sender had nothing more to send before all was taken away")
            take_leader(kubernetes, with_volume=with_volume)

    outcome = sender.follow(take_away, SEND_TIMEOUT_S)
    if outcome.get("acknowledged") != len(sent):
        raise Failed(f"{outcome} after the sender's end, wanted {len(sent)} acknowledged")
    found = command_line.consume(kubernetes, NAME, "flights")
    records.check((json.loads(message["body"]) for message in found), sent)
    say(f"{len(sent)} records acknowledged and read, failures on the way: {outcome['failures']}")


def java_follows(kubernetes: Kubernetes, image: str) -> None:
    """A producer and a consumer of the official Java client with their defaults go on when the only leader is lost."""
    make_topic(kubernetes, FOLLOWED)
    kubernetes.wait_ready(f"topic/{FOLLOWED}", namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    kubernetes.wait_until("the leader is reached by its Service", lambda: _is_reached(kubernetes), BACK_TIMEOUT_S)
    client = JavaPod(kubernetes, "follows")
    arguments = ["io.raptormq.interop.produce.FollowLeader", f"{NAME}-namesrv:9876", FOLLOWED, STOP]
    client.start(image, arguments, "flowing", {})
    take_leader(kubernetes, with_volume=False, force=True)
    told = client.end(READ_S)
    if not told["acknowledged"] or told["missing"] or told["longest_gap_s"] > GAP_S:
        raise Failed(f"the Java clients: {told}")
    say(
        f"{told['acknowledged']} messages acknowledged, none missing, the longest time without one"
        f" {told['longest_gap_s']} s, without one consumed {told['longest_consumer_gap_s']} s"
    )


def _is_reached(kubernetes: Kubernetes) -> bool:
    ready = kubernetes.ready(CLUSTER, NAMESPACE)
    return ready["status"] == "True" and "by their route" not in ready["message"]


def goes(kubernetes: Kubernetes) -> None:
    """The cluster is deleted, with its volumes."""
    kubernetes.kubectl("delete", TOPIC, f"topic/{FOLLOWED}", CLUSTER, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.kubectl("delete", "pod/ledger-sender", "-n", NAMESPACE, "--wait=false")


def leader(kubernetes: Kubernetes) -> str:
    """Name of the broker that leads, as the status has it.

    Raises:
        Failed: none leads, or more than one does.
    """
    leading = [name for name, role in roles(kubernetes).items() if role == "leader"]
    if len(leading) != 1:
        raise Failed(f"{len(leading)} members lead: {roles(kubernetes)}")
    return leading[0]


def roles(kubernetes: Kubernetes) -> dict[str, str]:
    """Role by broker, as the status has it."""
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    return {broker["name"]: broker.get("role", "") for broker in status["brokers"]}


def take_leader(kubernetes: Kubernetes, *, with_volume: bool, force: bool = False) -> None:
    """Deletes the leader's pod, and with it its volume claim; waits until another leads and all follow. With `force`
    Kubernetes does not wait until the pod has ended."""
    taken = leader(kubernetes)
    pod = f"{taken}-0"
    before = _uid(kubernetes, "pod", pod)
    began = time.monotonic()
    if with_volume:
        claim = f"store-{pod}"
        lost = _uid(kubernetes, "pvc", claim)
        kubernetes.kubectl("delete", "pvc", claim, "-n", NAMESPACE, "--wait=false")
    how = ["--force", "--grace-period=0"] if force else ["--wait=false"]
    kubernetes.kubectl("delete", "pod", pod, "-n", NAMESPACE, *how)

    def back() -> bool:
        standing = roles(kubernetes)
        # Another one leads: a status from before the deletion does not count.
        whole = sorted(standing.values()) == ["follower", "follower", "leader"] and standing[taken] != "leader"
        anew = _uid(kubernetes, "pod", pod) not in ("", before)
        return whole and anew and kubernetes.is_ready(CLUSTER, NAMESPACE)

    kubernetes.wait_until(f"{pod} is a member again", back, BACK_TIMEOUT_S)
    if with_volume and _uid(kubernetes, "pvc", claim) == lost:
        raise Failed(f"{claim} is still the volume claim of before")
    what = f"{pod} and its volume" if with_volume else pod
    say(f"{what} taken away, whole again after {time.monotonic() - began:.0f} s; {leader(kubernetes)} leads")


def _uid(kubernetes: Kubernetes, kind: str, name: str) -> str:
    """Empty while there is no such object."""
    found: list[dict[str, Any]] = kubernetes.get(kind, "-n", NAMESPACE)["items"]
    return next((each["metadata"]["uid"] for each in found if each["metadata"]["name"] == name), "")
