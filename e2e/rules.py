"""What the API server itself must refuse: one case for each CEL rule, put to a real one.

The cluster that changes are tried on asks for what the operator refuses, so that nothing is made for it.
"""

from __future__ import annotations

import json
from typing import Any

from e2e.errors import Failed
from e2e.kubernetes import Kubernetes

Case = tuple[str, dict[str, Any], str]
"""Name of the resource, spec, and what the refusal says; "" when it is to be accepted."""

CLUSTERS: list[Case] = [
    ("demo", {}, ""),
    ("demo.x", {}, "DNS label"),
    ("1demo", {}, "DNS label"),
    ("demo", {"replicas": 2}, "keeps one copy"),
    ("demo", {"replicas": 1, "replication": {"mode": "masterSlave"}}, "replicas of 2 or more"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger"}}, ""),
    ("demo", {"replicas": 2, "replication": {"mode": "dledger"}}, "3 or 5"),
    ("demo", {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}, "requests.memory must not"),
    ("demo", {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}, "requests.cpu must not"),
    ("demo", {"resources": {"requests": {"memory": "1024Mi"}, "limits": {"memory": "1Gi"}}}, ""),
    ("demo", {"nameServers": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}}, "requests.cpu must not"),
    ("demo", {"resources": {"requests": {"cpu": "0.0005"}}}, "should match"),
    ("demo", {"resources": {"requests": {"cpu": 1000000}}}, "less than or equal to 999999"),
    ("demo", {"resources": {"requests": {"memory": -1}}}, "greater than or equal to 0"),
    ("demo", {"resources": {"requests": {"memory": "100m"}}}, "should match"),
    ("demo", {"resources": {"limits": {"memory": "9Ei"}}}, "should match"),
    ("demo", {"resources": {"limits": {"cpu": 1.5}}}, "Invalid value"),
    ("demo", {"resources": {"requests": {"cpu": "0.25", "memory": "1.5Gi"}, "limits": {"memory": 2147483648}}}, ""),
    ("demo", {"config": {"a b": "x"}}, "configuration key"),
    ("demo", {"config": {"a": "x\ny"}}, "should match"),
    ("demo", {"metrics": {"port": 10911}}, "must differ"),
    ("demo", {"metrics": {"enabled": False, "port": 10911}}, "must differ"),
    ("demo", {"metrics": {"port": 9876}}, "must differ"),
    ("demo", {"storage": {"size": "lots"}}, "should match"),
    ("demo", {"storage": {"size": "0Gi"}}, "must be above 0"),
    ("demo", {"storage": {"size": "1.0625Ti"}}, ""),
    ("demo", {"tls": {"secretName": "certificate", "clientAuth": "require"}}, ""),
    ("demo", {"tls": {"mode": "enforcing"}}, "secretName"),
    ("demo", {"tls": {"secretName": "certificate", "mode": "disabled"}}, "Unsupported value"),
    ("demo", {"accessControl": {"adminSecretName": "a"}}, ""),
    ("demo", {"accessControl": {"adminSecretName": "a", "operatorSecretName": "a"}}, "must differ"),
    ("demo", {"podTemplate": {"labels": {"raptormq.io/x": "y"}}}, "belong to the operator"),
    ("demo", {"podTemplate": {"annotations": {"raptormq.io/x": "y"}}}, "belong to the operator"),
    ("demo", {"scheduling": {"affinity": {"nodeAffinity": {}}}}, ""),
]
BASE: dict[str, Any] = {
    "groups": 2,
    "replicas": 3,
    "replication": {"mode": "dledger"},
    "accessControl": {"enabled": False},
}
CLUSTER_CHANGES: list[Case] = [
    ("rules", BASE | {"groups": 1}, "cannot shrink"),
    ("rules", BASE | {"groups": 3}, ""),
    ("rules", {key: value for key, value in BASE.items() if key != "accessControl"}, "accessControl cannot be removed"),
    ("rules", BASE | {"accessControl": {"adminSecretName": "a"}}, ""),
    ("rules", BASE | {"storage": {"size": "20Gi"}}, "cannot be changed"),
    ("rules", BASE | {"storage": {"storageClassName": "x"}}, "cannot be changed"),
    ("rules", BASE | {"storage": {"whenDeleted": "Delete"}}, ""),
    ("rules", BASE | {"replication": {"mode": "masterSlave"}}, "mode cannot be changed"),
]
TOPICS: list[Case] = [
    ("orders", {}, ""),
    ("orders", {"clusterRef": None}, "clusterRef"),
    ("orders.x", {}, "so spec.name is needed"),
    ("orders.x", {"name": "Orders_1"}, ""),
    ("orders", {"name": "TBW102"}, "belongs to the system"),
    ("orders", {"name": "rmq_sys_x"}, "belongs to the system"),
    ("orders", {"name": "rules"}, "cannot have the name of its cluster"),
    ("orders", {"name": "broker-0"}, "cannot have the name of its cluster or of a broker"),
    ("orders", {"name": "no spaces"}, "should match"),
    ("orders", {"readQueues": 8, "writeQueues": 9}, "must not exceed readQueues"),
    ("orders", {"readQueues": 4}, ""),
    ("orders", {"writeQueues": 16}, ""),
    ("orders", {"queueType": "BatchCQ"}, ""),
]
TOPIC_CHANGES: list[Case] = [
    ("rules-topic", {"clusterRef": {"name": "other"}}, "clusterRef cannot be changed"),
    ("rules-topic", {"name": "other"}, "name cannot be changed"),
    ("rules-topic", {"queueType": "BatchCQ"}, ""),
    ("rules-topic", {"readQueues": 16, "writeQueues": 16}, ""),
]


def check(kubernetes: Kubernetes, namespace: str) -> int:
    """Puts every case to the API server and returns their number."""
    base: list[tuple[str, str, dict[str, Any]]] = [("BrokerCluster", "rules", BASE), ("Topic", "rules-topic", {})]
    for kind, name, spec in base:
        kubernetes.kubectl("apply", "-f", "-", manifest=manifest(kind, namespace, name, spec))
    cases = [("BrokerCluster", case) for case in CLUSTERS + CLUSTER_CHANGES]
    cases += [("Topic", case) for case in TOPICS + TOPIC_CHANGES]
    for kind, (name, spec, refusal) in cases:
        said = answer(kubernetes, manifest(kind, namespace, name, spec))
        if (refusal not in said) if refusal else said:
            raise Failed(f"{kind} {name} {spec}: expected {refusal or 'no complaint'!r}, the API server said {said!r}")
    kubernetes.kubectl("delete", "brokercluster/rules", "topic/rules-topic", "-n", namespace)
    return len(cases)


def answer(kubernetes: Kubernetes, document: str) -> str:
    """What the API server has against a manifest; nothing when it would take it."""
    try:
        kubernetes.kubectl("apply", "--dry-run=server", "-f", "-", manifest=document)
    except Failed as error:
        return str(error)
    return ""


def manifest(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> str:
    """A resource as JSON; a Topic belongs to cluster `rules` unless its spec says otherwise."""
    if kind == "Topic":
        spec = {key: value for key, value in ({"clusterRef": {"name": "rules"}} | spec).items() if value is not None}
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
