"""What Spark's Python processes import: every module costs time in each of many short processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

READ = """
from pyspark_raptormq.options import parse_source_options
from pyspark_raptormq.reader import RaptorMQReader
from pyspark_raptormq.stream_reader import RaptorMQStreamReader
for streaming, reader in ((False, RaptorMQReader), (True, RaptorMQStreamReader)):
    reader(parse_source_options({"nameServer": "127.0.0.1:1", "subscribe": "t"}, streaming=streaming))
from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.connection import Connection
cluster_of(Connection(("127.0.0.1:1",))).close()
"""
UNUSED = (
    "pyspark_raptormq.sink",
    "pyspark_raptormq.metrics",
    "prometheus_client",
    "raptormq.client.admin",
    "raptormq.client.blocking",
    "raptormq.client.producer",
    "raptormq.client.trace",
    "raptormq.client.consumer.pop",
    "raptormq.client.consumer.push",
    "raptormq.client.consumer.rebalance",
)


def imported(code: str) -> set[str]:
    """Return the modules that code imports in a new process, without those of Spark and Arrow."""
    script = (
        "import sys, pyspark.sql.datasource, pyspark.sql.streaming.datasource, pyarrow.compute\n"
        f"before = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_a_process_that_only_registers_the_source_imports_almost_nothing() -> None:
    ours = imported("import pyspark_raptormq; pyspark_raptormq.DefaultSource")
    assert {"pyspark_raptormq", "pyspark_raptormq.source"} <= ours
    assert len(ours) <= 10


def test_a_process_that_reads_imports_neither_the_sink_nor_other_clients() -> None:
    ours = imported(READ)
    assert {"pyspark_raptormq.scan", "raptormq.client.consumer.pull_consumer"} <= ours
    assert [name for name in sorted(ours) if name.startswith(UNUSED)] == []
    assert len(ours) <= 230
