"""Upgrade from the chart of the last release with the two documented commands."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

from e2e import documented
from e2e.errors import Failed
from e2e.images import ROOT
from e2e.kubernetes import Kubernetes

CHART = str(ROOT / "helm" / "raptormq")
PREVIOUS = str(ROOT / "e2e" / "previous" / "raptormq")
RELEASE = OPERATOR_NAMESPACE = "raptormq"
OPERATOR = "deployment/raptormq-operator"
DEFINED_S = 120
"""Time limit in seconds until the API server publishes the schema of a changed definition."""
WAIT = ("-n", OPERATOR_NAMESPACE, "--wait", "--timeout", "120s")


def install_previous(kubernetes: Kubernetes, image: str) -> None:
    """Install the chart of the last release with the current image. The operator is not ready with the definitions of
    the last release, and names the command that updates them.
    """
    repository, _, tag = image.rpartition(":")
    values = f"image.repository={repository},image.tag={tag}"
    kubernetes.helm("install", RELEASE, PREVIOUS, "--set", values, "--create-namespace", "-n", OPERATOR_NAMESPACE)
    kubernetes.wait_until("the operator finds old definitions", partial(_finds_old, kubernetes), DEFINED_S)
    if kubernetes.get(OPERATOR, "-n", OPERATOR_NAMESPACE)["status"].get("readyReplicas", 0):
        raise Failed("the operator is ready with old definitions")


def _finds_old(kubernetes: Kubernetes) -> bool:
    pods = kubernetes.get("pods", "-n", OPERATOR_NAMESPACE)["items"]
    if not any(each["state"].get("running") for pod in pods for each in pod["status"].get("containerStatuses", ())):
        return False
    text = kubernetes.kubectl("logs", OPERATOR, "-n", OPERATOR_NAMESPACE)
    return "helm show crds CHART | kubectl apply --server-side --force-conflicts -f -" in text


def install(kubernetes: Kubernetes, image: str) -> None:
    """Install the chart of this tree with the current image."""
    repository, _, tag = image.rpartition(":")
    values = f"image.repository={repository},image.tag={tag},accessControl.enabled=true"
    kubernetes.helm("install", RELEASE, CHART, "--set", values, "--create-namespace", *WAIT)


def upgrade(kubernetes: Kubernetes, namespace: str) -> str:
    """Run both commands and the chart's test. Return the notes of the chart. `namespace` gets network policies."""
    enabled = ",".join(f"{name}.enabled=true" for name in ("accessControl", "networkPolicy", "sparkPipelines"))
    values = f"{enabled},networkPolicy.clusterNamespaces={{{namespace}}}"
    keep = "--reset-then-reuse-values"
    adapted = {"CHART": shlex.quote(CHART), keep: shlex.join([keep, "--set", values, *WAIT])}
    notes = documented.execute(
        kubernetes, "docs/guides/operator.md", "The chart", adapted, namespace=OPERATOR_NAMESPACE
    )
    kubernetes.wait_until("the new field is defined", partial(_is_defined, kubernetes), DEFINED_S)
    kubernetes.helm("test", RELEASE, "-n", OPERATOR_NAMESPACE, "--timeout", "150s")
    return notes


def _is_defined(kubernetes: Kubernetes) -> bool:
    """Return True; an undefined field, or one that the API server has not published yet, is an error of the command."""
    kubernetes.kubectl("explain", "brokercluster.spec.accessControl")
    return True


def policies_select_pods(kubernetes: Kubernetes, *namespaces: str) -> None:
    """Check that every NetworkPolicy selects running pods. The network of kind does not enforce policies."""
    for namespace in namespaces:
        policies = kubernetes.get("networkpolicies", "-n", namespace)["items"]
        if not policies:
            raise Failed(f"no NetworkPolicy in namespace {namespace}")
        for policy in policies:
            labels: dict[str, Any] = policy["spec"]["podSelector"]["matchLabels"]
            selector = ",".join(f"{key}={value}" for key, value in labels.items())
            if not kubernetes.get("pods", "-n", namespace, "-l", selector)["items"]:
                raise Failed(f"NetworkPolicy {policy['metadata']['name']} in {namespace} selects no pod: {selector}")
