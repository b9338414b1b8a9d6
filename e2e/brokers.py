"""Tests of brokers: installation, example resources, and sending while a broker is deleted."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any

from e2e import chart_upgrade, documented, records, rules
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say, step
from e2e.sender import Sender

NAMESPACE = "flights"
TUTORIAL = "docs/tutorials/kubernetes.md"
OPERATOR_NAMESPACE = chart_upgrade.OPERATOR_NAMESPACE
CLUSTER = "brokercluster/demo"
TOPIC = "topic/flights"
VICTIM = "demo-broker-0-0-0"
READY_TIMEOUT_S = 180
SEND_TIMEOUT_S = 600.0
READY_S = 15
"""Time limit in seconds for a cluster of two groups, with the image on the node, on a busy machine."""
PACE_S = 0.3
"""Pause in seconds between two small chunks of the second half of the records, which takes at most 300 s."""


def install(kubernetes: Kubernetes, image: str) -> None:
    """Install the chart, check the rules of its resources, and create the example resources."""
    make_namespace(kubernetes)
    with step("helm install the chart of the last release"):
        chart_upgrade.install_previous(kubernetes, image)
    with step("the documented commands upgrade it to helm/raptormq, and helm test is well"):
        notes = chart_upgrade.upgrade(kubernetes, NAMESPACE)
    if "kubectl wait --for=condition=Ready" not in notes:
        raise Failed(f"the notes of the chart do not name the next step: {notes}")
    with step("the API server enforces the rules of the definitions"):
        say(f"{rules.check(kubernetes, NAMESPACE)} specs were put to it")
    with step("kubectl apply a BrokerCluster of 2 groups and a Topic of 8 queues, until both are ready"):
        documented.execute(kubernetes, TUTORIAL, "Make a cluster and a topic", namespace=NAMESPACE)
        kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    say(f"the cluster was Ready {_ready_after(kubernetes):.0f} s after its creation, the goal is less than {READY_S}")
    with step("network policies select running pods"):
        chart_upgrade.policies_select_pods(kubernetes, OPERATOR_NAMESPACE, NAMESPACE)
    kubernetes.wait_until(
        "all 2 brokers and 2 name servers are ready", partial(_all_ready, kubernetes), READY_TIMEOUT_S
    )


def _all_ready(kubernetes: Kubernetes) -> bool:
    status = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]
    return (status["brokersReady"], status["nameServersReady"]) == ("2/2", "2/2")


def make_namespace(kubernetes: Kubernetes) -> None:
    """Create the namespace of the clusters, which admits only restricted pods."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": _restricted()}}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(namespace))


def _ready_after(kubernetes: Kubernetes) -> float:
    """Return the seconds from the creation of the cluster until it was Ready, by the API server's timestamps."""
    made = kubernetes.get(CLUSTER, "-n", NAMESPACE)["metadata"]["creationTimestamp"]
    ready = kubernetes.ready(CLUSTER, NAMESPACE)["lastTransitionTime"]
    return (datetime.fromisoformat(ready) - datetime.fromisoformat(made)).total_seconds()


def name_servers(kubernetes: Kubernetes) -> str:
    """Return the address for clients from the status."""
    address: str = kubernetes.get(CLUSTER, "-n", NAMESPACE)["status"]["nameServerAddress"]
    return address


def stored(kubernetes: Kubernetes, cluster: str, topic: str, namespace: str = NAMESPACE) -> int:
    """Return the number of messages of a topic in all queues of a cluster, according to the command line."""
    command = ["raptormq", "topic", "describe", topic, "--output", "json", "--namesrv", f"{cluster}-namesrv:9876"]
    text = kubernetes.kubectl("exec", "-n", namespace, f"{cluster}-broker-0-0-0", "--", *command)
    return int(json.loads(text)["messages"])


def uid(kubernetes: Kubernetes, kind: str, name: str) -> str:
    """Return the uid of an object; empty if it does not exist."""
    found: list[dict[str, Any]] = kubernetes.get(kind, "-n", NAMESPACE)["items"]
    return next((each["metadata"]["uid"] for each in found if each["metadata"]["name"] == name), "")


def send(kubernetes: Kubernetes, image: str, sent: list[records.Record]) -> None:
    """Send every record from a pod. When half of them are acknowledged, delete the pod of a broker, and send until it
    is replaced."""
    before = uid(kubernetes, "pod", VICTIM)
    sender = Sender(kubernetes, NAMESPACE, "sender")
    sender.bring(sent)
    sender.start(image, name_servers(kubernetes), "flights", pace_s=PACE_S)

    def take_away() -> None:
        say(f"now pod {VICTIM} is deleted")
        kubernetes.kubectl("delete", "pod", VICTIM, "-n", NAMESPACE, "--wait=false")
        kubernetes.wait_until(f"{VICTIM} is replaced", replaced, READY_TIMEOUT_S)
        if sender.phase != "Running":
            raise Failed(f"the sender ended before {VICTIM} was replaced")

    def replaced() -> bool:
        return uid(kubernetes, "pod", VICTIM) not in ("", before) and kubernetes.is_ready(CLUSTER, NAMESPACE)

    outcome = sender.follow(take_away, SEND_TIMEOUT_S)
    if outcome.get("acknowledged") != len(sent):
        raise Failed(f"{outcome} at the end of the sender, expected {len(sent)} acknowledged records")
    kubernetes.wait_ready(CLUSTER, TOPIC, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    say(f"{len(sent)} records acknowledged: {outcome['by_broker']}, failures on the way: {outcome['failures']}")


def _restricted() -> dict[str, str]:
    """Label the namespace so that it admits only pods of the restricted standard."""
    return {"pod-security.kubernetes.io/enforce": "restricted"}
