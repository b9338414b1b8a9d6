"""Streaming job that maintains the results of spark_flights_batch.py, exact even after failures of the driver.

    spark-submit spark_flights_stream.py NAME_SERVERS TOPIC STATE_FOLDER [--until FLIGHTS]

Spark repeats an uncommitted micro-batch with exactly the same messages. The flights of each batch are written to a
temporary file, which is then renamed to the name of the batch, so a repeated batch replaces its file. The checkpoint
and these files are in STATE_FOLDER, a volume of the driver; executors do not need it. A key in two batches, from a
retry of the producer, is counted once when the files are combined.

After each batch a line with BATCH and a JSON object is printed to standard output. With --until the job ends when
that many flights have been read, and prints the results like the batch job.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

FLIGHT = "origin string, delay long, distance long"
LOOK_EVERY_S = 1


class FlightFiles:
    """Flights read so far, with one file of JSON lines per micro-batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.flights: dict[str, dict[str, Any]] = {}
        """Flights by key, from the files of earlier runs and of this run."""
        for path in sorted(folder.glob("batch-*.jsonl")):
            self._count(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Store the flights of a batch atomically."""
        rows = [row.asDict() for row in frame.collect()]
        target = self._folder / f"batch-{batch_id:09d}.jsonl"
        unfinished = target.with_suffix(".part")
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
        self._count(rows)
        print("BATCH", json.dumps({"batch": batch_id, "rows": len(rows), "flights": len(self.flights)}), flush=True)

    def _count(self, rows: Any) -> None:
        self.flights.update((row["key"], row) for row in rows)

    def totals(self) -> list[dict[str, Any]]:
        """Return flights, delay and distance per origin, in order."""
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for flight in self.flights.values():
            row = sums[flight["origin"]]
            row[0] += 1
            row[1] += flight["delay"]
            row[2] += flight["distance"]
        return [
            {"origin": origin, "flights": flights, "delay": delay, "distance": distance}
            for origin, (flights, delay, distance) in sorted(sums.items())
        ]


def main() -> None:
    """Run the job."""
    parser = argparse.ArgumentParser(description="flights per origin, as they come")
    parser.add_argument("name_servers", help="host:port of the name servers, separated by ';'")
    parser.add_argument("topic")
    parser.add_argument("state", type=Path, help="a folder that survives the driver")
    parser.add_argument("--until", type=int, help="end when this many flights are there")
    parser.add_argument("--max-offsets", type=int, default=100_000, help="messages per micro-batch")
    parser.add_argument("--every", default="1 second", help="trigger interval")
    arguments = parser.parse_args()
    session = SparkSession.builder.appName("flights-stream").getOrCreate()
    messages = (
        session.readStream.format("raptormq")
        .option("nameServer", arguments.name_servers)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.max_offsets)
        .option("columns", "key,value")
        .load()
    )
    flights = messages.select("key", F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"))
    files = FlightFiles(arguments.state / "flights")
    query = (
        flights.select("key", "flight.*")
        .writeStream.foreachBatch(files.write)
        .option("checkpointLocation", (arguments.state / "checkpoint").absolute().as_uri())
        .trigger(processingTime=arguments.every)
        .start()
    )
    while not query.awaitTermination(LOOK_EVERY_S):
        if arguments.until is not None and len(files.flights) >= arguments.until:
            query.stop()
    for row in files.totals():
        print("RESULT", json.dumps(row), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
