"""Apache Kafka as one process with broker and controller (KRaft), in its own folder, without ZooKeeper.

The settings are Kafka's defaults except for those that a single node needs. Heap and garbage collector are those of
Kafka's start script, with a heap of 2 GiB.
"""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from bench.batch.programs import BenchBuild
from tests.interop.rocketmq_java import WatchedProcess, free_port_run, java

HEAP = "2g"
START_TIMEOUT_S = 60.0
_STARTED = "Kafka Server started"
_COLLECTOR = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]


class KafkaServer:
    """A single Kafka node."""

    def __init__(self, build: BenchBuild, folder: Path) -> None:
        self._build = build
        self._folder = folder
        self._port = free_port_run(before=0, after=1)
        self._process: WatchedProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Format the folder, start the node, and wait until it serves; raises ProcessError."""
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings().items()))
        format_arguments = ["format", "-t", _cluster_id(), "-c", str(properties)]
        self._java("kafka.tools.StorageTool", format_arguments, ["-Xmx256m"]).finish(START_TIMEOUT_S)
        self._process = self._java("kafka.Kafka", [str(properties)], [f"-Xms{HEAP}", f"-Xmx{HEAP}", *_COLLECTOR])
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
        """Return server.properties for a single node."""
        controller = f"127.0.0.1:{self._port + 1}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "store"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
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


def _cluster_id() -> str:
    """Return a random cluster id: 16 bytes in URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
