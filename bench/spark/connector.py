"""A connector with its broker and its Spark session, as the benchmark measures it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from bench.batch.kafka_server import KafkaServer
from bench.batch.programs import BenchBuild
from bench.batch.systems import started
from bench.spark.requests import Query, Result
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError, WatchedProcess

ROOT = Path(__file__).resolve().parents[2]
KAFKA_PYSPARK = "4.2.0"
"""The newest version of Spark with a Kafka connector on Maven Central; the same as in bench/java/pom.xml."""
QUEUES = 4
_START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 60.0


class Session:
    """A process with a Spark session, see `bench.spark.session`."""

    def __init__(self, process: WatchedProcess, connection: Any) -> None:
        self._process = process
        self._connection = connection

    def run(self, query: Query) -> Result:
        """Run a query; raises ProcessError."""
        try:
            self._connection.send(query)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessError(f"the Spark session ended early:\n{self._process.tail()}") from error
        if not isinstance(answer, Result):
            raise ProcessError(f"Spark could not run {query}:\n{answer}")
        return answer


@dataclass(frozen=True)
class Connector:
    """A running broker and session."""

    name: str
    format: str
    address: str
    session: Session
    last_offset: str
    """Aggregate of the column with the offset, which a batch read computes."""
    _address_option: str
    fill_options: dict[str, str]
    """Options of the sink for filling a topic, so that both systems store batches of 128 KiB."""
    fill_columns: tuple[str, ...]
    """Columns for filling a topic besides the body."""

    def source(self, topic: str, **options: str) -> dict[str, str]:
        """Return the options for reading a topic from its first message."""
        place = {self._address_option: self.address, "subscribe": topic, "startingOffsets": "earliest"}
        return place | options

    def sink(self, topic: str, **options: str) -> dict[str, str]:
        """Return the options for writing to a topic."""
        return {self._address_option: self.address, "topic": topic} | options


@contextmanager
def raptormq(folder: Path) -> Iterator[Connector]:
    """Start `raptormq dev`, and a session of this Python environment with our data source."""
    with (
        RaptorMQDev(folder / "broker", settings={"stagedMessagesEnable": "true"}) as broker,
        _session(folder, [sys.executable], []) as session,
    ):
        yield Connector(
            "RaptorMQ",
            "raptormq",
            broker.name_servers,
            session,
            "max(queueOffset)",
            "nameServer",
            {},
            ("array(concat('k', id)) AS keys", "'JFK' AS tags"),
        )


@contextmanager
def kafka(build: BenchBuild, folder: Path) -> Iterator[Connector]:
    """Start Apache Kafka, and a session of PySpark with the Kafka connector in an environment that uv creates."""
    uv = str(Path(sys.executable).with_name("uv"))
    python = [uv, "run", "--quiet", "--isolated", "--no-project", "--python", sys.executable]
    python += ["--with", f"pyspark=={KAFKA_PYSPARK}", "python"]

    def server(attempt: str) -> KafkaServer:
        place = folder / f"broker-{attempt}"
        place.mkdir()
        return KafkaServer(build, place, partitions=QUEUES)

    with started(server) as broker, _session(folder, python, build.spark_kafka_jars) as session:
        yield Connector(
            "Kafka connector",
            "kafka",
            broker.address,
            session,
            "max(offset)",
            "kafka.bootstrap.servers",
            {"kafka.batch.size": str(128 * 1024), "kafka.linger.ms": "5"},
            ("concat('k', id) AS key",),
        )


@contextmanager
def _session(folder: Path, python: Sequence[str], jars: Sequence[Path]) -> Iterator[Session]:
    """Start a session; raises ProcessError."""
    socket = folder / "session.socket"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = WatchedProcess(
        "the Spark session",
        [*python, "-m", "bench.spark.session", str(socket), str(folder / "spark"), *map(str, jars)],
        log=folder / "spark.log",
        environment=environment,
        folder=ROOT,
    )
    try:
        process.wait_for("ready", _START_TIMEOUT_S)
        with Client(str(socket), "AF_UNIX") as connection:
            yield Session(process, connection)
            connection.send(None)
        process.finish(_STOP_TIMEOUT_S)
    except BaseException:
        process.stop()
        raise
