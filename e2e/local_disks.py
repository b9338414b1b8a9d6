"""Test of a cluster with `storage.local: true`: brokers use disks of the nodes and find their data again.

The manifests are those of examples/local-disks.yaml. The disk of each kind node is a folder.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import yaml

from e2e.brokers import NAMESPACE, stored
from e2e.errors import Failed
from e2e.images import ROOT
from e2e.kubernetes import Kubernetes

EXAMPLE = ROOT / "examples" / "local-disks.yaml"
SIZE = "4Gi"
"""Size of the volumes. Folders have no size of their own, so any sufficient value works."""
PATH = "/var/raptormq"
"""Folder of the disks, in /var because only this folder of a kind node is a volume."""
TOPIC = "kept"
MESSAGES = 1000


def manifests(nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of the example with one broker and one disk per node."""
    documents = [each for each in yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")) if each]
    (storage_class,) = (each for each in documents if each["kind"] == "StorageClass")
    disk = next(each for each in documents if each["kind"] == "PersistentVolume")
    (cluster,) = (each for each in documents if each["kind"] == "BrokerCluster")
    cluster["metadata"]["namespace"] = NAMESPACE
    cluster["spec"] |= {"groups": len(nodes), "nameServers": {"replicas": 1}}
    cluster["spec"]["storage"] |= {"size": SIZE, "whenDeleted": "Delete"}
    del cluster["spec"]["resources"]  # more memory than the nodes have
    topic = {
        "apiVersion": "raptormq.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": TOPIC, "namespace": NAMESPACE},
        "spec": {"clusterRef": {"name": cluster["metadata"]["name"]}},
    }
    return [storage_class, *(_on(disk, node) for node in nodes), cluster, topic]


def _on(disk: dict[str, Any], node: str) -> dict[str, Any]:
    made = copy.deepcopy(disk)
    made["metadata"]["name"] = f"raptormq-{node}"
    made["spec"] |= {"capacity": {"storage": SIZE}, "local": {"path": PATH}}
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = [node]
    return made


def serve(kubernetes: Kubernetes) -> None:
    """Check that the claims are bound to the disks, and that a replaced pod finds its data on its node."""
    nodes = kubernetes.nodes()
    objects = manifests(nodes)
    (cluster,) = (each["metadata"]["name"] for each in objects if each["kind"] == "BrokerCluster")
    disks = sorted(each["metadata"]["name"] for each in objects if each["kind"] == "PersistentVolume")
    for node in nodes:
        kubernetes.on_node(node, "mkdir", "-p", PATH)
    together = {"apiVersion": "v1", "kind": "List", "items": objects}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(together))
    resources = (f"topic/{TOPIC}", f"brokercluster/{cluster}")
    kubernetes.wait_ready(*resources, namespace=NAMESPACE, timeout=180)
    labels = f"app.kubernetes.io/component=broker,raptormq.io/cluster={cluster}"
    claims = kubernetes.get("pvc", "-n", NAMESPACE, "-l", labels)["items"]
    bound = sorted(claim["spec"]["volumeName"] for claim in claims)
    if bound != disks:
        raise Failed(f"the claims are bound to {bound}")
    before = _places(kubernetes, labels)
    if sorted(node for _, node in before.values()) != sorted(nodes):
        raise Failed(f"the brokers are not spread over {nodes}: {before}")
    count = _send(kubernetes, cluster)
    kubernetes.kubectl("delete", "pod", *before, "-n", NAMESPACE, "--timeout=90s", timeout=120)

    def back() -> bool:
        now = _places(kubernetes, labels)
        anew = now.keys() == before.keys() and all(now[pod][0] != before[pod][0] for pod in before)
        return anew and stored(kubernetes, cluster, TOPIC) == count

    kubernetes.wait_until(f"all {count} messages are there again", back, 180)
    if (now := _places(kubernetes, labels)) and any(now[pod][1] != node for pod, (_, node) in before.items()):
        raise Failed(f"brokers have moved to other nodes: {before} before, {now} afterwards")
    kubernetes.kubectl("delete", *resources, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    gone = partial(_has_no_claims, kubernetes, labels)
    kubernetes.wait_until("the claims are gone with the cluster", gone, 120)
    kubernetes.kubectl("delete", "pv", *bound, "--timeout=60s", timeout=90)


def _send(kubernetes: Kubernetes, cluster: str) -> int:
    """Send the messages. Return how many are stored, which may be more: a send without a timely answer is repeated."""
    command = ["raptormq", "produce", TOPIC, "--namesrv", f"{cluster}-namesrv:9876"]
    lines = "".join(f"{number}\n" for number in range(MESSAGES))
    kubernetes.kubectl("exec", "-i", "-n", NAMESPACE, f"{cluster}-broker-0-0-0", "--", *command, manifest=lines)
    if (count := stored(kubernetes, cluster, TOPIC)) < MESSAGES:
        raise Failed(f"{count} messages are stored, expected at least {MESSAGES}")
    return count


def _places(kubernetes: Kubernetes, labels: str) -> dict[str, tuple[str, str]]:
    """Return name -> uid and node of each broker's pod."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"].get("nodeName", ""))
        for pod in kubernetes.get("pods", "-n", NAMESPACE, "-l", labels)["items"]
    }


def _has_no_claims(kubernetes: Kubernetes, labels: str) -> bool:
    return not kubernetes.get("pvc", "-n", NAMESPACE, "-l", labels)["items"]
