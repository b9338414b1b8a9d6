"""The second stage: a Spark structured streaming job on this machine counts what it reads from the topic.

The trigger is AvailableNow: the query takes what the topic holds when it starts, in micro-batches, and ends by itself.
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
    """A local session with two cores whose files all lie in `folder`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers start whatever python3 is on the PATH
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # else Spark warns about host names that mean this machine
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("raptormq-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")  # the default of 200 costs more than the job itself
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
    """Run the job to its end and return the figures per package; `on_counted` hears the rows read so far."""
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
