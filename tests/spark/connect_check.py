"""Test of the connector through Spark Connect: reads, writes, streams and listeners of a client without a JVM.

    make test-spark-connect

It is not part of `make test-spark`, because the client needs packages (gRPC, pandas) that no other test needs, and
therefore runs in its own environment. Server and client share the machine and the environment. On a cluster the package
must be installed where the server, its driver and the executors run, and at the client only for listeners.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from demo.broker_process import running_broker
from pyspark_raptormq import LagListener
from pyspark_raptormq.metrics import Lag

COUNT = 500


def read(session: SparkSession, name_server: str, topic: str) -> DataFrame:
    """Return a topic as a DataFrame."""
    reader = session.read.format("raptormq").option("nameServer", name_server).option("subscribe", topic)
    return reader.load()


def check(session: SparkSession, name_server: str, checkpoint: Path) -> None:
    """Write, read and stream; raises an error for a wrong result."""
    rows = session.range(COUNT).selectExpr("concat('b', id) AS value", "array(concat('k', id)) AS keys")
    writer = rows.write.format("raptormq").mode("append").option("nameServer", name_server)
    writer.option("topic", "first").save()
    found = read(session, name_server, "first")
    assert found.count() == COUNT
    assert found.where("key = 'k7'").selectExpr("CAST(value AS string)").collect()[0][0] == "b7"

    wrong = session.range(1).selectExpr("1 AS value").write.format("raptormq").mode("append")
    with pytest.raises(AnalysisException, match="column value must be binary or string, not int"):
        wrong.option("nameServer", name_server).option("topic", "first").save()

    lags: list[Lag] = []
    session.streams.addListener(LagListener(lags.append))
    stream = session.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", "first")
    frame = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200").load()
    sink = frame.select("value", "keys").writeStream.format("raptormq").option("nameServer", name_server)
    query = sink.option("topic", "second").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    running = query.start()
    assert running.awaitTermination(120)
    behind = [json.loads(each["sources"][0]["latestOffset"])["offsetsBehindLatest"] for each in running.recentProgress]
    assert [each["first"]["total"] for each in behind] == [300, 100, 0], behind
    assert read(session, name_server, "second").count() == COUNT
    sys.stdout.write(f"read, written and streamed {COUNT} rows; lags told so far: {[lag.total for lag in lags]}\n")


def main() -> None:
    """Start a broker, a server and a client."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="raptormq-connect-") as name, running_broker(Path(name)) as name_server:
        session = SparkSession.builder.remote("local[2]").getOrCreate()
        try:
            check(session, name_server, Path(name) / "checkpoint")
        finally:
            session.stop()


if __name__ == "__main__":
    main()
