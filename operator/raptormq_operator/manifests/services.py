"""Headless Services, which give pods DNS names that outlive them, and disruption budgets.

Addresses are published before a pod is ready: a broker must reach its own name, and a client that resolves the name
of a starting broker gets a connection refused, which it retries, and not an unknown host, which resolvers cache.
"""

from __future__ import annotations

from raptormq_operator.manifests.metadata import Manifest, metadata
from raptormq_operator.model import names
from raptormq_operator.model.cluster import Cluster


def name_server_service(cluster: Cluster) -> Manifest:
    """Headless Service of the name servers."""
    labels = names.name_server_labels(cluster.name)
    ports = [("remoting", names.NAME_SERVER_PORT), ("metrics", cluster.metrics_port)]
    return _headless(cluster, names.name_server(cluster.name), labels, ports)


def group_service(cluster: Cluster, group: int) -> Manifest:
    """Headless Service of a broker group."""
    labels = names.broker_labels(cluster.name, group)
    ports = [("remoting", names.BROKER_PORT), ("metrics", cluster.metrics_port)]
    return _headless(cluster, names.group_service(cluster.name, group), labels, ports)


def name_server_budget(cluster: Cluster) -> Manifest:
    """At most one name server is evicted at a time."""
    return _budget(cluster, names.name_server(cluster.name), names.name_server_labels(cluster.name))


def broker_budgets(cluster: Cluster) -> list[Manifest]:
    """At most one broker of what a client can miss is evicted at a time: one of the cluster where each group has a
    single copy, since a drain would take all groups at once otherwise; one of each group where groups are replicated.
    """
    if cluster.replication_mode == "none":
        return [_budget(cluster, names.brokers(cluster.name), names.broker_labels(cluster.name))]
    return [
        _budget(cluster, names.group_service(cluster.name, group), names.broker_labels(cluster.name, group))
        for group in range(cluster.groups)
    ]


def _headless(cluster: Cluster, name: str, labels: dict[str, str], ports: list[tuple[str, int]]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, name, labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [
                {"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}
                for port_name, port in ports
            ],
        },
    }


def _budget(cluster: Cluster, name: str, labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, name, labels),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": labels},
            # A pod that is not ready serves nobody: its node can be drained, and its broker changed, all the same.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
