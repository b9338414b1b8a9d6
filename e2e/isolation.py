"""Isolation tests: a stopped broker of one cluster, and a namespace with large ConfigMaps, must not affect others."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from e2e.brokers import CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, VICTIM
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say

BESIDE = "beside"
FOREIGN = "foreign"
OPERATOR = "app.kubernetes.io/component=operator"
TOPICS = 100
MANY = "e2e-many"
"""Key of a label of these Topics."""
LEASE_LOST = "the lease could not be renewed for "
"""Text of the operator's last line when it ends without its lease. Warnings of single attempts have no `for`."""
NEW_TOPIC_S = 60.0
"""Time limit in seconds for a new Topic, including kubectl. 0.5 s is usual. A request to an unresponsive broker takes
3 s for each Topic of its cluster, until its liveness probe ends the broker after more than 100 s.
"""
SETTLED_S = 300
"""Time limit in seconds for waits of which only the end matters."""
FIND = (
    "for each in /proc/[0-9]*; do"
    " tr '\\0' '\\n' < $each/environ 2>/dev/null | grep -qx HOSTNAME=POD"
    " && tr '\\0' ' ' < $each/cmdline | grep -q raptormq && echo ${each#/proc/};"
    " done; true"
)
BIG, TOGETHER = 200, 50
"""Number of ConfigMaps of 500 kB, and how many of them are created concurrently."""


def silent_broker(kubernetes: Kubernetes) -> None:
    """Stop the process of a broker. Check that its cluster reports it, and that a Topic of another cluster is
    created without delay."""
    _namespace(kubernetes, BESIDE)
    _apply(kubernetes, BESIDE, _resource("BrokerCluster", "small", {"nameServers": {"replicas": 1}}))
    topics = [_resource("Topic", f"many-{number}", {"clusterRef": {"name": "demo"}}) for number in range(TOPICS)]
    for topic in topics:
        topic["metadata"]["labels"] = {MANY: ""}
    _apply(kubernetes, NAMESPACE, {"apiVersion": "v1", "kind": "List", "items": topics})
    kubernetes.wait_ready("brokercluster/small", namespace=BESIDE, timeout=SETTLED_S)
    kubernetes.wait_until("all Topics are ready", partial(_all_ready, kubernetes, NAMESPACE), SETTLED_S)
    node, process = _process(kubernetes, VICTIM)
    kubernetes.on_node(node, "sh", "-c", f"kill -STOP {process}")
    try:
        begun = time.monotonic()
        kubernetes.wait_until("the cluster says so", lambda: not kubernetes.is_ready(CLUSTER, NAMESPACE), SETTLED_S)
        say(f"Ready=False after {time.monotonic() - begun:.1f} s")
        begun = time.monotonic()
        _apply(kubernetes, BESIDE, _resource("Topic", "new", {"clusterRef": {"name": "small"}}))
        kubernetes.wait_ready("topic/new", namespace=BESIDE, timeout=SETTLED_S)
        took = time.monotonic() - begun
        say(f"a new Topic of another cluster is Ready after {took:.1f} s")
        if took > NEW_TOPIC_S:
            raise Failed(f"a new Topic of another cluster took {took:.1f} s")
    finally:
        kubernetes.on_node(node, "sh", "-c", f"kill -CONT {process}")
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=SETTLED_S)
    kubernetes.wait_until("all Topics are ready again", partial(_all_ready, kubernetes, NAMESPACE), SETTLED_S)
    kubernetes.kubectl("delete", "topics", "-n", NAMESPACE, "-l", MANY, "--wait=false", timeout=SETTLED_S)
    kubernetes.wait_until("the Topics are deleted", partial(_are_deleted, kubernetes), SETTLED_S)
    kubernetes.kubectl("delete", "namespace", BESIDE, "--wait=false")


def foreign_objects(kubernetes: Kubernetes) -> None:
    """Check that 100 MB of foreign ConfigMaps do not affect the operator, also after its restart."""
    _namespace(kubernetes, FOREIGN)
    for start in range(0, BIG, TOGETHER):
        items = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"big-{number}", "namespace": FOREIGN},
                "data": {"text": "x" * 500_000},
            }
            for number in range(start, start + TOGETHER)
        ]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        kubernetes.kubectl("apply", "--server-side", "-f", "-", manifest=manifest, timeout=SETTLED_S)
    kubernetes.kubectl("delete", "pod", "-n", OPERATOR_NAMESPACE, "-l", OPERATOR, "--timeout=60s", timeout=90)
    _apply(kubernetes, FOREIGN, _resource("Topic", "lost", {"clusterRef": {"name": "none"}}))
    reconciled = partial(_says, kubernetes, "topic/lost", "ClusterNotFound")
    kubernetes.wait_until("the operator works", reconciled, SETTLED_S)
    if restarts := unexplained_restarts(kubernetes):
        raise Failed(f"the operator was restarted because of foreign ConfigMaps: {'; '.join(restarts)}")
    kubernetes.kubectl("delete", "namespace", FOREIGN, "--wait=false")


def _process(kubernetes: Kubernetes, pod: str) -> tuple[str, str]:
    """Return the node of a pod and the id of its process on the node, found by the host name of the pod."""
    node: str = kubernetes.get("pod", pod, "-n", NAMESPACE)["spec"]["nodeName"]
    found = kubernetes.on_node(node, "sh", "-c", FIND.replace("POD", pod)).split()
    if len(found) != 1:
        raise Failed(f"{pod} has the processes {found} on {node}, expected one")
    return node, found[0]


def _all_ready(kubernetes: Kubernetes, namespace: str) -> bool:
    topics = kubernetes.get("topics", "-n", namespace)["items"]
    return all(
        any(one["type"] == "Ready" and one["status"] == "True" for one in topic.get("status", {}).get("conditions", []))
        for topic in topics
    )


def _are_deleted(kubernetes: Kubernetes) -> bool:
    return not kubernetes.get("topics", "-n", NAMESPACE, "-l", MANY)["items"]


def _says(kubernetes: Kubernetes, resource: str, reason: str) -> bool:
    return bool(kubernetes.ready(resource, FOREIGN)["reason"] == reason)


def unexplained_restarts(kubernetes: Kubernetes) -> list[str]:
    """Return how the last container of each operator ended, and the last line of its log.

    The operator ends by design when it cannot renew its lease, for example while the API server does not answer. Such
    an end does not count.
    """
    found = []
    for pod in kubernetes.get("pods", "-n", OPERATOR_NAMESPACE, "-l", OPERATOR)["items"]:
        name = pod["metadata"]["name"]
        states = [each["lastState"] for each in pod["status"]["containerStatuses"]]
        for ended in (state["terminated"] for state in states if "terminated" in state):
            log = kubernetes.kubectl("logs", "--previous", "-n", OPERATOR_NAMESPACE, name).splitlines()
            last = log[-1] if log else ""
            if ended.get("reason") != "Error" or LEASE_LOST not in last:
                found.append(f"{name}: {ended.get('reason')}, exit code {ended['exitCode']}: {last}")
    return found


def _namespace(kubernetes: Kubernetes, name: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(manifest))


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _apply(kubernetes: Kubernetes, namespace: str, manifest: dict[str, Any]) -> None:
    kubernetes.kubectl("apply", "-n", namespace, "-f", "-", manifest=json.dumps(manifest), timeout=SETTLED_S)
