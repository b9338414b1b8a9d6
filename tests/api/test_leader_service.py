"""The Service of a leader on a real API server: created, updated, repaired, and garbage-collected with its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raptormq.protocol.bodies.replication import ReplicationState, Verdict
from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.peers import broker
from tests.api.resources import make, peers, reasons
from tests.api.stand_ins import settling
from tests.api.test_operator import allow

NAME = "demo-broker-0-leader"


class Group:
    """The three members of a Dledger group, with the state that each reports."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        self._hosts = [broker(namespace, "demo", 0, index) for index in range(3)]
        self._term = 0

    def lead(self, leader: int | None) -> None:
        """Make a member the leader of the next term, or none."""
        self._term += 1
        name = "" if leader is None else f"n{leader}"
        for index, host in enumerate(self._hosts):
            role = "candidate" if leader is None else "leader" if index == leader else "follower"
            restart = Verdict(True, "")
            state = ReplicationState(
                "broker-0", "dledger", f"n{index}", role, self._term, name, 10, 10, restart=restart
            )
            written = self._folder / f"new-{host}"
            written.write_bytes(state.to_json())
            written.rename(self._folder / f"replication-{host}")


def service(plane: ControlPlane, namespace: str) -> dict[str, Any]:
    """Return the Service; empty without one."""
    items = plane.request("GET", f"/api/v1/namespaces/{namespace}/services")["items"]
    return next((item for item in items if item["metadata"]["name"] == NAME), {})


def led_to(plane: ControlPlane, namespace: str) -> str:
    found = service(plane, namespace)
    return str(found["spec"]["selector"]["raptormq.io/member"]) if found else ""


async def test_it_follows_the_leader_whatever_happens_to_it_and_to_the_operator(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    """Run the operator with the permissions of the chart."""
    plane = shared_plane
    lead = Group(tmp_path, namespace).lead
    allow(plane, namespace)
    kubeconfig = plane.kubeconfig("limited")
    environment = {"LEASE_NAME": "raptormq-operator", "WATCH_NAMESPACES": namespace}
    path = f"/api/v1/namespaces/{namespace}/services/{NAME}"
    lead(None)
    with peers(tmp_path, (namespace, "demo", 2, 1, 3)), settling(plane):
        with OperatorProcess(tmp_path, kubeconfig, "one", **environment):
            make(plane, namespace, "BrokerCluster", "demo", replicas=3, replication={"mode": "dledger"})
            await until("it is there", lambda: led_to(plane, namespace) == "none")
            lead(0)
            await until("it leads to the leader", lambda: led_to(plane, namespace) == "0")
            await until("all is ready", lambda: reasons(plane, namespace, "brokerclusters")["demo"] == "Ready")
            address = service(plane, namespace)["spec"]["clusterIP"]
            assert address not in ("", "None")
            owner = service(plane, namespace)["metadata"]["ownerReferences"][0]
            assert (owner["kind"], owner["name"], owner["controller"]) == ("BrokerCluster", "demo", True)
            for index in (2, 1, 0, 1):
                lead(index)
                await until("it follows", lambda to=index: led_to(plane, namespace) == str(to))  # type: ignore[misc]
            assert service(plane, namespace)["spec"]["clusterIP"] == address, "clients keep the address"
            plane.request("DELETE", path)
            await until("it is made again", lambda: led_to(plane, namespace) == "1")
            stale = {"spec": {"selector": {"raptormq.io/member": "2"}}}
            plane.request("PATCH", path, stale, "application/merge-patch+json")
            await until("it is put back", lambda: led_to(plane, namespace) == "1")
        lead(2)  # the operator was killed
        with OperatorProcess(tmp_path, kubeconfig, "two", **environment):
            await until("the next operator moves it", lambda: led_to(plane, namespace) == "2")
            lead(None)
            await until("nobody leads", lambda: reasons(plane, namespace, "brokerclusters")["demo"] == "NoLeader")
            assert led_to(plane, namespace) == "2"
