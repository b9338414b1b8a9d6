"""The three systems, each started with an empty folder and always stopped.

The brokers of RocketMQ and Kafka have a heap of 2 GiB. Stored data is not needed after a run, so the two Java
brokers are killed; a clean shutdown takes about ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from bench.batch.kafka_server import KafkaServer
from bench.batch.programs import BenchBuild
from bench.peers import ROCKETMQ_HEAP, broker_pid
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, ProcessError, Release, RocketMQServers


class System(StrEnum):
    """A system to measure."""

    RAPTORMQ = "RaptorMQ"
    ROCKETMQ = "Apache RocketMQ 5.5.0"
    KAFKA = "Apache Kafka 4.3.1"


@dataclass(frozen=True)
class Running:
    """A running system."""

    address: str
    """Address of the name server, or of Kafka's broker."""
    broker_pid: int
    tells_index_lag: bool


@dataclass(frozen=True)
class Builds:
    """Builds of the programs; None for a program that is not used."""

    servers: JavaBuild | None
    """Build of Apache RocketMQ."""
    bench: BenchBuild | None
    """Build of the load programs with the official clients, and of Kafka."""


class Startable(Protocol):
    """A server with its own ports."""

    def start(self) -> None:
        """Start the server; raises ProcessError."""

    def kill(self) -> None:
        """Kill the server."""


S = TypeVar("S", bound=Startable)


@contextmanager
def running(system: System, builds: Builds, folder: Path) -> Iterator[Running]:
    """Start `system`; raises ProcessError."""
    if system is System.RAPTORMQ:
        with RaptorMQDev(folder) as ours:
            yield Running(ours.name_servers, broker_pid(ours), tells_index_lag=True)
    elif system is System.ROCKETMQ:
        with started(lambda attempt: _rocketmq(builds, folder / attempt)) as servers:
            yield Running(servers.name_servers, broker_pid(servers), tells_index_lag=True)
    else:
        with started(lambda attempt: _kafka(builds, folder / attempt)) as kafka:
            yield Running(kafka.address, kafka.pid, tells_index_lag=False)


@contextmanager
def started(make: Callable[[str], S]) -> Iterator[S]:
    """Start the server that `make` creates, and kill it at the end.

    If the start fails, a second server is created, because another process may have taken the chosen port.
    """
    try:
        server = make("first")
        server.start()
    except ProcessError:
        server = make("second")
        server.start()
    try:
        yield server
    finally:
        server.kill()


def _rocketmq(builds: Builds, folder: Path) -> RocketMQServers:
    assert builds.servers is not None
    folder.mkdir()
    settings = {"diskMaxUsedSpaceRatio": "95"}
    return RocketMQServers(builds.servers, folder, heap=ROCKETMQ_HEAP, settings=settings, release=Release.NEWEST)


def _kafka(builds: Builds, folder: Path) -> KafkaServer:
    assert builds.bench is not None
    folder.mkdir()
    return KafkaServer(builds.bench, folder)
