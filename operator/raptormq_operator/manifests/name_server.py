"""StatefulSet of the name servers. They need no persistent volume, because brokers register again."""

from __future__ import annotations

from raptormq_operator.manifests import config, pod
from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster

_DNS_S = 5
"""Default cache time of CoreDNS for pod addresses, in seconds."""

_START_S = 60


def stateful_set(cluster: Cluster, *, authenticate: bool) -> Manifest:
    """Return the StatefulSet of all name servers. Kubernetes updates them one at a time."""
    name = names.name_server(cluster.name)
    labels = names.name_server_labels(cluster.name)
    annotations = pod.config_annotations(config.name_server_config(cluster, authenticate=authenticate))
    annotations |= pod.scrape_annotations(cluster)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(cluster, name, labels),
        "spec": {
            "replicas": cluster.name_servers.replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            # Gives every broker time to resolve the new address and to register, so that a rolling update never leaves
            # clients with name servers without routes.
            "minReadySeconds": config.registration_seconds(cluster) + _DNS_S,
            "selector": {"matchLabels": labels},
            "template": pod.template(cluster, labels, annotations, _pod_spec(cluster, authenticate=authenticate)),
        },
    }


def _pod_spec(cluster: Cluster, *, authenticate: bool) -> Manifest:
    servers = cluster.name_servers
    ports = {"remoting": names.NAME_SERVER_PORT, "metrics": cluster.metrics_port}
    container = pod.container(cluster, "namesrv", config.NAME_SERVER_FILE, servers.resources, ports)
    container["volumeMounts"].append({"name": "state", "mountPath": config.DATA_DIRECTORY})
    check = {"tcpSocket": {"port": "remoting"}, "periodSeconds": 5, "timeoutSeconds": 3}
    container |= {
        # A short period, so that a pod is ready within a second after it listens.
        "startupProbe": check | {"periodSeconds": 1, "failureThreshold": _START_S},
        "readinessProbe": check | {"failureThreshold": 2},
        "livenessProbe": check | {"failureThreshold": 6},
    }
    spec = pod.pod_spec(cluster, servers.scheduling, container, names.name_server(cluster.name))
    spec["volumes"].append({"name": "state", "emptyDir": {}})
    if authenticate:
        pod.add_access_secrets(cluster, spec)
    spec["topologySpreadConstraints"] = [pod.spread(names.name_server_labels(cluster.name), strictly=False)]
    return spec
