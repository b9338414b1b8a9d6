"""A stateful SparkPipeline must have an exact result although an executor, its driver and a broker are deleted.

The pipeline is the example spark-pipeline.yaml: flights and delay per route and window of 7 days, to Parquet. The
result is compared with a computation in plain Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

from e2e import documented
from e2e.brokers import CLUSTER, NAMESPACE
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes
from e2e.pipelines import END_TIMEOUT_S, START_TIMEOUT_S, RunningPipeline, compare
from e2e.progress import say
from e2e.records import Record

NAME = "route-delays"
BROKER = "demo-broker-1-0-0"
EXECUTORS = 2
LENGTH, SLIDE, LATE = timedelta(days=7), timedelta(days=1), timedelta(days=60)
"""Length and slide of the example's windows, and the delay of its watermark for late flights."""
SMALL_BATCHES = {"--max-offsets=1500": "--max-offsets=600"}
"""33 batches of at least 1 s, so that the pipeline is not done before the status, which is up to 15 s old, shows it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = tuple[str, str, str, int, int]
"""First day of the window, origin, destination, flights, delay."""


def expected(sent: list[Record]) -> Counter[Row]:
    """Return the rows of every window that is complete after the last flight."""
    sums: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    times = [datetime.strptime(record["date"], "%Y/%m/%d %H:%M").replace(tzinfo=UTC) for record in sent]
    complete_until = max(times) - LATE
    for record, time in zip(sent, times, strict=True):
        start = EPOCH + (time - EPOCH) // SLIDE * SLIDE
        while start > time - LENGTH:
            if start + LENGTH <= complete_until:
                row = sums[start.strftime("%Y-%m-%d"), record["origin"], record["destination"]]
                row[0] += 1
                row[1] += record["delay"]
            start -= SLIDE
    return Counter((*key, flights, delay) for key, (flights, delay) in sums.items())


def is_exact(kubernetes: Kubernetes, image: str, sent: list[Record]) -> None:
    """Run the pipeline over all records, and delete an executor, a broker and the driver meanwhile."""
    pipeline = RunningPipeline(kubernetes, NAME)
    pipeline.start("spark-pipeline.yaml", image, SMALL_BATCHES)
    pipeline.wait_for_batch(1, EXECUTORS)
    documented.execute(kubernetes, "docs/guides/spark-pipelines.md", "A pipeline", namespace=NAMESPACE)
    (executor, *_) = pipeline.executors()
    kubernetes.kubectl("delete", "pod", executor, BROKER, "-n", NAMESPACE, "--wait=false")
    before = pipeline.batch()
    say(f"executor {executor} and broker {BROKER} are deleted after batch {before}")
    kubernetes.wait_until("batches after that", lambda: pipeline.batch() > before + 1, START_TIMEOUT_S)
    first = pipeline.delete_driver()
    wanted = expected(sent)
    found: Counter[Row] = Counter()

    def has_all() -> bool:
        if not pipeline.has_read_everything() or pipeline.driver_uid() == first:
            return False
        found.clear()
        found.update(
            (row["start"][:10], row["origin"], row["destination"], row["flights"], row["delay"])
            for row in pipeline.parquet("delays")
        )
        return found.total() >= wanted.total()

    kubernetes.wait_until("the whole result", has_all, END_TIMEOUT_S)
    compare("windows of routes", found, wanted)
    total = pipeline.offsets_read("flights")
    if total < len(sent):
        raise Failed(f"the status says that {total} offsets were read, expected at least {len(sent)}")
    status = pipeline.status()
    say(
        f"{found.total()} windows of routes are exactly right; {total} offsets read, {status['executors']} executors,"
        f" {status['rowsPerSecond']} rows/s in the last batch"
    )
    pipeline.goes()
    kubernetes.wait_ready(CLUSTER, namespace=NAMESPACE, timeout=120)
