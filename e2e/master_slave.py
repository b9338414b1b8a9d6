"""Test of a master and a slave with SYNC: the master's pod is deleted, then its volume, and the slave is promoted."""

from __future__ import annotations

import json
import time

from e2e import command_line, documented, records
from e2e.brokers import NAMESPACE, uid
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from e2e.sender import Sender

NAME = "pair"
CLUSTER = f"brokercluster/{NAME}"
TOPIC = "topic/pair-flights"
MASTER, SLAVE = f"{NAME}-broker-0-0", f"{NAME}-broker-0-1"
READY_TIMEOUT_S = 180
BACK_TIMEOUT_S = 120
SEND_TIMEOUT_S = 900.0
COUNT = 4_000
PACE_S = 3.0
"""Pause in seconds between two small chunks of the second half of the records, which takes at most 600 s."""


def becomes_ready(kubernetes: Kubernetes, slaves: str = "") -> None:
    """Create the pair, and wait until the slave follows and the Topic is ready. `slaves` is the network from which
    slaves may connect, which is needed with access control.
    """
    spec = {
        "groups": 1,
        "replicas": 2,
        "replication": {"mode": "masterSlave", "acknowledge": "SYNC"},
        "config": {"haSlaveAddresses": slaves} if slaves else {},
        "nameServers": {"replicas": 1},
        "storage": {"size": "1Gi", "whenDeleted": "Delete"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    topic = {"clusterRef": {"name": NAME}, "name": "flights", "readQueues": 4, "writeQueues": 4}
    for kind, name, wants in (("BrokerCluster", NAME, spec), ("Topic", TOPIC.partition("/")[2], topic)):
        metadata = {"name": name, "namespace": NAMESPACE}
        document = {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": wants}
        kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(document))
    kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    wanted = {MASTER: "master", SLAVE: "slave"}
    kubernetes.wait_until(f"the roles are {wanted}", lambda: roles(kubernetes) == wanted, READY_TIMEOUT_S)


def loses_nothing(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Check that every record is acknowledged and can be read afterwards. Runs after `brokers.send`."""
    sender = Sender(kubernetes, NAMESPACE, "pair-sender")
    sender.start(image, f"{NAME}-namesrv:9876", "flights", pace_s=PACE_S, count=COUNT)

    def take_away() -> None:
        restart_master(kubernetes)
        replace_master(kubernetes)
        if sender.phase != "Running":
            raise Failed("the sender ended before the last deletion")

    outcome = sender.follow(take_away, SEND_TIMEOUT_S)
    if outcome.get("acknowledged") != COUNT:
        raise Failed(f"{outcome} at the end of the sender, expected {COUNT} acknowledged records")
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=BACK_TIMEOUT_S)
    records.check(read(kubernetes), sent[:COUNT])
    say(f"{COUNT} records acknowledged and read, failures on the way: {outcome['failures']}")


def restart_master(kubernetes: Kubernetes) -> None:
    """Delete the master's pod. The slave serves reads meanwhile, and sends succeed again after the restart."""
    before = uid(kubernetes, "pod", f"{MASTER}-0")
    began = time.monotonic()
    (node,) = kubernetes.nodes()
    kubernetes.kubectl("cordon", node)  # the master must not start before the slave was read
    try:
        kubernetes.kubectl("delete", "pod", f"{MASTER}-0", "-n", NAMESPACE, "--timeout=60s", timeout=90)
        found = len({record["number"] for record in read(kubernetes)})
    finally:
        kubernetes.kubectl("uncordon", node)
    if found < COUNT // 2:
        raise Failed(f"{found} records were read without the master, expected at least the first {COUNT // 2}")

    def back() -> bool:
        anew = uid(kubernetes, "pod", f"{MASTER}-0") not in ("", before)
        return (
            anew and roles(kubernetes) == {MASTER: "master", SLAVE: "slave"} and kubernetes.is_ready(CLUSTER, NAMESPACE)
        )

    kubernetes.wait_until(f"{MASTER} is the master again", back, BACK_TIMEOUT_S)
    say(f"{found} records read from the slave; the master is back after {time.monotonic() - began:.0f} s")


def replace_master(kubernetes: Kubernetes) -> None:
    """Delete the master's volume claim, promote the slave and delete the pod. The old master then is a slave."""
    claim = f"store-{MASTER}-0"
    lost = uid(kubernetes, "pvc", claim)
    began = time.monotonic()
    kubernetes.kubectl("delete", "pvc", claim, "-n", NAMESPACE, "--wait=false")
    guide = "docs/guides/choosing-replication.md"
    documented.execute(kubernetes, guide, "Promote a slave", {"NAME": NAME}, namespace=NAMESPACE)
    kubernetes.wait_until("the promotion is announced", lambda: promotion(kubernetes) == "Promoting", BACK_TIMEOUT_S)
    say(str(kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]["promotion"]["message"]))
    # The old master must be configured as a slave first: an empty master would accept messages.
    kubernetes.wait_until("the old master is demoted", lambda: not is_configured_master(kubernetes), BACK_TIMEOUT_S)
    kubernetes.kubectl("delete", "pod", f"{MASTER}-0", "-n", NAMESPACE, "--wait=false")

    def promoted() -> bool:
        wanted = {MASTER: "slave", SLAVE: "master"}
        return (promotion(kubernetes), roles(kubernetes)) == ("Promoted", wanted) and kubernetes.is_ready(
            CLUSTER, NAMESPACE
        )

    kubernetes.wait_until(f"{SLAVE} is the master, and followed", promoted, BACK_TIMEOUT_S)
    if uid(kubernetes, "pvc", claim) == lost:
        raise Failed(f"the volume claim {claim} was not replaced")
    say(f"{SLAVE} promoted and followed by an empty {MASTER} after {time.monotonic() - began:.0f} s")


def goes(kubernetes: Kubernetes) -> None:
    """Delete the cluster with its volumes."""
    kubernetes.kubectl("delete", TOPIC, CLUSTER, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.kubectl("delete", "pod/pair-sender", "-n", NAMESPACE, "--wait=false")


def read(kubernetes: Kubernetes) -> list[records.Record]:
    """Return all records that a consumer reads from the topic, including duplicates."""
    return [json.loads(message["body"]) for message in command_line.consume(kubernetes, NAME, "flights")]


def promotion(kubernetes: Kubernetes) -> str:
    """Return the state of the promotion; empty without one."""
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    return str(status.get("promotion", {}).get("state", ""))


def is_configured_master(kubernetes: Kubernetes) -> bool:
    """Return whether the first member is configured as the master."""
    return "SLAVE" not in kubernetes.get("configmap", MASTER, "-n", NAMESPACE)["data"]["broker.conf"]


def roles(kubernetes: Kubernetes) -> dict[str, str]:
    """Return the roles by broker according to the status."""
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    return {broker["name"]: broker.get("role", "") for broker in status["brokers"]}
