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
from raptormq_operator.model.cluster import AccessControl, Cluster, Scheduling, Tls
from raptormq_operator.model.peer_security import PeerSecurity

USER_ID = 10001
ADMIN_KEYS, OPERATOR_KEYS = "admin-keys", "operator-keys"
TLS_SECRET = "tls"
"""Names of the volumes with Secrets."""
"""Volume of the operator's Secret."""
_REQUIRED, _PREFERRED = (f"{strength}DuringSchedulingIgnoredDuringExecution" for strength in ("required", "preferred"))
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
        spec["volumes"].append({"name": TLS_SECRET, "secret": secret})
    if cluster.image.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in cluster.image.pull_secrets]
    return spec | scheduling_fields(scheduling)


def container(
    cluster: Cluster, role: str, file: str, resources: Mapping[str, Any], ports: Mapping[str, int]
) -> Manifest:
    """Return the container of a pod. The entrypoint of the image takes `role` as its first argument."""
    mounts: list[Manifest] = [
        {"name": "config", "mountPath": config.CONFIG_DIRECTORY, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    if cluster.tls is not None:
        mounts.append({"name": TLS_SECRET, "mountPath": config.TLS_DIRECTORY, "readOnly": True})
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
        (ADMIN_KEYS, access.admin_secret, config.ADMIN_DIRECTORY),
        (OPERATOR_KEYS, access.operator_secret, config.OPERATOR_DIRECTORY),
    )
    (container,) = spec["containers"]
    for name, secret, directory in mounts:
        spec["volumes"].append({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}})
        container["volumeMounts"].append({"name": name, "mountPath": directory, "readOnly": True})


def runs_config(workload: Manifest, config_map: Manifest) -> bool:
    """Return whether the pod template of a StatefulSet belongs to the contents of its ConfigMap."""
    annotations = workload["spec"]["template"]["metadata"].get("annotations", {})
    return bool(annotations.get(names.CONFIG_HASH_ANNOTATION) == digest(config_map.get("data", {})))


def security_of(workload: Manifest, config_map: Manifest, file: str) -> PeerSecurity:
    """Return the settings of access control and TLS of a StatefulSet's pods, from its volumes and its ConfigMap."""
    settings = config.settings_in(config_map, file)
    volumes = workload["spec"]["template"]["spec"].get("volumes", [])
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in volumes if "secret" in volume}
    tls = access = None
    if TLS_SECRET in secrets:
        tls = Tls(
            secrets[TLS_SECRET],
            settings.get("tls.server.mode", "permissive"),
            settings.get("tls.server.need.client.auth", "none"),
        )
    if OPERATOR_KEYS in secrets:
        authorization = settings.get("authorizationEnabled") == "true"
        access = AccessControl(True, authorization, secrets[ADMIN_KEYS], secrets[OPERATOR_KEYS])
    return PeerSecurity(tls, access, settings.get(config.PEER_TRANSITION_KEY) == "true")


def spread(labels: Mapping[str, str], *, strictly: bool) -> Manifest:
    """Return a constraint that spreads pods over nodes, as a requirement (`strictly`) or a preference."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule" if strictly else "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def apart(affinity: Mapping[str, Any], selector: Manifest, weight: int) -> Manifest:
    """Return the affinity with a preference for nodes without a pod that the label selector matches."""
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return _with_term(affinity, "podAntiAffinity", _PREFERRED, {"weight": weight, "podAffinityTerm": term})


def beside(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> Manifest:
    """Return the user's affinity, and the requirement to run on the node of a pod that has these labels."""
    term = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": "kubernetes.io/hostname"}
    return _with_term(affinity, "podAffinity", _REQUIRED, term)


def other_slots(labels: Mapping[str, str], slot: int) -> Manifest:
    """Return the selector of the pods with these labels that have another slot."""
    expressions = [
        {"key": names.SLOT_LABEL, "operator": "Exists"},
        {"key": names.SLOT_LABEL, "operator": "NotIn", "values": [str(slot)]},
    ]
    return {"matchLabels": dict(labels), "matchExpressions": expressions}


def together(affinity: Mapping[str, Any], labels: Mapping[str, str], slot: int) -> Manifest:
    """Return the user's affinity, and the requirement to share a node with the brokers of the same slot and with no
    broker of another slot. `labels` are the labels of all brokers.

    The scheduler places the first pod of a slot although no pod matches its affinity yet. Anti-affinity between members
    alone could place two masters on one node, or leave the last pods without a node.
    """
    result = dict(affinity)
    for name, operator in (("podAffinity", "In"), ("podAntiAffinity", "NotIn")):
        expression = {"key": names.SLOT_LABEL, "operator": operator, "values": [str(slot)]}
        selector = {"matchLabels": dict(labels), "matchExpressions": [expression]}
        term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        result = _with_term(result, name, _REQUIRED, term)
    return result


def _with_term(affinity: Mapping[str, Any], name: str, kind: str, term: Manifest) -> Manifest:
    """Return the affinity with one more term in a list of `podAffinity` or `podAntiAffinity`."""
    given = affinity.get(name, {})
    return {**affinity, name: {**given, kind: [*given.get(kind, ()), term]}}


def config_annotations(config_map: Manifest) -> dict[str, str]:
    """Return an annotation with the hash of a ConfigMap, so that a configuration change updates the pods."""
    return {names.CONFIG_HASH_ANNOTATION: digest(config_map["data"])}


def scrape_annotations(cluster: Cluster) -> dict[str, str]:
    """Return the annotations for Prometheus scraping; empty if metrics are disabled."""
    if not cluster.metrics_enabled:
        return {}
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(cluster.metrics_port)}


def scheduling_fields(scheduling: Scheduling) -> Manifest:
    """Return the fields of a pod spec for scheduling constraints."""
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
