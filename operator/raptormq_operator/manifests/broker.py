"""StatefulSet of one broker. Each member has its own, of one pod: it is rolled, placed and lost alone.

The pod is found under `<statefulset>-0.<group service>`, its volume claim is `store-<statefulset>-0`; both names
are the same for ever, so a broker that comes back finds its store and its clients find it.
"""

from __future__ import annotations

from raptormq_operator.manifests import config, pod
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member

MAX_START_S = 1800
"""Recovery reads the log after a crash; a broker that needs longer than this is restarted."""
START_PERIOD_S = 2


def stateful_set(cluster: Cluster, member: Member) -> Manifest:
    """StatefulSet of a member; its template changes whenever its ConfigMap does."""
    labels = names.broker_labels(cluster.name, member.group, member.index)
    annotations = pod.config_annotations(config.broker_config(cluster, member)) | pod.scrape_annotations(cluster)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(cluster, member.name, labels),
        "spec": {
            "replicas": 1,
            "serviceName": names.group_service(cluster.name, member.group),
            # Parallel, because an ordered set never replaces a pod that does not become ready.
            "podManagementPolicy": "Parallel",
            # The operator evicts the pod in its turn: so the disruption budget counts rolls and drains as one.
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": cluster.storage.when_deleted,
                "whenScaled": "Retain",
            },
            "template": pod.template(cluster, labels, annotations, _pod_spec(cluster, member)),
            "volumeClaimTemplates": [_claim(cluster)],
        },
    }


def _pod_spec(cluster: Cluster, member: Member) -> Manifest:
    ports = {"remoting": names.BROKER_PORT, "metrics": cluster.metrics_port}
    container = pod.container(cluster, "broker", config.BROKER_FILE, cluster.resources, ports)
    container["volumeMounts"].append({"name": "store", "mountPath": config.DATA_DIRECTORY})
    container |= {
        "startupProbe": _probe("/healthz", START_PERIOD_S, MAX_START_S // START_PERIOD_S),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=2),
    }
    spec = pod.pod_spec(cluster, cluster.scheduling, container, member.name)
    if cluster.authenticates:
        pod.add_access_secrets(cluster, spec)
    spec["topologySpreadConstraints"] = [pod.spread(names.broker_labels(cluster.name), strictly=cluster.storage.local)]
    return spec


def _probe(path: str, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _claim(cluster: Cluster) -> Manifest:
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": cluster.storage.size}},
    }
    if cluster.storage.storage_class_name is not None:
        spec["storageClassName"] = cluster.storage.storage_class_name
    return {"metadata": {"name": "store"}, "spec": spec}
