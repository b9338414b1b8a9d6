"""Tests of the operator beyond installation: conditions for invalid specs, rolling updates, deletion."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from e2e.brokers import CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, TOPIC, stored
from e2e.chart_upgrade import RELEASE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes

DOOMED = "doomed"
POOR = "poor"
NO_SECRET = 'secret "nosuch-secret" not found'
OPERATOR = "app.kubernetes.io/component=operator"
BROKERS = "app.kubernetes.io/component=broker,raptormq.io/cluster=demo"


def refuses_settings_of_its_own(kubernetes: Kubernetes) -> None:
    """Check that a condition rejects a setting that belongs to the operator and that the schema accepts."""
    _apply(kubernetes, "BrokerCluster", "denied", {"config": {"brokerIP1": "10.0.0.1"}})
    denied = partial(_is_refused, kubernetes, "brokercluster/denied", "ConfigDenied")
    kubernetes.wait_until("brokercluster/denied is ConfigDenied", denied, 90)
    kubernetes.kubectl("delete", "brokercluster/denied", "-n", NAMESPACE, "--timeout=60s", timeout=90)


def says_what_pods_lack(kubernetes: Kubernetes) -> None:
    """Check that conditions report an exceeded quota, a missing StorageClass and a missing Secret."""
    for manifest in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": POOR}},
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few-pods", "namespace": POOR},
            "spec": {"hard": {"pods": "4"}},
        },
    ):
        kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(manifest))
    small = {"nameServers": {"replicas": 1}}
    _apply(kubernetes, "BrokerCluster", "no-class", small | {"storage": {"storageClassName": "nosuch"}}, POOR)
    _apply(kubernetes, "BrokerCluster", "no-secret", small | {"tls": {"secretName": "nosuch-secret"}}, POOR)
    for name, words in {"no-class": 'storageclass.storage.k8s.io "nosuch" not found', "no-secret": NO_SECRET}.items():
        said = partial(_says, kubernetes, f"brokercluster/{name}", "PodsNotReady", words, POOR)
        kubernetes.wait_until(f"{name}: {words}", said, 180)
    _apply(kubernetes, "BrokerCluster", "no-room", small, POOR)
    words = "exceeded quota: few-pods"
    said = partial(_says, kubernetes, "brokercluster/no-room", "PodsNotReady", words, POOR)
    kubernetes.wait_until(f"no-room: {words}", said, 90)
    kubernetes.kubectl("delete", "namespace", POOR, "--timeout=120s", timeout=150)


def says_why_a_pod_fails(kubernetes: Kubernetes) -> None:
    """Check that an invalid value takes down at most one broker, and that the condition reports it until it is
    removed. The condition also reports an unknown key."""
    before = _identities(kubernetes)
    named = partial(_says, kubernetes, CLUSTER, "PodsFailing", "setting fileReservedTime = 'soon'")
    _patch(kubernetes, {"config": {"fileReservedTime": "soon"}})
    kubernetes.wait_until("the condition names the value", named, 360)
    now = _identities(kubernetes)
    if (kept := sum(pod == now.get(name) for name, pod in before.items())) != len(before) - 1:
        raise Failed(f"{kept} of {len(before)} brokers are unchanged, expected all but one")
    _patch(kubernetes, {"config": {"fileReservedTime": None, "fileReservedTim": "49"}})
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=360)
    unknown = "fileReservedTim is ignored, did you mean fileReservedTime?"
    told = partial(_says, kubernetes, CLUSTER, "Ready", unknown)
    kubernetes.wait_until(f"the condition of the ready cluster says: {unknown}", told, 60)


def makes_batch_topics(kubernetes: Kubernetes) -> None:
    """Check that Topics with queueType BatchCQ become ready."""
    _apply(kubernetes, "Topic", "batches", {"clusterRef": {"name": "demo"}, "queueType": "BatchCQ"})
    kubernetes.wait_ready("topic/batches", namespace=NAMESPACE, timeout=60)
    kubernetes.kubectl("delete", "topic/batches", "-n", NAMESPACE, "--timeout=30s")


def leaves_the_brokers_alone(kubernetes: Kubernetes) -> None:
    """Check that an update to a misspelt image stops at the name servers, and that the condition reports it."""
    before = {name: pod["uid"] for name, pod in _pods(kubernetes).items()}
    told = partial(_says, kubernetes, CLUSTER, "PodsFailing", "raptormq:nosuch")
    _patch(kubernetes, {"image": "localhost/raptormq:nosuch"})
    kubernetes.wait_until("the condition names the image", told, 120)
    _patch(kubernetes, {"image": None})
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=180)
    if (now := {name: pod["uid"] for name, pod in _pods(kubernetes).items()}) != before:
        raise Failed(f"brokers were recreated: {before} before, {now} afterwards")


def rolls_a_change(kubernetes: Kubernetes, image: str) -> None:
    """Check that a new image and configuration reach every broker, one at a time, without lost messages.

    The operator is killed when the first broker is evicted; the next operator takes over when the lease expires. A
    broker serves from its first readiness to its deletion. It may not be ready meanwhile: while the name servers
    restart, no broker is ready.
    """
    before, messages = _pods(kubernetes), stored(kubernetes, "demo", "flights")
    other = f"{image}-again"
    kubernetes.name_again(image, other)
    _patch(kubernetes, {"image": other, "config": {"fileReservedTime": "48"}})
    seen: list[set[str]] = []
    were_ready = {pod["uid"] for pod in before.values()}

    def renewed() -> set[str]:
        now = _pods(kubernetes)
        anew = {name for name, pod in before.items() if name in now and now[name]["uid"] != pod["uid"]}
        were_ready.update(pod["uid"] for pod in now.values() if pod["ready"])
        serving = {name for name, pod in now.items() if not pod["going"] and pod["uid"] in were_ready}
        seen.append(before.keys() - serving)
        return anew

    def begun() -> bool:
        return bool(renewed() or seen[-1])  # a pod that is already replaced counts, too

    def done() -> bool:
        return renewed() == before.keys() and not seen[-1] and kubernetes.is_ready(CLUSTER, NAMESPACE)

    kubernetes.wait_until("the first broker goes", begun, 180)
    kubernetes.kubectl("delete", "pod", "-n", OPERATOR_NAMESPACE, "-l", OPERATOR, "--grace-period=0", "--force")
    kubernetes.wait_until("every broker runs the new configuration", done, 300)
    if max(map(len, seen)) > 1:
        raise Failed(f"more than one broker was down at a time: {max(seen, key=len)}")
    for pod in before:
        text = kubernetes.kubectl("exec", "-n", NAMESPACE, pod, "--", "cat", "/etc/raptormq/broker.conf")
        if "fileReservedTime=48" not in text.splitlines():
            raise Failed(f"{pod} has {text!r}")
    if (now := stored(kubernetes, "demo", "flights")) != messages:
        raise Failed(f"{messages} messages before, {now} afterwards")


def deletes_what_it_may(kubernetes: Kubernetes) -> None:
    """Check that the Topic's deletion removes the topic and the cluster's deletion removes its objects but not its
    claims."""
    kubernetes.kubectl("delete", TOPIC, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    pod = next(iter(_pods(kubernetes)))
    names = kubernetes.kubectl(
        "exec", "-n", NAMESPACE, pod, "--", "raptormq", "topic", "list", "--namesrv", "demo-namesrv:9876"
    )
    if "flights" in names.split():
        raise Failed("the topic is still there after its resource was deleted")
    kubernetes.kubectl("delete", CLUSTER, "-n", NAMESPACE, "--timeout=60s", timeout=90)
    kubernetes.wait_until("all pods of the cluster are gone", lambda: not _pods(kubernetes), 120)
    claims = kubernetes.get("pvc", "-n", NAMESPACE, "-l", BROKERS)["items"]
    if len(claims) != 2:
        raise Failed(f"{len(claims)} volume claims are left, expected the 2 of the brokers")


def lets_a_namespace_go(kubernetes: Kubernetes) -> None:
    """Check that the deletion of a namespace with a running cluster and a Topic with a finalizer completes."""
    _make_doomed(kubernetes)
    kubernetes.kubectl("delete", "namespace", DOOMED, "--timeout=120s", timeout=150)


def leaves_resources_without_an_operator(kubernetes: Kubernetes) -> None:
    """Check that after `helm uninstall` nothing claims to be ready, and no finalizer blocks a namespace."""
    _make_doomed(kubernetes)
    kubernetes.helm("uninstall", RELEASE, "-n", OPERATOR_NAMESPACE)
    for resource in ("brokercluster/demo", "topic/orders"):
        ready = kubernetes.ready(resource, DOOMED)
        if (ready["status"], ready["reason"]) != ("Unknown", "OperatorRemoved"):
            raise Failed(f"{resource} after the uninstallation: {ready}")
    kinds = "clusterroles,clusterrolebindings,serviceaccounts,jobs"
    found = kubernetes.get(kinds, "-n", OPERATOR_NAMESPACE, "-l", f"app.kubernetes.io/instance={RELEASE}")["items"]
    if found:
        raise Failed(f"the uninstallation left {[each['metadata']['name'] for each in found]}")
    kubernetes.kubectl("delete", "namespace", DOOMED, "--timeout=120s", timeout=150)


def _make_doomed(kubernetes: Kubernetes) -> None:
    """Make a namespace with a cluster and a Topic that has a finalizer, and wait until both are ready."""
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DOOMED}})
    kubernetes.kubectl("apply", "-f", "-", manifest=namespace)
    _apply(kubernetes, "BrokerCluster", "demo", {"storage": {"whenDeleted": "Delete"}}, DOOMED)
    _apply(kubernetes, "Topic", "orders", {"clusterRef": {"name": "demo"}, "deletionPolicy": "Delete"}, DOOMED)
    kubernetes.wait_ready("brokercluster/demo", "topic/orders", namespace=DOOMED, timeout=180)


def _pods(kubernetes: Kubernetes) -> dict[str, dict[str, Any]]:
    """Return name -> uid, readiness and deletion state of each broker pod."""
    return {
        pod["metadata"]["name"]: {
            "uid": pod["metadata"]["uid"],
            "going": "deletionTimestamp" in pod["metadata"],
            "ready": "deletionTimestamp" not in pod["metadata"]
            and any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in pod["status"].get("conditions", [])
            ),
        }
        for pod in kubernetes.get("pods", "-n", NAMESPACE, "-l", BROKERS)["items"]
    }


def _identities(kubernetes: Kubernetes) -> dict[str, tuple[str, bool]]:
    """Return name -> uid and deletion state of each broker pod."""
    return {name: (pod["uid"], pod["going"]) for name, pod in _pods(kubernetes).items()}


def _patch(kubernetes: Kubernetes, spec: dict[str, Any]) -> None:
    kubernetes.kubectl("patch", CLUSTER, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": spec}))


def _says(kubernetes: Kubernetes, resource: str, reason: str, words: str, namespace: str = NAMESPACE) -> bool:
    ready = kubernetes.ready(resource, namespace)
    return ready["reason"] == reason and words in ready["message"]


def _is_refused(kubernetes: Kubernetes, resource: str, reason: str) -> bool:
    ready = kubernetes.ready(resource, NAMESPACE)
    return (ready["status"], ready["reason"]) == ("False", reason)


def _apply(kubernetes: Kubernetes, kind: str, name: str, spec: dict[str, Any], namespace: str = NAMESPACE) -> None:
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "raptormq.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    kubernetes.kubectl("apply", "-f", "-", manifest=json.dumps(document))
