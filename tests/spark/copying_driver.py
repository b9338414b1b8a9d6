"""Driver of the rounds of kills: copies a topic with two queries until a file tells it to end.

    python -m tests.spark.copying_driver NAME_SERVER SOURCE ONCE AT_LEAST_ONCE FOLDER

Query `once` writes the topic ONCE through the exactly-once sink, query `least` the other one. Their checkpoints are in
FOLDER. When FOLDER/end exists, the driver copies the rest and ends with 0.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

OFFSETS_PER_BATCH = 80
_POLL_S = 1


def main(name_server: str, source: str, once: str, least: str, folder: Path) -> None:
    """Run the driver."""
    session = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
    reader = session.readStream.format("raptormq").option("nameServer", name_server).option("subscribe", source)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
    queries = []
    for name, topic, more in (("once", once, {"exactlyOnce": "true"}), ("least", least, {})):
        writer = reader.load().select("value").writeStream.queryName(name).format("raptormq").options(**more)
        writer = writer.option("nameServer", name_server).option("topic", topic)
        queries.append(writer.option("checkpointLocation", str(folder / name)).start())
    while not (folder / "end").exists():
        session.streams.awaitAnyTermination(_POLL_S)
        assert all(query.isActive for query in queries)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    session.stop()


if __name__ == "__main__":
    _, servers, given, first, second, path = sys.argv
    main(servers, given, first, second, Path(path))
