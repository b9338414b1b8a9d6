"""Test of `kubectl drain` on the node with all brokers: only one is evicted until it is available again."""

from __future__ import annotations

from e2e.brokers import CLUSTER, NAMESPACE
from e2e.errors import Failed, Unanswered
from e2e.kubernetes import Kubernetes
from e2e.progress import say

BROKERS = "app.kubernetes.io/component=broker,raptormq.io/cluster=demo"
DRAIN_S = 15
"""Timeout of the drain in seconds. The drain does not end, because the evicted broker cannot start on another node."""


def takes_one_broker(kubernetes: Kubernetes) -> None:
    """Drain the node of a cluster of two groups without replication, and check that one broker is evicted."""
    before = _serving(kubernetes)
    (node,) = kubernetes.nodes()
    try:
        options = ["--pod-selector", BROKERS, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={DRAIN_S}s"]
        kubernetes.kubectl("drain", node, *options, timeout=DRAIN_S + 60)
        raise Failed("the drain has evicted all brokers")
    except Unanswered as error:
        if "disruption budget" not in str(error):
            raise
    finally:
        kubernetes.kubectl("uncordon", node)
    taken = before.items() - _serving(kubernetes).items()
    if len(taken) != 1:
        raise Failed(f"the drain has evicted {len(taken)} of {len(before)} brokers, expected 1")
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=120)
    say(f"the drain took {next(iter(taken))[0]} of {len(before)} brokers, the others stayed")


def _serving(kubernetes: Kubernetes) -> dict[str, str]:
    """Return name -> uid of the broker pods that are ready or were not evicted."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in kubernetes.get("pods", "-n", NAMESPACE, "-l", BROKERS)["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }
