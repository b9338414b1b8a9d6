"""Common parts of the pods of brokers and name servers: security context, scheduling, volumes.

The pods comply with the `restricted` Pod Security Standard: no root user, no capabilities. The root file system is
read-only.
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
    """Return a pod template. Labels and annotations of the operator take precedence over the user's."""
    user = cluster.pod_template
    return {
        "metadata": {"labels": {**user.labels, **labels}, "annotations": {**user.annotations, **annotations}},
        "spec": spec,
    }


def pod_spec(cluster: Cluster, scheduling: Scheduling, container: Manifest, config_map: str) -> Manifest:
    """Return the spec of a pod with one container, its ConfigMap and a writable /tmp."""
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
    """Return the container of a pod. The entrypoint of the image takes `role` as its first argument."""
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
    """Mount the Secrets of access control into the container of a pod spec."""
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
    """Return whether a StatefulSet mounts the Secrets of access control. Brokers with these Secrets sign requests."""
    volumes = workload["spec"]["template"]["spec"].get("volumes", [])
    return any(volume["name"] == OPERATOR_KEYS for volume in volumes)


def spread(labels: Mapping[str, str], *, strictly: bool) -> Manifest:
    """Return a constraint that spreads pods over nodes, as a requirement (`strictly`) or a preference."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule" if strictly else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def apart(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> Manifest:
    """Return the user's affinity, and a preference for nodes without a pod that has these labels."""
    anti = affinity.get("podAntiAffinity", {})
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    preferred = [*anti.get(kind, ()), {"weight": 100, "podAffinityTerm": term}]
    return {**affinity, "podAntiAffinity": {**anti, kind: preferred}}


def together(affinity: Mapping[str, Any], labels: Mapping[str, str], slot: int) -> Manifest:
    """Return the user's affinity, and the requirement to share a node with the brokers of the same slot and with no
    broker of another slot. `labels` are the labels of all brokers.

    The scheduler places the first pod of a slot although no pod matches its affinity yet. Anti-affinity between members
    alone could place two masters on one node, or leave the last pods without a node.
    """
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    result = dict(affinity)
    for name, operator in (("podAffinity", "In"), ("podAntiAffinity", "NotIn")):
        given = affinity.get(name, {})
        expression = {"key": names.SLOT_LABEL, "operator": operator, "values": [str(slot)]}
        selector = {"matchLabels": dict(labels), "matchExpressions": [expression]}
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        result[name] = {**given, kind: [*given.get(kind, ()), term]}
    return result


def config_annotations(config_map: Manifest) -> dict[str, str]:
    """Return an annotation with the hash of a ConfigMap, so that a configuration change updates the pods."""
    return {names.CONFIG_HASH_ANNOTATION: digest(config_map["data"])}


def scrape_annotations(cluster: Cluster) -> dict[str, str]:
    """Return the annotations for Prometheus scraping; empty if metrics are disabled."""
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
