"""Test of clusters with the name, and thus the volume claims, of an earlier cluster with another mode of replication.

A Dledger group is deleted, its name is used with mode none, which writes to the claim of the first member, and the
group is created again: it must not start, since two of three claims lack the newest messages. A cluster of mode none
whose mode becomes dledger must not start members on claims of an earlier group either.
"""

from __future__ import annotations

import json
from typing import Any

from e2e import access_control, command_line
from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.progress import say

NAME = "again"
CLUSTER = f"brokercluster/{NAME}"
TOPIC = "again-orders"
CLAIMS = tuple(f"store-{NAME}-broker-0-{index}-0" for index in range(3))
DLEDGER: dict[str, Any] = {"replicas": 3, "replication": {"mode": "dledger"}}
NONE: dict[str, Any] = {"replicas": 1, "replication": {"mode": "none"}}
READY_TIMEOUT_S = 240
GONE_TIMEOUT_S = 120
EACH = 100
"""Number of messages that each cluster adds."""


def need_a_decision(kubernetes: Kubernetes) -> None:
    """Check which earlier claims are used, which are refused, and that the refused ones lose no message."""
    topic = {"apiVersion": "raptormq.io/v1alpha1", "kind": "Topic", "metadata": {"name": TOPIC}}
    access_control.apply(kubernetes, topic | {"spec": {"clusterRef": {"name": NAME}}})
    _create(kubernetes, DLEDGER)
    _send(kubernetes, "group")
    _delete(kubernetes)
    _create(kubernetes, DLEDGER)
    _has(kubernetes, "group")
    say("a group of the same mode uses the claims of the earlier one")
    _delete(kubernetes)
    _is_refused(kubernetes, NONE, CLAIMS[:1])
    _delete(kubernetes)
    _create(kubernetes, NONE, accepted=CLAIMS[:1])
    _has(kubernetes, "group")
    _send(kubernetes, "single")
    _delete(kubernetes)
    _is_refused(kubernetes, DLEDGER, CLAIMS)
    _delete(kubernetes)
    _create(kubernetes, NONE)
    _has(kubernetes, "group", "single")
    say("the newest messages are there after the refused group was deleted")
    _is_refused(kubernetes, DLEDGER, CLAIMS[1:])
    _has(kubernetes, "group", "single")
    kubernetes.kubectl("delete", "pvc", *CLAIMS[1:], "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    _has(kubernetes, "group", "single")
    _delete(kubernetes)
    kubernetes.kubectl("delete", f"topic/{TOPIC}", "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.kubectl("delete", "pvc", *CLAIMS, "-n", NAMESPACE, "--timeout=60s", timeout=90)


def _apply(kubernetes: Kubernetes, spec: dict[str, Any], accepted: tuple[str, ...] = ()) -> None:
    common = {
        "groups": 1,
        "nameServers": {"replicas": 1},
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    annotations = {"raptormq.io/use-claims": ",".join(accepted)} if accepted else {}
    metadata = {"name": NAME, "namespace": NAMESPACE, "annotations": annotations}
    document = {"apiVersion": "raptormq.io/v1alpha1", "kind": "BrokerCluster", "metadata": metadata}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(document | {"spec": common | spec}))


def _create(kubernetes: Kubernetes, spec: dict[str, Any], accepted: tuple[str, ...] = ()) -> None:
    """Create the cluster, and wait until it is Ready and its claims are annotated."""
    _apply(kubernetes, spec, accepted)
    kubernetes.wait_ready(CLUSTER, f"topic/{TOPIC}", namespace=NAMESPACE, timeout=READY_TIMEOUT_S)
    writer = f"{spec['replication']['mode']}/{kubernetes.get(CLUSTER, '-n', NAMESPACE)['metadata']['uid']}"
    claims = CLAIMS[: spec["replicas"]]
    kubernetes.wait_until(
        "the claims are annotated",
        lambda: all(_writer(kubernetes, claim) == writer for claim in claims),
        READY_TIMEOUT_S,
    )


def _writer(kubernetes: Kubernetes, claim: str) -> str:
    annotations = kubernetes.get("pvc", claim, "-n", NAMESPACE)["metadata"].get("annotations", {})
    return str(annotations.get("raptormq.io/store", ""))


def _is_refused(kubernetes: Kubernetes, spec: dict[str, Any], claims: tuple[str, ...]) -> None:
    """Apply a spec, and wait for the reason ClaimConflict. Check that it names the claims, and that no new broker was
    created.
    """
    before = _brokers(kubernetes)
    _apply(kubernetes, spec)
    kubernetes.wait_until(
        "the claims are refused",
        lambda: kubernetes.ready(CLUSTER, NAMESPACE)["reason"] == "ClaimConflict",
        READY_TIMEOUT_S,
    )
    message = str(kubernetes.ready(CLUSTER, NAMESPACE)["message"])
    if missing := [claim for claim in claims if f"claim {claim} " not in message]:
        raise Failed(f"the condition does not name {', '.join(missing)}: {message}")
    if (now := _brokers(kubernetes)) != before:
        raise Failed(f"brokers were created on refused claims: {before} before, {now} afterwards")
    say(f"refused: {message}")


def _brokers(kubernetes: Kubernetes) -> list[str]:
    labels = f"app.kubernetes.io/component=broker,raptormq.io/cluster={NAME}"
    found: list[dict[str, Any]] = kubernetes.get("statefulset", "-n", NAMESPACE, "-l", labels)["items"]
    return sorted(each["metadata"]["name"] for each in found)


def _send(kubernetes: Kubernetes, prefix: str) -> None:
    command_line.produce(kubernetes, NAME, TOPIC, {f"{prefix}-{number}": number for number in range(EACH)})
    _has(kubernetes, prefix)


def _has(kubernetes: Kubernetes, *prefixes: str) -> None:
    """Check that all messages of these clusters can be read. A send without a timely answer is repeated."""
    expected = {f"{prefix}-{number}" for prefix in prefixes for number in range(EACH)}
    found = {key for message in command_line.consume(kubernetes, NAME, TOPIC) for key in message["keys"]}
    if missing := sorted(expected - found):
        raise Failed(f"{len(missing)} messages are missing: {missing[:5]}")


def _delete(kubernetes: Kubernetes) -> None:
    """Delete the cluster, and wait until its pods have ended."""
    kubernetes.kubectl("delete", CLUSTER, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    labels = f"raptormq.io/cluster={NAME}"
    kubernetes.wait_until(
        "its pods are gone",
        lambda: not kubernetes.get("pods", "-n", NAMESPACE, "-l", labels)["items"],
        GONE_TIMEOUT_S,
    )
