"""Diagnostics of a failed run: the failure, objects, events, descriptions and the logs of all containers."""

from __future__ import annotations

import traceback
from pathlib import Path

from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.tools import tool

OVERVIEW = {
    "nodes.txt": ["describe", "nodes"],
    "events.txt": ["get", "events", "-A", "--sort-by=.metadata.creationTimestamp"],
    "pods.txt": ["describe", "pods", "-A"],
    "objects.yaml": [
        "get",
        "brokerclusters,topics,sparkpipelines,statefulsets,deployments,jobs,services,configmaps,poddisruptionbudgets,pvc,pods",
        "-A",
        "-o",
        "yaml",
    ],
}

TIMEOUT_S = 60.0


def save(kubernetes: Kubernetes, folder: Path, failure: BaseException) -> None:
    """Write the failure and all diagnostics to `folder`. The file of unavailable data contains the error."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "failure.txt").write_text("".join(traceback.format_exception(failure)), encoding="utf-8")
    for name, arguments in OVERVIEW.items():
        (folder / name).write_text(_said(kubernetes, arguments), encoding="utf-8")
    for namespace, _, pod in (item.partition("/") for item in _pods(kubernetes)):
        if namespace == "kube-system":
            continue
        for suffix, options in (("log", []), ("previous.log", ["--previous"])):
            text = _said(kubernetes, ["logs", "-n", namespace, pod, "--all-containers", "--tail=20000", *options])
            (folder / f"{namespace}.{pod}.{suffix}").write_text(text, encoding="utf-8")


def _pods(kubernetes: Kubernetes) -> list[str]:
    """Return `namespace/name` of each pod; empty without a cluster."""
    names = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}"
    try:
        return _run(kubernetes, ["get", "pods", "-A", "-o", names]).split()
    except Failed:
        return []


def _said(kubernetes: Kubernetes, arguments: list[str]) -> str:
    try:
        return _run(kubernetes, arguments)
    except Failed as error:
        return f"{error}\n"


def _run(kubernetes: Kubernetes, arguments: list[str]) -> str:
    """Run kubectl once: without a cluster, repetitions would only take time."""
    return kubernetes.run([tool("kubectl"), *arguments], timeout=TIMEOUT_S)
