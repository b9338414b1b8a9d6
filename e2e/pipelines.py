"""A SparkPipeline of the examples: its status, its pods, its result, and its deletion.

The scenarios are in `route_delays`, `weather_join` and `clean_topic`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from e2e.brokers import NAMESPACE
from e2e.errors import Failed
from e2e.images import ROOT
from e2e.kubernetes import Kubernetes
from e2e.progress import say
from e2e.spark import IMAGE_IN_EXAMPLES

START_TIMEOUT_S = 300.0
END_TIMEOUT_S = 900.0
NOTHING: Mapping[str, str] = {}
LESS_CPU = {"cpu: 200m": "cpu: 100m"}
"""Small CPU requests, because the brokers request most of the two cores of the node."""
MAX_SHOWN = 5
READER = """
import json, pathlib, sys, pyarrow.parquet
folder = pathlib.Path(sys.argv[1])
# Beside each log there is a checksum, .NAME.crc.
logs = [path for path in folder.glob("_spark_metadata/*") if not path.name.startswith(".")]
files = set()
for log in logs:
    files |= {json.loads(line)["path"].rsplit("/", 1)[-1] for line in log.read_text().splitlines()[1:]}
for name in sorted(files):
    for row in pyarrow.parquet.read_table(folder / name).to_pylist():
        print(json.dumps(row, default=str))
"""
"""Prints the rows of the Parquet files in the log of Spark's sink. Other files belong to unfinished batches."""


class RunningPipeline:
    """One running pipeline."""

    def __init__(self, kubernetes: Kubernetes, name: str) -> None:
        self._kubernetes = kubernetes
        self.name = name
        self.driver = f"{name}-driver"

    def start(self, example: str, image: str, names: Mapping[str, str] = NOTHING) -> None:
        """Apply an example with an image. `names` replaces texts of the example."""
        manifest = (ROOT / "examples" / example).read_text(encoding="utf-8")
        for in_example, other in {IMAGE_IN_EXAMPLES: image, **LESS_CPU, **names}.items():
            if in_example not in manifest:
                raise Failed(f"examples/{example} has no {in_example}")
            manifest = manifest.replace(in_example, other)
        self._kubernetes.kubectl("apply", "-n", NAMESPACE, "-f", "-", manifest=manifest)

    def wait_for_batch(self, batch: int, executors: int) -> None:
        """Wait until this number of executors run and the status has this batch or a later one."""
        self._kubernetes.wait_until(
            f"{self.name}: batch {batch} with {executors} executors",
            lambda: self.status().get("executors") == executors and self.batch() >= batch,
            START_TIMEOUT_S,
        )

    def status(self) -> dict[str, Any]:
        """Return the status of the resource; empty before the operator has written one."""
        found: dict[str, Any] = self._kubernetes.get(f"sparkpipeline/{self.name}", "-n", NAMESPACE)
        status: dict[str, Any] = found.get("status", {})
        return status

    def batch(self) -> int:
        """Return the last batch in the status; -1 before the first."""
        queries = self.status().get("queries", [])
        return int(queries[0].get("batch", -1)) if queries else -1

    def offsets_read(self, topic: str) -> int:
        """Return the sum of the offsets of a topic in the status."""
        (query,) = self.status()["queries"]
        return sum(offset for queues in query["offsets"][topic].values() for offset in queues.values())

    def driver_uid(self) -> str:
        """Return the uid of the driver pod; empty while there is none."""
        pods = self._kubernetes.get("pods", "-n", NAMESPACE, "-l", f"raptormq.io/pipeline={self.name}")["items"]
        return next((str(pod["metadata"]["uid"]) for pod in pods if pod["metadata"]["name"] == self.driver), "")

    def executors(self) -> list[str]:
        """Return the names of the running executor pods."""
        selector = f"raptormq.io/pipeline={self.name},spark-role=executor"
        pods = self._kubernetes.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")

    def delete_driver(self) -> str:
        """Delete the driver pod before the pipeline has read everything. Return its uid.

        Raises:
            Failed: The pipeline had already read everything.
        """
        before, batch, lag = self.driver_uid(), self.batch(), self.status().get("lag", 0)
        if not lag:
            raise Failed(f"{self.name} had read everything before its driver could be deleted, in batch {batch}")
        self._kubernetes.kubectl("delete", "pod", self.driver, "-n", NAMESPACE, timeout=90)
        say(f"{self.driver} is deleted after batch {batch}, with a lag of {lag}")
        return before

    def has_read_everything(self) -> bool:
        """Return whether the driver runs, and the status has no lag."""
        status = self.status()
        return status.get("phase") == "Running" and status.get("lag") == 0

    def parquet(self, folder: str) -> list[dict[str, Any]]:
        """Return the rows that the pipeline has written to a folder next to its checkpoint. Times are strings."""
        path = f"/checkpoint/{self.name}/{folder}"
        text = self._kubernetes.kubectl("exec", self.driver, "-n", NAMESPACE, "--", "python3", "-c", READER, path)
        return [json.loads(line) for line in text.splitlines()]

    def goes(self) -> None:
        """Delete the pipeline. Check that all its objects except the claim of the checkpoint are deleted, then delete
        the claim.
        """
        self._kubernetes.kubectl("delete", f"sparkpipeline/{self.name}", "-n", NAMESPACE, timeout=90)
        kinds, selector = (
            "pods,services,configmaps,serviceaccounts,roles,rolebindings",
            f"raptormq.io/pipeline={self.name}",
        )
        self._kubernetes.wait_until(
            f"nothing of {self.name} is left",
            lambda: not self._kubernetes.get(kinds, "-n", NAMESPACE, "-l", selector)["items"],
            120,
        )
        self._kubernetes.kubectl("delete", "pvc", f"{self.name}-checkpoint", "-n", NAMESPACE, timeout=90)


def compare(what: str, found: Counter[Any], wanted: Counter[Any]) -> None:
    """Compare rows with their expected numbers.

    Raises:
        Failed: Rows are missing or duplicate.
    """
    missing, too_many = wanted - found, found - wanted
    if missing or too_many:
        shown = [f"missing {sorted(missing)[:MAX_SHOWN]}"] * bool(missing)
        shown += [f"too many {sorted(too_many)[:MAX_SHOWN]}"] * bool(too_many)
        text = f"{missing.total()} of {wanted.total()} rows are missing, {too_many.total()} are too many"
        raise Failed(f"{what}: {text}: {'; '.join(shown)}")
