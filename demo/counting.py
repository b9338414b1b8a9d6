"""Second stage: a local Spark streaming job counts the messages of the topic.

With the trigger AvailableNow the query reads all messages that the topic has at its start, in micro-batches, and
then ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from demo.sending import TOPIC
from demo.source_lines import Figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MESSAGES_PER_MICRO_BATCH = 200_000
PROGRESS_EVERY_S = 1
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Return a local Spark session with two cores and all its files in `folder`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers use the first python3 on the PATH
    os.environ["SPARK_LOCAL_IP"] = (
        "127.0.0.1"  # prevents warnings about host names that resolve to the loopback address
    )
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("raptormq-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")  # the default of 200 takes longer than the job itself
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG_SETTINGS}")
        .getOrCreate()
    )
    try:
        yield session
    finally:
        session.stop()


def count_with_spark(
    session: SparkSession, name_server: str, folder: Path, on_counted: Callable[[int], None]
) -> dict[str, Figures]:
    """Run the job and return the figures per package. `on_counted` is called with the number of rows read so far."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    messages = (
        session.readStream.format("raptormq")
        .option("nameServer", name_server)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(MESSAGES_PER_MICRO_BATCH))
        .option("columns", "tags,value")
        .load()
    )
    per_package = messages.groupBy("tags").agg(
        F.count("*").alias("lines"), F.sum(F.length("value")).alias("size"), F.sum(F.crc32("value")).alias("checksum")
    )
    query = (
        per_package.writeStream.format("memory")
        .queryName("counted")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    while not query.awaitTermination(PROGRESS_EVERY_S):
        on_counted(_rows_read(query))
    on_counted(_rows_read(query))
    rows = session.table("counted").collect()
    return {row["tags"]: Figures(row["lines"], row["size"], row["checksum"]) for row in rows}


def _rows_read(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)
