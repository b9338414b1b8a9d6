"""Test of the CEL rules against a real API server, with one case per rule.

The clusters for update rules have a key that the operator rejects, so that no objects are created for them.
"""

from __future__ import annotations

import json
from typing import Any

from e2e.errors import Failed
from e2e.kubernetes import Kubernetes

Case = tuple[str, dict[str, Any], str]
"""Name of the resource, its spec, and a part of the expected error, "" if the spec must be accepted."""

PAIR = {"mode": "masterSlave"}
INTERLEAVED = PAIR | {"layout": "Interleaved"}
ENFORCING = {"secretName": "certificate", "mode": "enforcing"}
DENIED = {"brokerId": "0"}
NETWORK = {"haSlaveAddresses": "10.244.0.0/16"}

CLUSTERS: list[Case] = [
    ("demo", {}, ""),
    ("demo.x", {}, "DNS label"),
    ("1demo", {}, "DNS label"),
    ("demo", {"replicas": 2}, "keeps one copy"),
    ("demo", {"replicas": 1, "replication": {"mode": "masterSlave"}}, "replicas of 2 or more"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger"}}, ""),
    ("demo", {"replicas": 2, "replication": {"mode": "dledger"}}, "3 or 5"),
    ("demo", {"replicas": 4, "replication": {"mode": "dledger"}}, "3 or 5"),
    ("demo", {"replicas": 2, "replication": {"mode": "masterSlave", "acknowledge": "SYNC"}}, ""),
    ("demo", {"replicas": 2, "replication": {"mode": "masterSlave", "acknowledge": "LATER"}}, "Unsupported value"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger", "acknowledge": "SYNC"}}, "acknowledge needs"),
    ("demo", {"replication": {"acknowledge": "ASYNC"}}, "acknowledge needs"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger", "leaderPlacement": "Keep"}}, ""),
    ("demo", {"replicas": 2, "replication": {"mode": "masterSlave", "leaderPlacement": "Keep"}}, "leaderPlacement"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger", "promote": "demo-broker-0-1"}}, "promote needs"),
    ("demo", {"groups": 3, "replicas": 3, "replication": {"mode": "dledger", "layout": "Interleaved"}}, "Interleaved"),
    ("demo", {"replication": {"layout": "Interleaved"}}, "layout Interleaved needs"),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger", "layout": "Spread"}}, ""),
    ("demo", {"replicas": 2, "groups": 1, "replication": INTERLEAVED}, "at least as many groups as replicas"),
    ("demo", {"replicas": 2, "groups": 3, "replication": INTERLEAVED}, ""),
    ("demo", {"replicas": 2, "replication": PAIR, "accessControl": {}}, "needs config.haSlaveAddresses"),
    ("demo", {"replicas": 2, "replication": PAIR, "accessControl": {"enabled": False}}, ""),
    ("demo", {"replicas": 2, "replication": PAIR, "tls": ENFORCING}, "needs config.haSlaveAddresses"),
    ("demo", {"replicas": 2, "replication": PAIR, "tls": ENFORCING, "config": NETWORK}, ""),
    ("demo", {"replicas": 3, "replication": {"mode": "dledger", "layout": "Stacked"}}, "Unsupported value"),
    ("demo", {"replicas": 2, "replication": {"mode": "masterSlave", "promote": "demo-broker-0-1"}}, ""),
    ("demo", {"replicas": 2, "replication": {"mode": "masterSlave", "promote": "Demo_1"}}, "should match"),
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
    ("demo", {"metrics": {"port": 10913}}, "must differ"),
    ("demo", {"storage": {"size": "lots"}}, "should match"),
    ("demo", {"storage": {"size": "0Gi"}}, "must be above 0"),
    ("demo", {"storage": {"size": "7.9Ei"}}, "must be at most 1Pi"),
    ("demo", {"storage": {"size": "1.1Pi"}}, "must be at most 1Pi"),
    ("demo", {"storage": {"size": "1Pi"}}, ""),
    ("demo", {"resources": {"limits": {"memory": "4Mi"}}}, "must be at least 64Mi"),
    ("demo", {"resources": {"limits": {"memory": 67108863}}}, "must be at least 64Mi"),
    ("demo", {"resources": {"limits": {"memory": "64Mi"}}}, ""),
    ("demo", {"nameServers": {"resources": {"limits": {"memory": "4Mi"}}}}, "must be at least 64Mi"),
    ("demo", {"podTemplate": {"labels": {"controller-revision-hash": "x"}}}, "cannot be set"),
    ("demo", {"podTemplate": {"labels": {"apps.kubernetes.io/pod-index": "0"}}}, "cannot be set"),
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
    "config": DENIED,
}
CLUSTER_CHANGES: list[Case] = [
    ("rules", BASE | {"groups": 1}, "cannot shrink"),
    ("rules", BASE | {"groups": 3}, ""),
    ("rules", {key: value for key, value in BASE.items() if key != "accessControl"}, "accessControl cannot be removed"),
    ("rules", BASE | {"accessControl": {"adminSecretName": "a"}}, ""),
    ("rules", BASE | {"storage": {"size": "20Gi"}}, "cannot be changed"),
    ("rules", BASE | {"storage": {"storageClassName": "x"}}, "cannot be changed"),
    ("rules", BASE | {"storage": {"whenDeleted": "Delete"}}, ""),
    ("rules", BASE | {"replication": {"mode": "masterSlave"}}, "can only be changed from none to dledger"),
    ("rules", BASE | {"replication": {"mode": "none"}, "replicas": 1}, "can only be changed from none to dledger"),
    ("rules", BASE | {"replicas": 5}, ""),
    ("rules", BASE | {"replicas": 4}, "replicas of 3 or 5"),
    ("rules", BASE | {"replicas": 1}, "replicas of 3 or 5"),
]
PAIRS: dict[str, Any] = {
    "groups": 3,
    "replicas": 3,
    "replication": INTERLEAVED,
    "accessControl": {"enabled": False},
    "config": DENIED,
}
PAIR_CHANGES: list[Case] = [
    ("rules-pairs", PAIRS | {"replicas": 2}, "replicas cannot shrink"),
    ("rules-pairs", PAIRS | {"groups": 4}, "groups cannot be changed with replication.layout Interleaved"),
    ("rules-pairs", PAIRS | {"replication": PAIR}, "replication.layout cannot be changed"),
    ("rules-pairs", PAIRS | {"replication": {"mode": "dledger"}}, "can only be changed from none to dledger"),
    ("rules-pairs", PAIRS | {"replication": INTERLEAVED | {"acknowledge": "SYNC"}}, ""),
    ("rules-pairs", PAIRS | {"replication": INTERLEAVED | {"promote": "rules-pairs-broker-0-1"}}, ""),
    ("rules-pairs", PAIRS | {"accessControl": {"enabled": True}}, "needs config.haSlaveAddresses"),
]
TOPICS: list[Case] = [
    ("orders", {}, ""),
    ("orders", {"clusterRef": None}, "clusterRef"),
    ("orders.x", {}, "so spec.name is required"),
    ("orders.x", {"name": "Orders_1"}, ""),
    ("orders", {"name": "TBW102"}, "is reserved for a system topic"),
    ("orders", {"name": "rmq_sys_x"}, "is reserved for a system topic"),
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
PIPELINE: dict[str, Any] = {
    "clusterRef": {"name": "rules"},
    "topics": ["flights"],
    "image": "raptormq-spark:e2e",
    "application": {"file": "/opt/examples/spark_route_delays.py"},
    "sparkConf": {"spark.executor.instances": "1"},
}
"""Spec of a pipeline with a property that the operator rejects, so that no objects are created for it."""
SECRET_VARIABLE: dict[str, Any] = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}
VOLUME: dict[str, Any] = {"name": "data", "configMap": {"name": "data"}}
PIPELINES: list[Case] = [
    ("delays", {}, ""),
    ("Delays", {}, "RFC 1123"),
    ("1delays", {}, "starts with a letter"),
    ("a" * 41, {}, "at most 40 characters"),
    ("delays", {"topics": []}, "at least 1 items"),
    ("delays", {"application": {}}, "exactly one of file, configMap and url"),
    ("delays", {"application": {"file": "/a.py", "url": "https://x/a.py"}}, "exactly one of file, configMap and url"),
    ("delays", {"application": {"file": "a.py"}}, "should match"),
    ("delays", {"application": {"url": "https://example.org/a.py"}}, ""),
    ("delays", {"application": {"configMap": {"name": "app"}}}, ""),
    ("delays", {"sparkConf": {"spark.a": "x\ny"}}, "should match"),
    ("delays", {"sparkConf": {"hadoop.a": "x"}}, "a property of Spark starts with"),
    ("delays", {"driver": {"memory": "900Mi"}}, "driver.memory must be at least 960Mi"),
    ("delays", {"executors": {"memory": "512Mi"}}, "executors.memory must be at least 960Mi"),
    ("delays", {"executors": {"min": 3, "max": 2}}, "must not be less than executors.min"),
    ("delays", {"executors": {"min": 2, "max": 2}}, ""),
    ("delays", {"runBy": "SparkKubernetesOperator"}, ""),
    ("delays", {"stateful": True}, "set checkpoint.accessMode to ReadWriteMany"),
    ("delays", {"stateful": True, "executors": {"onDriverNode": True}}, ""),
    ("delays", {"stateful": True, "checkpoint": {"accessMode": "ReadWriteMany"}}, ""),
    ("delays", {"stateful": True, "checkpoint": {"claimName": "mine"}}, ""),
    ("delays", {"checkpoint": {"claimName": "mine", "storageClassName": "fast"}}, "has no effect"),
    ("delays", {"checkpoint": {"folder": "../other"}}, "should match"),
    ("delays", {"restartPolicy": {"backoffSeconds": 20, "maxBackoffSeconds": 10}}, "must not be less than"),
    ("delays", {"restartPolicy": {"type": "Sometimes"}}, "Unsupported value"),
    ("delays", {"suspend": True}, ""),
    ("delays", {"topicPattern": "flights.*"}, "set exactly one of topics and topicPattern"),
    ("delays", {"topics": None, "topicPattern": "flights.*"}, ""),
    ("delays", {"topics": None}, "set exactly one of topics and topicPattern"),
    ("delays", {"nodeSelector": {"disk": "ssd"}}, ""),
    ("delays", {"nodeSelector": {"disk": "ssd"}, "scheduling": {"priorityClassName": "low"}}, ""),
    (
        "delays",
        {"nodeSelector": {"disk": "ssd"}, "scheduling": {"nodeSelector": {"disk": "hdd"}}},
        "set nodeSelector or scheduling.nodeSelector, not both",
    ),
    (
        "delays",
        {"tolerations": [{"key": "a"}], "scheduling": {"tolerations": [{"key": "b"}]}},
        "set tolerations or scheduling.tolerations, not both",
    ),
    ("delays", {"env": [{"name": "A", "value": "1"}, SECRET_VARIABLE]}, ""),
    ("delays", {"env": [{"name": "A=B", "value": "1"}]}, "should match"),
    ("delays", {"env": [{"name": "RAPTORMQ_TOPICS", "value": "a"}]}, "a variable that the operator sets"),
    ("delays", {"env": [SECRET_VARIABLE | {"value": "1"}]}, "a variable has value or valueFrom, not both"),
    ("delays", {"env": [{"name": "A", "valueFrom": {}}]}, "exactly one of secretKeyRef and configMapKeyRef"),
    ("delays", {"volumes": [VOLUME], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}, ""),
    ("delays", {"volumes": [VOLUME | {"emptyDir": {}}]}, "exactly one of secret, configMap, persistentVolumeClaim"),
    ("delays", {"volumes": [VOLUME | {"name": "tmp"}]}, "the operator has volumes with the names"),
    ("delays", {"volumes": [{"name": "data", "secret": {}}]}, "secretName"),
    (
        "delays",
        {"volumes": [VOLUME], "volumeMounts": [{"name": "date", "mountPath": "/data"}]},
        "a mount of a volume that is not in volumes",
    ),
    ("delays", {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, "that is not in volumes"),
    ("delays", {"volumes": [VOLUME], "volumeMounts": [{"name": "data", "mountPath": "data"}]}, "should match"),
    ("delays", {"pyFiles": ["/opt/a.py", "https://example.org/a.zip", "s3a://bucket/b.zip"]}, ""),
    ("delays", {"pyFiles": ["a.py"]}, "should match"),
    ("delays", {"pyFiles": ["/a.py,/b.py"]}, "should match"),
    ("delays", {"pyFiles": ["local:///a.py"]}, "an absolute path instead of a local or file URL"),
    ("delays", {"runBy": "SparkKubernetesOperator", "pyFiles": ["/a.py"]}, "pyFiles needs URLs"),
    ("delays", {"runBy": "SparkKubernetesOperator", "pyFiles": ["https://example.org/a.py"]}, ""),
    ("delays", {"serviceAccountName": "spark"}, ""),
    ("delays", {"serviceAccountName": "Spark!"}, "should match"),
    ("delays", {"driver": {"cpu": "500m", "cpuLimit": "1"}, "executors": {"cpuLimit": "1.5"}}, ""),
    ("delays", {"driver": {"cpu": "500m", "cpuLimit": "400m"}}, "driver.cpuLimit must not be less than driver.cpu"),
    ("delays", {"executors": {"cpuLimit": "0.4"}}, "executors.cpuLimit must not be less than executors.cpu"),
]
PIPELINE_CHANGES: list[Case] = [
    ("rules-pipeline", {"runBy": "SparkKubernetesOperator"}, "runBy cannot be changed"),
    ("rules-pipeline", {"checkpoint": {"accessMode": "ReadWriteMany"}}, "accessMode cannot be changed"),
    ("rules-pipeline", {"checkpoint": {"storageClassName": "fast"}}, "storageClassName cannot be changed"),
    ("rules-pipeline", {"executors": {"min": 2}, "checkpoint": {"size": "2Gi"}}, ""),
    ("rules-pipeline", {"suspend": True}, ""),
]


BASES: list[tuple[str, str, dict[str, Any]]] = [
    ("BrokerCluster", "rules", BASE),
    ("BrokerCluster", "rules-pairs", PAIRS),
    ("Topic", "rules-topic", {}),
    ("SparkPipeline", "rules-pipeline", {}),
]
"""Kind, name and spec of the resources for the update rules."""
CASES = [("BrokerCluster", case) for case in CLUSTERS + CLUSTER_CHANGES + PAIR_CHANGES]
CASES += [("Topic", case) for case in TOPICS + TOPIC_CHANGES]
CASES += [("SparkPipeline", case) for case in PIPELINES + PIPELINE_CHANGES]


def check(kubernetes: Kubernetes, namespace: str) -> int:
    """Submit every case to the API server. Return the number of cases."""
    for kind, name, spec in BASES:
        kubernetes.kubectl("apply", "-f", "-", manifest=manifest(kind, namespace, name, spec))
    for kind, (name, spec, refusal) in CASES:
        said = answer(kubernetes, manifest(kind, namespace, name, spec))
        if (refusal not in said) if refusal else said:
            raise Failed(f"{kind} {name} {spec}: expected {refusal or 'no complaint'!r}, the API server said {said!r}")
    kubernetes.kubectl("delete", *(f"{kind.lower()}/{name}" for kind, name, _ in BASES), "-n", namespace)
    return len(CASES)


def answer(kubernetes: Kubernetes, document: str) -> str:
    """Return the API server's error for a manifest; empty if it is accepted."""
    try:
        kubernetes.kubectl("apply", "--dry-run=server", "-f", "-", manifest=document)
    except Failed as error:
        return str(error)
    return ""


def manifest(kind: str, namespace: str, name: str, spec: dict[str, Any]) -> str:
    """Return a resource as JSON. The default cluster of a Topic is `rules`, the default pipeline `PIPELINE`."""
    if kind == "Topic":
        spec = {key: value for key, value in ({"clusterRef": {"name": "rules"}} | spec).items() if value is not None}
    elif kind == "SparkPipeline":
        spec = {key: value for key, value in (PIPELINE | spec).items() if value is not None}
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
