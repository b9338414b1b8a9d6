"""What the pods of brokers and name servers have in common: the restricted security context, scheduling, volumes.

The containers fit the `restricted` Pod Security Standard: not root, no capability, read-only root file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raptormq_operator.manifests import config
from raptormq_operator.manifests.metadata import Manifest, digest
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Scheduling

USER_ID = 10001
OPERATOR_KEYS = "operator-keys"
"""Volume of the operator's Secret."""
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def template(cluster: Cluster, labels: Mapping[str, str], annotations: Mapping[str, str], spec: Manifest) -> Manifest:
    """Pod template: the user's labels and annotations never replace ours."""
    user = cluster.pod_template
    return {
        "metadata": {"labels": {**user.labels, **labels}, "annotations": {**user.annotations, **annotations}},
        "spec": spec,
    }


def pod_spec(cluster: Cluster, scheduling: Scheduling, container: Manifest, config_map: str) -> Manifest:
    """Pod with one container that finds its configuration and a writable /tmp."""
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": cluster.pod_template.termination_grace_period_seconds,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": config_map}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if cluster.tls is not None:
        secret = {"secretName": cluster.tls.secret_name, "defaultMode": 0o440}
        spec["volumes"].append({"name": "tls", "secret": secret})
    if cluster.image.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in cluster.image.pull_secrets]
    return spec | _scheduling(scheduling)


def container(
    cluster: Cluster, role: str, file: str, resources: Mapping[str, Any], ports: Mapping[str, int]
) -> Manifest:
    """The one container of a pod; the image's entrypoint takes `role` as its first argument."""
    mounts: list[Manifest] = [
        {"name": "config", "mountPath": config.CONFIG_DIRECTORY, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if cluster.tls is not None:
        mounts.append({"name": "tls", "mountPath": config.TLS_DIRECTORY, "readOnly": True})
    return {
        "name": role,
        "image": cluster.image.reference,
        "imagePullPolicy": cluster.image.pull_policy,
        "args": [role, "-c", f"{config.CONFIG_DIRECTORY}/{file}"],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "resources": dict(resources),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def add_access_secrets(cluster: Cluster, spec: Manifest) -> None:
    """Mounts the Secrets of access control into the one container of a pod spec."""
    access = cluster.access_control
    assert access is not None
    mounts = (
        ("admin-keys", access.admin_secret, config.ADMIN_DIRECTORY),
        (OPERATOR_KEYS, access.operator_secret, config.OPERATOR_DIRECTORY),
    )
    (container,) = spec["containers"]
    for name, secret, directory in mounts:
        spec["volumes"].append({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}})
        container["volumeMounts"].append({"name": name, "mountPath": directory, "readOnly": True})


def has_access_secrets(workload: Manifest) -> bool:
    """Whether the pods of a StatefulSet have the Secrets of access control: brokers sign with them."""
    volumes = workload["spec"]["template"]["spec"].get("volumes", [])
    return any(volume["name"] == OPERATOR_KEYS for volume in volumes)


def spread(labels: Mapping[str, str], *, strictly: bool) -> Manifest:
    """Evenly over nodes: always where it must be, else where it can be."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule" if strictly else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def config_annotations(config_map: Manifest) -> dict[str, str]:
    """Changes with the configuration, and so rolls the pod when the configuration changes."""
    return {names.CONFIG_HASH_ANNOTATION: digest(config_map["data"])}


def scrape_annotations(cluster: Cluster) -> dict[str, str]:
    """By which Prometheus finds the metrics of a pod, unless that is not wanted."""
    if not cluster.metrics_enabled:
        return {}
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(cluster.metrics_port)}


def _scheduling(scheduling: Scheduling) -> Manifest:
    spec: Manifest = {}
    if scheduling.node_selector:
        spec["nodeSelector"] = dict(scheduling.node_selector)
    if scheduling.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in scheduling.tolerations]
    if scheduling.affinity:
        spec["affinity"] = dict(scheduling.affinity)
    if scheduling.priority_class_name:
        spec["priorityClassName"] = scheduling.priority_class_name
    return spec
