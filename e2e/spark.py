"""The Spark part: a batch job with two executors, and a stream whose driver is taken away; both exactly right.

The jobs are the examples, with their manifests; only the image gets another tag. Their results are lines RESULT of the
driver's log, one for each origin.
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
START_TIMEOUT_S = 420.0
MAX_SHOWN = 5


def batch(kubernetes: Kubernetes, image: str, expected: dict[str, Figures]) -> None:
    """Counts everything once, with two executors."""
    _apply(kubernetes, "spark-access.yaml", image)
    _apply(kubernetes, "spark-flights-batch.yaml", image)
    executors: set[str] = set()

    def done() -> bool:
        executors.update(_names(_pods(kubernetes, "spark-role=executor")))
        return _ended(kubernetes, "flights-batch")

    kubernetes.wait_until("the batch job", done, JOB_TIMEOUT_S)
    if len(executors) < EXECUTORS:
        raise Failed(f"the batch job ran with executors {sorted(executors)}, wanted {EXECUTORS}")
    _compare("the batch job", kubernetes, "flights-batch", expected)


def stream(kubernetes: Kubernetes, image: str, expected: dict[str, Figures]) -> None:
    """Reads as a stream; the driver is taken away in the middle, and the next one goes on from its checkpoint."""
    total = sum(figures.flights for figures in expected.values())
    _apply(kubernetes, "spark-flights-stream.yaml", image)
    before: list[dict[str, Any]] = []

    def has_read_a_quarter() -> bool:
        before[:] = _newest_batches(kubernetes)
        return bool(before) and before[-1]["flights"] >= total // 4

    kubernetes.wait_until("a driver reads a quarter", has_read_a_quarter, START_TIMEOUT_S)
    (first,) = _names(_drivers(kubernetes, "flights-stream"))
    if before[-1]["flights"] >= total:
        raise Failed(f"the first driver had read everything before it could be stopped: {before[-1]}")
    kubernetes.kubectl("delete", "pod", first, "-n", NAMESPACE, timeout=90)
    say(f"driver {first} is deleted after {before[-1]['flights']} of {total} flights, in batch {before[-1]['batch']}")
    kubernetes.wait_until("the stream", lambda: _ended(kubernetes, "flights-stream"), JOB_TIMEOUT_S)
    second = _names(_drivers(kubernetes, "flights-stream"))[-1]
    after = _batches(kubernetes, second)
    # It may repeat the batch that was under way, and nothing before it.
    if second == first or not after or after[0]["batch"] < before[-1]["batch"]:
        raise Failed(f"driver {second} began with {after[:1]}, {first} had ended with {before[-1]}")
    say(f"driver {second} went on with batch {after[0]['batch']}")
    _compare("the stream", kubernetes, "flights-stream", expected)


def _compare(what: str, kubernetes: Kubernetes, job: str, expected: dict[str, Figures]) -> None:
    pod = _names(_drivers(kubernetes, job))[-1]
    found = {
        row["origin"]: Figures(row["flights"], row["delay"], row["distance"])
        for row in _said(kubernetes, pod, "RESULT")
    }
    wrong = sorted(origin for origin in found.keys() | expected.keys() if found.get(origin) != expected.get(origin))
    if wrong:
        shown = [f"{origin}: {found.get(origin)}, wanted {expected.get(origin)}" for origin in wrong[:MAX_SHOWN]]
        raise Failed(f"{what} is wrong for {len(wrong)} of {len(expected)} origins: {'; '.join(shown)}")
    total = sum(figures.flights for figures in found.values())
    say(f"{what}: {total} flights of {len(found)} origins; number, mean delay and distance are exactly right")


def _newest_batches(kubernetes: Kubernetes) -> list[dict[str, Any]]:
    """Batches that the newest driver of the stream has ended so far."""
    drivers = _names(_drivers(kubernetes, "flights-stream"))
    return _batches(kubernetes, drivers[-1]) if drivers else []


def _batches(kubernetes: Kubernetes, pod: str) -> list[dict[str, Any]]:
    return _said(kubernetes, pod, "BATCH")


def _said(kubernetes: Kubernetes, pod: str, word: str) -> list[dict[str, Any]]:
    """JSON objects of the lines of a pod's log that begin with a word; none while it has no log."""
    try:
        log = kubernetes.kubectl("logs", pod, "-n", NAMESPACE)
    except Failed:
        return []
    return [json.loads(line.removeprefix(word)) for line in log.splitlines() if line.startswith(f"{word} ")]


def _ended(kubernetes: Kubernetes, job: str) -> bool:
    """Whether a job is complete.

    Raises:
        Failed: it has failed for good.
    """
    conditions = kubernetes.get("job", job, "-n", NAMESPACE)["status"].get("conditions", [])
    true = {
        condition["type"]: condition.get("message", "") for condition in conditions if condition["status"] == "True"
    }
    if "Failed" in true:
        raise Failed(f"job {job}: {true['Failed']}")
    return "Complete" in true


def _drivers(kubernetes: Kubernetes, job: str) -> list[dict[str, Any]]:
    """Pods of a job, the newest last."""
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
