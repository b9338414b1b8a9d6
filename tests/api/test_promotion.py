"""A promotion on a real API server: the operator that began it is killed, and another one completes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raptormq.protocol.bodies.replication import MASTER_SLAVE, CopyState, ReplicationState
from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.peers import BROKER_PORT, broker
from tests.api.resources import OURS, make, peers, reasons
from tests.api.stand_ins import settling

PROMOTE = {"spec": {"replication": {"promote": "demo-broker-0-1"}}}


def say(folder: Path, namespace: str, index: int, role: str, end: int) -> None:
    """Make a broker report this replication state."""
    host = broker(namespace, "demo", 0, index)
    address = f"{host}:{BROKER_PORT}"
    own = (CopyState(address, address, role, 0, None, True),) if role == "slave" else ()
    state = ReplicationState("broker-0", MASTER_SLAVE, address, role, 0, "", end, end, address, own)
    written = folder / f"new-{host}"
    written.write_bytes(state.to_json())
    written.rename(folder / f"replication-{host}")


class Demo:
    """The cluster as stored by the API server."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self.path = f"{OURS}/namespaces/{namespace}/brokerclusters/demo"

    def patch(self, patch: dict[str, Any]) -> None:
        self._plane.request("PATCH", self.path, patch, "application/merge-patch+json")

    def promotion(self) -> dict[str, Any]:
        found: dict[str, Any] = self._plane.request("GET", self.path).get("status", {}).get("promotion", {})
        return found

    def roles(self) -> list[str]:
        """Return the `brokerRole` of both members according to their ConfigMaps."""
        where = f"/api/v1/namespaces/{self._namespace}/configmaps/demo-broker-0-"
        files = [self._plane.request("GET", f"{where}{index}")["data"]["broker.conf"] for index in range(2)]
        return [next(line for line in file.splitlines() if line.startswith("brokerRole"))[11:] for file in files]


async def test_an_operator_that_is_killed_in_a_promotion_leaves_no_second_master_and_the_next_one_ends_it(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    plane, demo = shared_plane, Demo(shared_plane, namespace)
    say(tmp_path, namespace, 0, "master", 1000)
    say(tmp_path, namespace, 1, "slave", 1000)
    settings = {"LEASE_NAME": namespace, "WATCH_NAMESPACES": namespace}
    with peers(tmp_path, (namespace, "demo", 1, 1, 2)), settling(plane):
        with OperatorProcess(tmp_path, plane.kubeconfig(), "first", **settings) as first:
            replication = {"mode": "masterSlave", "acknowledge": "SYNC"}
            make(
                plane,
                namespace,
                "BrokerCluster",
                "demo",
                replicas=2,
                replication=replication,
                nameServers={"replicas": 1},
            )
            await until("it is ready", lambda: reasons(plane, namespace, "brokerclusters") == {"demo": "Ready"})
            assert demo.roles() == ["SYNC_MASTER", "SLAVE"]
            demo.patch({"spec": {"replication": {"promote": "demo-broker-0-5"}}})
            await until("a member that is none is refused", lambda: demo.promotion().get("state") == "Refused")
            (tmp_path / f"silent-{broker(namespace, 'demo', 0)}").touch()
            await until(
                "the master is missed", lambda: reasons(plane, namespace, "brokerclusters")["demo"] == "NoMaster"
            )
            demo.patch(PROMOTE)
            await until("it is announced", lambda: demo.promotion().get("state") == "Promoting")
            assert demo.promotion()["lostFrom"] == 1000
            first.process.kill()
            first.process.wait()
        assert demo.roles() in (["SYNC_MASTER", "SLAVE"], ["SLAVE", "SLAVE"], ["SLAVE", "SYNC_MASTER"])
        with OperatorProcess(tmp_path, plane.kubeconfig(), "second", **settings):
            await until("the slave is configured", lambda: demo.roles() == ["SLAVE", "SYNC_MASTER"], timeout=90)
            assert demo.promotion()["state"] == "Promoting", "it does not report that it is the master yet"
            say(tmp_path, namespace, 1, "master", 1000)
            await until("it is the master", lambda: demo.promotion()["state"] == "Promoted", timeout=90)
            say(tmp_path, namespace, 0, "slave", 1000)
            (tmp_path / f"silent-{broker(namespace, 'demo', 0)}").unlink()
            await until(
                "it is ready", lambda: reasons(plane, namespace, "brokerclusters")["demo"] == "Ready", timeout=90
            )
            assert demo.promotion()["former"] == "demo-broker-0-0"
            demo.patch({"spec": {"replication": {"promote": None}}})
            await until("it is forgotten", lambda: demo.promotion() == {})
            assert demo.roles() == ["SLAVE", "SYNC_MASTER"]
