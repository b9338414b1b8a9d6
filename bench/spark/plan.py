"""The rows of the table: the measurements in their order, and the bounds for their values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench.batch.programs import build
from bench.output import errors
from bench.spark.comparison import Comparison, Series
from bench.spark.connector import QUEUES, Connector, kafka, raptormq
from bench.spark.readers import in_processes, read_by_client, read_prefetched
from bench.spark.requests import Query, Read, Result, Stream, Write
from pyspark_raptormq.cluster import cluster_of
from pyspark_raptormq.columns import DEFAULT_COLUMNS, PROPERTIES_COLUMN, PropertiesAs
from pyspark_raptormq.connection import Connection
from pyspark_raptormq.options import SourceOptions
from pyspark_raptormq.planner import QueueRange, ranges_between, split_ranges
from raptormq.client import AdminClient
from tests.interop.rocketmq_java import ProcessError

BODY_BYTES = 1024
SMALL_BATCH_ROWS = 100
TASKS = 2
READ_TOPIC, SMALL_TOPIC, WRITE_TOPIC = "spark-read", "spark-small", "spark-write"
BODY = f"cast(rpad(cast(id AS string), {BODY_BYTES}, 'x') AS binary) AS value"
_MB = 1_000_000
_NO_TAG = "nobody"
_FILE_MANAGER = "FileSystemBasedCheckpointFileManager"
_FILE_MANAGER_CLASS = f"org.apache.spark.sql.execution.streaming.checkpointing.{_FILE_MANAGER}"
_PROPERTIES = ",".join((*DEFAULT_COLUMNS, PROPERTIES_COLUMN))


@dataclass(frozen=True)
class Plan:
    """Numbers of runs, rows and batches."""

    runs: int
    rows: int
    """Number of rows of the topic that is read."""
    rows_per_trigger: int
    written: int
    """Number of rows of one write."""
    small_batches: int
    prefetched: int
    """Number of rows that the reader decodes from responses in memory."""


FULL = Plan(5, 2_000_000, 250_000, 500_000, 60, 200_000)
QUICK = Plan(1, 40_000, 10_000, 10_000, 5, 10_000)


class Measurement:
    """One run of the benchmark over running connectors.

    Args:
        plan: numbers of runs, rows and batches.
        ours: our data source.
        peer: the Kafka connector; None if no chosen row needs it.
    """

    def __init__(self, plan: Plan, ours: Connector, peer: Connector | None) -> None:
        self._plan = plan
        self._ours = ours
        self._peer = peer
        self._worker_bytes: list[float] = []

    def fill(self) -> None:
        """Write the messages that are read. Topics of RaptorMQ are of queue type BatchCQ."""
        asyncio.run(self._create_topics())
        for connector in filter(None, (self._ours, self._peer)):
            columns = (BODY, *connector.fill_columns)
            small = self._plan.small_batches * SMALL_BATCH_ROWS
            for topic, rows in ((READ_TOPIC, self._plan.rows), (SMALL_TOPIC, small)):
                errors.print(f"{connector.name}: writing {rows:,} rows to {topic}")
                options = connector.sink(topic, **connector.fill_options)
                connector.session.run(Write(connector.format, options, rows, columns))

    async def _create_topics(self) -> None:
        async with AdminClient(name_servers=self._ours.address) as admin:
            for topic in (READ_TOPIC, SMALL_TOPIC, WRITE_TOPIC):
                await admin.create_topic(topic, QUEUES, QUEUES, attributes={"queue.type": "BatchCQ"})

    def read(self) -> list[Comparison]:
        """Measure a batch read."""
        found = self._in_turn("read", {each.name: _reading(each) for each in self._connectors})
        self._check_rows(found, self._plan.rows)
        rates = _rates(found)
        what = "batch read, BatchCQ topic"
        return [Comparison(what, "rows/s", rates[self._ours.name], self._other(rates), at_least_times=1.2)]

    def stream(self) -> list[Comparison]:
        """Measure a stream with Trigger.AvailableNow."""
        limit = str(self._plan.rows_per_trigger)
        queries = {
            each.name: _running(each, Stream(each.format, each.source(READ_TOPIC, maxOffsetsPerTrigger=limit)))
            for each in self._connectors
        }
        found = self._in_turn("stream", queries)
        self._check_rows(found, self._plan.rows)
        rates = _rates(found)
        what = f"AvailableNow stream, {self._plan.rows_per_trigger:,} rows per trigger"
        return [Comparison(what, "rows/s", rates[self._ours.name], self._other(rates), at_least_times=1.0)]

    def micro_batch(self) -> list[Comparison]:
        """Measure micro-batches of 100 rows, and of 100 offsets without a matching row (Kafka has no such filter)."""

        def stream(
            connector: Connector, configuration: dict[str, str] | None = None, **more: str
        ) -> Callable[[], Result]:
            options = connector.source(SMALL_TOPIC, maxOffsetsPerTrigger=str(SMALL_BATCH_ROWS), **more)
            return _running(connector, Stream(connector.format, options, configuration or {}))

        queries = {each.name: stream(each) for each in self._connectors}
        queries[_FILE_MANAGER] = stream(
            self._ours, {"spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER_CLASS}
        )
        queries["without rows"] = stream(self._ours, subExpression=_NO_TAG)
        found = self._in_turn("micro-batch", queries)
        empty = found.pop("without rows")
        self._check_rows(found, self._plan.small_batches * SMALL_BATCH_ROWS)
        self._check_rows({"without rows": empty}, 0)
        rows = []
        batches = {name: Series(name, _durations(results)) for name, results in found.items()}
        longest = {name: Series(name, (max(each.values),)) for name, each in batches.items()}
        what = f"micro-batch of {SMALL_BATCH_ROWS} rows"
        ours = self._ours.name
        rows.append(Comparison(f"{what}, median", "ms", batches[ours], self._other(batches), at_most=200.0))
        rows.append(Comparison(f"{what}, longest", "ms", longest[ours], self._other(longest), at_most=1000.0))
        rows.append(Comparison(f"{what}, {_FILE_MANAGER}", "ms", batches[_FILE_MANAGER], batches[ours]))
        durations = _durations(empty)
        rows.append(Comparison("empty micro-batch, median", "ms", Series(ours, durations), at_most=200.0))
        rows.append(Comparison("empty micro-batch, longest", "ms", Series(ours, (max(durations),)), at_most=1000.0))
        return rows

    def write(self) -> list[Comparison]:
        """Measure a batch write of bodies, at least once and exactly once."""

        def writing(connector: Connector, **options: str) -> Callable[[], Result]:
            place = connector.sink(WRITE_TOPIC, **options)
            return _running(connector, Write(connector.format, place, self._plan.written, (BODY,)))

        queries = {each.name: writing(each) for each in self._connectors}
        queries["exactly once"] = writing(self._ours, exactlyOnce="true")
        rates = _rates(self._in_turn("write", queries))
        plain, once = rates[self._ours.name], rates["exactly once"]
        return [
            Comparison("write, at least once", "rows/s", plain, self._other(rates), at_least_times=1.5),
            Comparison("write, exactly once", "rows/s", once, replace(plain, name="at least once"), at_least_times=0.8),
            Comparison("write, exactly once", "rows/s", once, self._other(rates)),
        ]

    def options(self) -> list[Comparison]:
        """Measure the effect of options on batch read and write."""
        whole = {"as it is": _reading(self._ours)}
        variants = {
            "columns=value,queueOffset": {"columns": "value,queueOffset"},
            "includeProperties=map": {"includeProperties": "map", "columns": _PROPERTIES},
            "minPartitions=8": {"minPartitions": "8"},
        }
        whole |= {name: _reading(self._ours, **options) for name, options in variants.items()}
        found = self._in_turn("options", whole)
        self._check_rows(found, self._plan.rows)
        rates = _rates(found)
        plain = rates.pop("as it is")
        rows = [Comparison(f"batch read, {name}", "rows/s", rate, plain) for name, rate in rates.items()]
        writes = {
            "only bodies": (BODY,),
            "write with tags and keys": (BODY, *self._ours.fill_columns),
        }
        place = self._ours.sink(WRITE_TOPIC)
        rates = _rates(
            self._in_turn(
                "options",
                {
                    name: _running(self._ours, Write(self._ours.format, place, self._plan.written, columns))
                    for name, columns in writes.items()
                },
            )
        )
        plain = rates.pop("only bodies")
        return rows + [Comparison(name, "rows/s", rate, plain) for name, rate in rates.items()]

    def reader(self) -> list[Comparison]:
        """Measure the reader without Spark on responses in memory: in one process, with a map of properties, and in two
        processes; and the plain client."""
        errors.print("measuring: reader")
        options = SourceOptions(Connection((self._ours.address,)), topics=(READ_TOPIC,))
        as_map = replace(options, columns=(*DEFAULT_COLUMNS, PROPERTIES_COLUMN), properties_as=PropertiesAs.MAP)
        whole = self._ranges(options)
        first = replace(whole[0], end=min(whole[0].end, self._plan.prefetched))
        runs = self._plan.runs
        one = Series("one process", in_processes(read_prefetched, [first], options, runs))
        mapped = Series("map", in_processes(read_prefetched, [first], as_map, runs))
        two = Series("two processes", in_processes(read_prefetched, split_ranges([first], TASKS), options, runs))
        shares = [whole[number::TASKS] for number in range(TASKS)]
        client = Series("client", in_processes(read_by_client, shares, options, runs))
        return [
            Comparison("reader alone, on responses in memory", "rows/s", one, at_least=600_000),
            Comparison("the same with properties as map", "rows/s", mapped, one, at_least_times=0.5),
            Comparison("the same, one queue split over 2 tasks", "rows/s", two, one, at_least_times=1.6),
            Comparison("plain client, 2 processes, records not decoded", "rows/s", client),
        ]

    def worker_memory(self) -> list[Comparison]:
        """Return the memory of the largest Python process in all queries of our data source so far."""
        if not self._worker_bytes:
            return []
        largest = Series(self._ours.name, (max(self._worker_bytes) / _MB,))
        return [Comparison("largest Python worker", "MB", largest, at_most=256.0)]

    @property
    def _connectors(self) -> list[Connector]:
        return [each for each in (self._ours, self._peer) if each is not None]

    def _ranges(self, options: SourceOptions) -> list[QueueRange]:
        cluster = cluster_of(options.connection)
        queues = cluster.queues(READ_TOPIC)
        ranges = ranges_between(cluster.min_offsets(queues), cluster.max_offsets(queues))
        cluster.close()
        return ranges

    def _other(self, series: Mapping[str, Series]) -> Series | None:
        return None if self._peer is None else series[self._peer.name]

    def _in_turn(self, row: str, queries: Mapping[str, Callable[[], Result]]) -> dict[str, list[Result]]:
        """Run the queries in turn, every second turn in reverse order. Results of the first turn are not used."""
        found: dict[str, list[Result]] = {name: [] for name in queries}
        for run in range(self._plan.runs + 1):
            for name in list(queries)[:: -1 if run % 2 else 1]:
                result = queries[name]()
                if self._peer is None or name != self._peer.name:
                    self._worker_bytes.append(result.worker_bytes)
                counts = "does not count" if run == 0 else f"run {run}"
                errors.print(f"{row}, {name}, {counts}: {result.seconds:.2f} s", highlight=False)
                if run:
                    found[name].append(result)
        return found

    def _check_rows(self, found: Mapping[str, list[Result]], rows: int) -> None:
        for name, results in found.items():
            if wrong := {each.rows for each in results} - {rows}:
                raise ProcessError(f"{name} has read {sorted(wrong)} rows instead of {rows}")


def _running(connector: Connector, query: Query) -> Callable[[], Result]:
    return lambda: connector.session.run(query)


def _reading(connector: Connector, **options: str) -> Callable[[], Result]:
    return _running(connector, Read(connector.format, connector.source(READ_TOPIC, **options), connector.last_offset))


def _rates(found: Mapping[str, list[Result]]) -> dict[str, Series]:
    return {name: Series(name, tuple(each.rate for each in results)) for name, results in found.items()}


def _durations(results: list[Result]) -> tuple[float, ...]:
    return tuple(ms for each in results for ms in each.batches_ms)


ROWS: dict[str, Callable[[Measurement], list[Comparison]]] = {
    "read": Measurement.read,
    "stream": Measurement.stream,
    "micro-batch": Measurement.micro_batch,
    "write": Measurement.write,
    "options": Measurement.options,
    "reader": Measurement.reader,
}
_BESIDE_KAFKA = frozenset({"read", "stream", "micro-batch", "write"})


def measure(plan: Plan, only: tuple[str, ...], folder: Path) -> list[Comparison]:
    """Measure the rows of ``ROWS``, or only those named. Raises BuildError, ProcessError."""
    chosen = [name for name in ROWS if not only or name in only]
    with ExitStack() as opened:
        places = [folder / name for name in ("raptormq", "kafka")]
        for place in places:
            place.mkdir()
        peer = None
        if _BESIDE_KAFKA.intersection(chosen):
            peer = opened.enter_context(kafka(build(), places[1]))
        measurement = Measurement(plan, opened.enter_context(raptormq(places[0])), peer)
        measurement.fill()
        found = [comparison for name in chosen for comparison in ROWS[name](measurement)]
        return found + measurement.worker_memory()
