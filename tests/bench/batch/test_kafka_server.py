"""The settings of a single Kafka node, without starting it."""

from __future__ import annotations

from pathlib import Path

from bench.batch.kafka_server import KafkaServer
from bench.batch.programs import BenchBuild


def test_one_node_is_broker_and_controller_on_two_free_ports(tmp_path: Path) -> None:
    server = KafkaServer(BenchBuild(tmp_path / "build"), tmp_path)
    settings = server.settings()
    broker, controller = settings["listeners"].split(",")
    assert broker == f"PLAINTEXT://{server.address}"
    assert settings["controller.quorum.voters"] == "1@" + controller.removeprefix("CONTROLLER://")
    assert int(controller.rpartition(":")[2]) == int(broker.rpartition(":")[2]) + 1
    assert Path(settings["log.dirs"]).parent == tmp_path
    server.kill()  # no effect without a running process
