"""Apache Kafka as three nodes on one machine, each with broker and controller (KRaft), and two copies of each topic."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.batch.kafka_server import KafkaServer, new_cluster_id
from bench.batch.programs import BenchBuild

NODES = 3
REPLICAS = 2
_HEAP = "1g"


class KafkaCluster:
    """The nodes of one cluster."""

    def __init__(self, build: BenchBuild, folder: Path) -> None:
        self._nodes = []
        for number in range(1, NODES + 1):
            own = folder / f"kafka-{number}"
            own.mkdir(parents=True)
            self._nodes.append(KafkaServer(build, own, number, _HEAP))
        cluster_id, voters = new_cluster_id(), [node.voter for node in self._nodes]
        for node in self._nodes:
            node.join(voters, REPLICAS, cluster_id)

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self._nodes)

    @property
    def pid(self) -> int:
        """Process id of the first node."""
        return self._nodes[0].pid

    def start(self) -> None:
        """Start the nodes together, because one alone has no quorum; raises ProcessError."""
        with ThreadPoolExecutor(NODES) as threads:
            list(threads.map(KafkaServer.start, self._nodes))

    def kill(self) -> None:
        """Send SIGKILL; the data is not needed afterwards."""
        for node in self._nodes:
            node.kill()
