"""Apache Kafka as one process with broker and controller (KRaft), in its own folder, without ZooKeeper.

The settings are Kafka's defaults except for those that a node needs. A node is alone unless it joins others
(:mod:`bench.kafka_cluster`). The garbage collector is that of Kafka's start script, with a heap of 2 GiB.
"""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from bench.batch.programs import BenchBuild
from tests.interop.rocketmq_java import WatchedProcess, java
from tests.ports import free_port_run

HEAP = "2g"
START_TIMEOUT_S = 60.0
_STARTED = "Kafka Server started"
_COLLECTOR = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]


class KafkaServer:
    """A Kafka node."""

    def __init__(self, build: BenchBuild, folder: Path, number: int = 1, heap: str = HEAP, partitions: int = 1) -> None:
        """`number` is the id of the node, `partitions` the number of partitions of automatically created topics."""
        self._build = build
        self._folder = folder
        self._heap = heap
        self._number = number
        self._partitions = partitions
        self._port = free_port_run(before=0, after=1)
        self._voters = [self.voter]
        self._replicas = 1
        self._cluster_id = new_cluster_id()
        self._process: WatchedProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def voter(self) -> str:
        """Entry of the node in the list of voters."""
        return f"{self._number}@127.0.0.1:{self._port + 1}"

    def join(self, voters: list[str], replicas: int, cluster_id: str) -> None:
        """Make the node one of several, before its start. Topics get `replicas` copies by default."""
        self._voters, self._replicas, self._cluster_id = voters, replicas, cluster_id

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Format the folder, start the node, and wait until it serves; raises ProcessError."""
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
        format_arguments = ["format", "-t", self._cluster_id, "-c", str(properties)]
        self._java("kafka.tools.StorageTool", format_arguments, ["-Xmx256m"]).finish(START_TIMEOUT_S)
        self._process = self._java(
            "kafka.Kafka", [str(properties)], [f"-Xms{self._heap}", f"-Xmx{self._heap}", *_COLLECTOR]
        )
        try:
            self._process.wait_for(_STARTED, START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Send SIGKILL; the data is not needed afterwards."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def settings(self) -> dict[str, str]:
        """Return server.properties."""
        controller = self.voter.partition("@")[2]
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._number),
            "controller.quorum.voters": ",".join(self._voters),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "store"),
            "num.partitions": str(self._partitions),
            "default.replication.factor": str(self._replicas),
            "offsets.topic.replication.factor": str(self._replicas),
            "transaction.state.log.replication.factor": str(self._replicas),
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _java(self, main_class: str, arguments: list[str], options: list[str]) -> WatchedProcess:
        return java(
            main_class,
            arguments,
            class_path=self._build.kafka_server_class_path,
            log=self._folder / "kafka.log",
            options=[*options, f"-Dlog4j.configuration=file:{self._build.log4j_configuration}"],
            folder=self._folder,
        )


def new_cluster_id() -> str:
    """Return a random cluster id: 16 bytes in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
