"""Test of Spark without an operator: a batch job with two executors, which must have exact results.

The job and manifests are the examples, with another image tag. The results are lines RESULT in the driver's log, one
per origin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.images import ROOT
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from e2e.records import Figures

EXAMPLES = ROOT / "examples"
IMAGE_IN_EXAMPLES = "raptormq-spark:0.2.0"
EXECUTORS = 2
JOB_TIMEOUT_S = 600.0
LOG_TIMEOUT_S = 120.0
MAX_SHOWN = 5


def batch(kubernetes: Kubernetes, image: str, expected: dict[str, Figures]) -> None:
    """Run the batch job with two executors, and check its results."""
    _apply(kubernetes, "spark-access.yaml", image)
    _apply(kubernetes, "spark-flights-batch.yaml", image)
    executors: set[str] = set()

    def done() -> bool:
        executors.update(_names(_pods(kubernetes, "spark-role=executor")))
        return _ended(kubernetes, "flights-batch")

    kubernetes.wait_until("the batch job", done, JOB_TIMEOUT_S)
    if len(executors) < EXECUTORS:
        raise Failed(f"the batch job ran with executors {sorted(executors)}, expected {EXECUTORS}")
    _compare("the batch job", kubernetes, "flights-batch", expected)


def _compare(what: str, kubernetes: Kubernetes, job: str, expected: dict[str, Figures]) -> None:
    pod = _names(_drivers(kubernetes, job))[-1]
    rows: list[dict[str, Any]] = []

    def read() -> bool:
        rows[:] = _said(kubernetes, pod, "RESULT")
        return True

    kubernetes.wait_until(f"the log of {pod} is read", read, LOG_TIMEOUT_S)
    found = {row["origin"]: Figures(row["flights"], row["delay"], row["distance"]) for row in rows}
    wrong = sorted(origin for origin in found.keys() | expected.keys() if found.get(origin) != expected.get(origin))
    if wrong:
        shown = [f"{origin}: {found.get(origin)}, expected {expected.get(origin)}" for origin in wrong[:MAX_SHOWN]]
        raise Failed(f"{what} is wrong for {len(wrong)} of {len(expected)} origins: {'; '.join(shown)}")
    total = sum(figures.flights for figures in found.values())
    say(f"{what}: {total} flights of {len(found)} origins; number, mean delay and distance are exactly right")


def _said(kubernetes: Kubernetes, pod: str, word: str) -> list[dict[str, Any]]:
    """Return the JSON objects of the lines of a pod's log that start with a word."""
    log = kubernetes.kubectl("logs", pod, "-n", NAMESPACE)
    return [json.loads(line.removeprefix(word)) for line in log.splitlines() if line.startswith(f"{word} ")]


def _ended(kubernetes: Kubernetes, job: str) -> bool:
    """Return whether a job is complete.

    Raises:
        Failed: The job failed permanently.
    """
    conditions = kubernetes.get("job", job, "-n", NAMESPACE)["status"].get("conditions", [])
    true = {
        condition["type"]: condition.get("message", "") for condition in conditions if condition["status"] == "True"
    }
    if "Failed" in true:
        raise Failed(f"job {job}: {true['Failed']}")
    return "Complete" in true


def _drivers(kubernetes: Kubernetes, job: str) -> list[dict[str, Any]]:
    """Return the pods of a job from old to new."""
    found = _pods(kubernetes, f"batch.kubernetes.io/job-name={job}")
    return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def _pods(kubernetes: Kubernetes, selector: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubernetes.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
    return found


def _names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def _apply(kubernetes: Kubernetes, name: str, image: str) -> None:
    manifest = Path(EXAMPLES / name).read_text(encoding="utf-8").replace(IMAGE_IN_EXAMPLES, image)
    kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=manifest)
