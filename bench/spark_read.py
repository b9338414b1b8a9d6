"""Rates at which Spark reads and writes, compared with a plain Python client with as many processes on the same queues.

    python -m bench.spark_read [--messages 400000] [--body 1024] [--rounds 3]

One `raptormq dev`, four queues. "client, records" receives responses without decoding them; "client, decoded"
creates a message object per record; Spark counts the rows and sums the lengths of the bodies. Broker and readers
share the machine, so only the ratios are meaningful. `pyspark_raptormq.scan` is measured separately, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from demo.broker_process import running_broker
from demo.counting import spark_session
from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.columns import DEFAULT_COLUMNS, PROPERTIES_COLUMN, PropertiesAs
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange
from pyspark_raptormq.scan import scan
from raptormq.client import AdminClient, ClientConfig, Message, MessageQueue, Producer, PullConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

TOPIC = "spark-read"
WRITE_TOPIC = "spark-write"
QUEUES = 4
PROCESSES = 2
LIST_MESSAGES = 64
PULL_BYTES = 1024 * 1024
TINY_BATCHES = 30
TINY_BATCH_ROWS = 10
ALL_COLUMNS = ",".join((*DEFAULT_COLUMNS, PROPERTIES_COLUMN))


@dataclass(frozen=True)
class Load:
    """The stored test messages."""

    name_server: str
    messages: int
    body_bytes: int

    @property
    def options(self) -> SourceOptions:
        """Return the options of the Spark source for reading all messages."""
        return SourceOptions(Connection((self.name_server,)), topics=(TOPIC,))


async def fill(load: Load) -> None:
    """Send the messages in lists."""
    async with AdminClient(name_servers=load.name_server) as admin:
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        await admin.create_topic(WRITE_TOPIC, QUEUES, QUEUES)
    bodies = [bytes([number]) * load.body_bytes for number in range(LIST_MESSAGES)]
    config = ClientConfig(name_servers=load.name_server, request_timeout=30.0)

    async def fill_queue(producer: Producer, number: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", number)
        for first in range(0, load.messages // QUEUES, LIST_MESSAGES):
            count = min(LIST_MESSAGES, load.messages // QUEUES - first)
            messages = [Message(TOPIC, bodies[n], tags="JFK", keys=(f"k{first + n}",)) for n in range(count)]
            await producer.send_batch(messages, queue=queue, timeout=30.0)

    async with Producer("bench", client_config=config) as producer:
        await asyncio.gather(*(fill_queue(producer, number) for number in range(QUEUES)))


async def _read_queues(load: Load, numbers: list[int], *, decode: bool) -> int:
    rows = 0
    async with PullConsumer(name_servers=load.name_server) as consumer:
        for number in numbers:
            queue = MessageQueue(TOPIC, "broker-a", number)
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, offset, end - offset, max_bytes=PULL_BYTES)
                rows += len(result.messages()) if decode else result.next_offset - offset
                offset = result.next_offset
    return rows


def read_records(load: Load, numbers: list[int]) -> int:
    """Read queues with the client without decoding the records."""
    return asyncio.run(_read_queues(load, numbers, decode=False))


def read_messages(load: Load, numbers: list[int]) -> int:
    """Read queues with the client and decode every record."""
    return asyncio.run(_read_queues(load, numbers, decode=True))


def _scan(load: Load, numbers: list[int], options: SourceOptions) -> int:
    cluster = cluster_of(options.connection)
    queues = [queue for queue in cluster.queues(TOPIC) if queue.queue_id in numbers]
    ends = cluster.max_offsets(queues)
    batches = (batch for queue in queues for batch in scan(QueueRange(queue, 0, ends[queue]), options, cluster))
    return sum(batch.num_rows for batch in batches)


def scan_default(load: Load, numbers: list[int]) -> int:
    """Read queues into Arrow batches, without Spark."""
    return _scan(load, numbers, load.options)


def scan_map(load: Load, numbers: list[int]) -> int:
    """Read queues into Arrow batches with the properties as a map."""
    columns = (*DEFAULT_COLUMNS, PROPERTIES_COLUMN)
    return _scan(load, numbers, replace(load.options, columns=columns, properties_as=PropertiesAs.MAP))


def in_processes(load: Load, read: Callable[[Load, list[int]], int], rounds: int) -> float:
    """Return the median of rows per second over all processes, including connecting but not the start of processes."""
    shares = [list(range(number, QUEUES, PROCESSES)) for number in range(PROCESSES)]
    rates = []
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for _ in range(rounds + 1):
            began = time.perf_counter()
            rows = sum(pool.starmap(read, [(load, share) for share in shares]))
            rates.append(rows / (time.perf_counter() - began))
    return statistics.median(rates[1:])


class SparkQueries:
    """Queries on the topic in one session."""

    def __init__(self, session: SparkSession, load: Load, folder: Path) -> None:
        self._session = session
        self._load = load
        self._folder = folder
        self._base = {"nameServer": load.name_server, "columns": ",".join(DEFAULT_COLUMNS)}

    def batch(self, rounds: int, **options: str) -> float:
        """Return the median of rows per second of a batch query, without the first run, which is slower."""
        rates: list[float] = []
        for _ in range(rounds + 1):
            reader = self._session.read.format("raptormq").options(**self._base | {"subscribe": TOPIC} | options)
            began = time.perf_counter()
            rows = reader.load().selectExpr("count(*)", "sum(length(value))", "max(queueOffset)").collect()[0][0]
            rates.append(rows / (time.perf_counter() - began))
        return statistics.median(rates[1:])

    def write(self, rounds: int, *columns: str) -> float:
        """Return the median of rows per second of a batch write, without the first run, which is slower."""
        value = f"cast(repeat('x', {self._load.body_bytes}) AS binary) AS value"
        rows = self._session.range(self._load.messages).repartition(PROCESSES).selectExpr(value, *columns)
        rates: list[float] = []
        for _ in range(rounds + 1):
            writer = rows.write.format("raptormq").mode("append").option("nameServer", self._load.name_server)
            began = time.perf_counter()
            writer.option("topic", WRITE_TOPIC).save()
            rates.append(self._load.messages / (time.perf_counter() - began))
        return statistics.median(rates[1:])

    def stream(self, batches: int) -> float:
        """Return rows per second of a stream with a number of batches, including its start."""
        limit = str(self._load.messages // batches)
        began = time.perf_counter()
        progress = self._run("large", subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        return sum(each.numInputRows for each in progress) / (time.perf_counter() - began)

    def tiny_batches(self) -> float:
        """Return the median duration of a batch of ten rows in ms."""
        start = {TOPIC: {"broker-a": {"0": self._load.messages // QUEUES - TINY_BATCHES * TINY_BATCH_ROWS}}}
        progress = self._run(
            "tiny",
            assign=json.dumps({TOPIC: {"broker-a": [0]}}),
            startingOffsets=json.dumps(start),
            maxOffsetsPerTrigger=str(TINY_BATCH_ROWS),
        )
        return statistics.median(float(each.durationMs["triggerExecution"]) for each in progress)

    def _run(self, name: str, **options: str) -> list[StreamingQueryProgress]:
        frame = self._session.readStream.format("raptormq").options(**self._base | options).load()
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / name)).start()
        query.awaitTermination()
        return [each for each in query.recentProgress if each.numInputRows]


def with_spark(load: Load, rounds: int) -> Iterator[tuple[str, float]]:
    """Yield name and value of each measurement in a session: rows per second, or ms for tiny batches."""
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as name, spark_session(Path(name)) as session:
        queries = SparkQueries(session, load, Path(name))
        yield "Spark, batch", queries.batch(rounds)
        yield "Spark, batch, properties as map", queries.batch(rounds, includeProperties="map", columns=ALL_COLUMNS)
        yield "Spark, batch, value and queueOffset only", queries.batch(rounds, columns="value,queueOffset")
        yield "Spark, batch, 8 tasks from 4 queues", queries.batch(rounds, minPartitions="8")
        yield "Spark, stream of 4 batches", queries.stream(4)
        yield "Spark, batch of 10 rows, ms", queries.tiny_batches()
        yield "Spark, write of bodies", queries.write(rounds)
        yield (
            "Spark, write with tags and keys",
            queries.write(rounds, "'JFK' AS tags", "array(concat('k', id)) AS keys"),
        )


def main() -> None:
    """Run the measurements and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_read")
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    table = Table(title=f"reading {arguments.messages:,} messages of {arguments.body} bytes, {PROCESSES} processes")
    table.add_column("reader")
    table.add_column("rows/s", justify="right")
    table.add_column("to client, records", justify="right")
    with tempfile.TemporaryDirectory(prefix="raptormq-bench-") as name, running_broker(Path(name)) as name_server:
        load = Load(name_server, arguments.messages, arguments.body)
        asyncio.run(fill(load))
        reference = in_processes(load, read_records, arguments.rounds)
        table.add_row("client, records", f"{reference:,.0f}", "1.00")
        for what, read in (
            ("client, decoded", read_messages),
            ("Arrow batches, no Spark", scan_default),
            ("Arrow batches, no Spark, properties as map", scan_map),
        ):
            rate = in_processes(load, read, arguments.rounds)
            table.add_row(what, f"{rate:,.0f}", f"{rate / reference:.2f}")
        for what, figure in with_spark(load, arguments.rounds):
            ratio = "" if what.endswith("ms") else f"{figure / reference:.2f}"
            table.add_row(what, f"{figure:,.0f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
