"""StatefulSet of one broker. Each member has its own StatefulSet with one pod, so that brokers are updated
independently.

The pod's DNS name is `<statefulset>-0.<group service>`, its volume claim is `store-<statefulset>-0`. Both names are
stable: a restarted broker finds its store, and clients find the broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from raptormq_operator.manifests import config, pod, services
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster, Member

MAX_START_S = 1800
"""Time limit of the startup probe in seconds. After a crash, recovery scans the commit log before the broker serves."""
START_PERIOD_S = 2
NAME_CACHES_S = 35
"""Time in seconds for which clients may use the address of a replaced pod: the JVM caches it for 30 s
(`networkaddress.cache.ttl`), CoreDNS for 5 s. A faster rolling update could leave a client without a reachable broker.
"""


APART, ROTATED, SAME_SLOT = 100, 20, 2
"""Weights of the preferences for nodes without a pod of the same group, without members with the same index, and
without members of another slot. The first one decides, because it protects messages. With a second one close to it, the
scheduler of Kubernetes 1.34 spreads the pods of three members less evenly over four nodes. The third one decides
between nodes that are otherwise equal, so that the last member of a group finds a node without its index.
"""


def stateful_set(cluster: Cluster, member: Member, slot: int | None) -> Manifest:
    """Return the StatefulSet of a member. A change of its ConfigMap changes the pod template, through a hash. `slot` is
    the slot of the pod, if it has one (`slots`).
    """
    labels = names.broker_labels(cluster.name, member.group, member.index)
    annotations = pod.config_annotations(config.broker_config(cluster, member)) | pod.scrape_annotations(cluster)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(cluster, member.name, labels),
        "spec": {
            "replicas": 1,
            "serviceName": names.group_service(cluster.name, member.group),
            # With OrderedReady, a pod that does not become ready is never replaced.
            "podManagementPolicy": "Parallel",
            "minReadySeconds": NAME_CACHES_S,
            # The operator evicts the pod. The disruption budget then covers rolling updates and node drains.
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": cluster.storage.when_deleted,
                "whenScaled": "Retain",
            },
            "template": pod.template(
                cluster, labels | _slot_label(slot), annotations, _pod_spec(cluster, member, slot)
            ),
            "volumeClaimTemplates": [_claim(cluster)],
        },
    }


def slots(cluster: Cluster, workloads: Mapping[str, Manifest]) -> dict[str, int | None]:
    """Return the slot of the pod of each member, by name of the StatefulSet; None for a pod without one.

    In the interleaved layout a slot is a node. The members of other groups are rotated over the slots, so that the
    members with the same index run on different nodes. There a slot is only a preference, and belongs to the pod
    template: StatefulSets that exist (`workloads`, by name) keep theirs, or their lack of one, because each change
    would restart the pods of clusters from before, and of clusters whose number of replicas changes.
    """
    found: dict[str, int | None] = {}
    for member in cluster.members:
        fixed = cluster.slot(member)
        if fixed is not None or not cluster.is_replicated:
            found[member.name] = fixed
        elif member.name in workloads:
            label = workloads[member.name]["spec"]["template"]["metadata"]["labels"].get(names.SLOT_LABEL, "")
            found[member.name] = int(label) if label.isdecimal() else None
        else:
            found[member.name] = (member.group + member.index) % cluster.replicas
    return found


def _slot_label(slot: int | None) -> dict[str, str]:
    """Return the label of the pod's slot. It is not part of the selector, because the selector of a StatefulSet cannot
    be changed.
    """
    return {} if slot is None else {names.SLOT_LABEL: str(slot)}


def _pod_spec(cluster: Cluster, member: Member, slot: int | None) -> Manifest:
    ports = {"remoting": names.BROKER_PORT, "metrics": cluster.metrics_port, **services.replication_ports(cluster)}
    if cluster.is_dledger:
        ports["leader"] = names.LEADER_PORT
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
    everybody = names.broker_labels(cluster.name)
    if slot is not None and cluster.slot(member) is not None:
        # No additional spread constraint: with more nodes than slots, a strict one would prevent brokers from sharing a
        # node.
        spec["affinity"] = pod.together(spec.get("affinity", {}), everybody, slot)
        return spec
    spec["topologySpreadConstraints"] = [pod.spread(everybody, strictly=cluster.storage.local)]
    if cluster.is_replicated:
        # A group survives the loss of one node only if each member has its own node. As a requirement, this would
        # prevent a cluster with fewer nodes from starting, so it is a preference.
        group = {"matchLabels": names.broker_labels(cluster.name, member.group)}
        spec["affinity"] = pod.apart(spec.get("affinity", {}), group, APART)
    if slot is not None:
        same_index = {"matchLabels": {**everybody, names.MEMBER_LABEL: str(member.index)}}
        spec["affinity"] = pod.apart(spec["affinity"], same_index, ROTATED)
        spec["affinity"] = pod.apart(spec["affinity"], pod.other_slots(everybody, slot), SAME_SLOT)
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
