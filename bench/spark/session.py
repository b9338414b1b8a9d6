"""A process with a local Spark session of two cores that runs the queries of the benchmark.

    python -m bench.spark.session SOCKET FOLDER [JAR ...]

The process listens on the Unix socket SOCKET, prints `ready` with Spark's version, and answers each `requests.Query`
with a `requests.Result` or the text of an error. The message None ends the process.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import uuid
from collections import defaultdict
from multiprocessing.connection import Listener
from pathlib import Path

from pyspark.sql import SparkSession

from bench.spark.requests import Query, Read, Result, Stream, Write

CORES = 2


class Queries:
    """Queries in one session. A streaming query gets a checkpoint of its own in `folder`."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def run(self, query: Query) -> Result:
        """Run a query to its end."""
        begin = time.perf_counter()
        batches_ms: tuple[float, ...] = ()
        match query:
            case Read():
                rows = self._read(query)
            case Write():
                rows = self._write(query)
            case Stream():
                rows, batches_ms = self._stream(query)
        return Result(time.perf_counter() - begin, rows, _worker_bytes(), batches_ms=batches_ms)

    def _read(self, query: Read) -> int:
        frame = self._session.read.format(query.format).options(**query.options).load()
        rows: int = frame.selectExpr("count(*)", "sum(length(value))", query.aggregate).collect()[0][0]
        return rows

    def _write(self, query: Write) -> int:
        rows = self._session.range(query.rows).repartition(CORES).selectExpr(*query.columns)
        rows.write.format(query.format).mode("append").options(**query.options).save()
        return query.rows

    def _stream(self, query: Stream) -> tuple[int, tuple[float, ...]]:
        for name, value in query.configuration.items():
            self._session.conf.set(name, value)
        frame = self._session.readStream.format(query.format).options(**query.options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        running = writer.option("checkpointLocation", str(self._folder / uuid.uuid4().hex)).start()
        running.awaitTermination()
        for name in query.configuration:
            self._session.conf.unset(name)
        progress = running.recentProgress
        durations = tuple(float(each.durationMs["triggerExecution"]) for each in progress)
        return sum(each.numInputRows for each in progress), durations


def _worker_bytes() -> int:
    """Return the largest peak of resident memory (VmHWM) among the Python processes that the JVM has started."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended
        children[parent].append(int(stat.parent.name))
    found = [0]
    below = [jvm_child for jvm in children[os.getpid()] for jvm_child in children[jvm]]
    while below:
        pid = below.pop()
        below += children[pid]
        found.append(_peak_bytes(pid))
    return max(found)


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _session(folder: Path, jars: list[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    return builder.getOrCreate()


def main() -> None:
    """Answer queries until None comes."""
    socket, folder, *jars = sys.argv[1:]
    session = _session(Path(folder), jars)
    queries = Queries(session, Path(folder))
    with Listener(socket, "AF_UNIX") as listener:
        print(f"ready {session.version}", flush=True)
        with listener.accept() as connection:
            while (query := connection.recv()) is not None:
                try:
                    connection.send(queries.run(query))
                except Exception:  # noqa: BLE001 - the benchmark shows it
                    connection.send(traceback.format_exc())
    session.stop()


if __name__ == "__main__":
    main()
