"""A Dledger group that grows and shrinks on a real API server: the rules of the definition, the permissions of the
chart, and the resulting StatefulSets and ConfigMaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from raptormq.protocol.bodies.replication import CopyState, ReplicationState, Verdict
from tests.api.control_plane import ControlPlane
from tests.api.operator_process import OperatorProcess, until
from tests.api.peers import broker
from tests.api.resources import OURS, make, peers, reasons
from tests.api.stand_ins import settling
from tests.api.test_operator import allow

LOOK_S = 0.1
ALLOWED = Verdict(True, "")


class Group:
    """The members of a group of up to five, with the state that each reports. The leader executes changes
    immediately.
    """

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        self._hosts = [broker(namespace, "demo", 0, index) for index in range(5)]
        self._voters, self._learners = {0, 1, 2}, set[int]()
        self._leader, self._term = 0, 1
        self._heard = [0] * 5
        self.done: list[str] = []
        """Executed membership changes, without repetitions. A request may be repeated before its result is visible."""

    def describe(self) -> None:
        copies = tuple(CopyState(f"n{index}", "", self._role(index), 0, 0, True) for index in range(5))
        for index, host in enumerate(self._hosts):
            role, leader = self._role(index).replace("absent", "candidate"), f"n{self._leader}"
            state = ReplicationState(
                "broker-0", "dledger", f"n{index}", role, self._term, leader, 10, 10, members=copies, restart=ALLOWED
            )
            written = self._folder / f"new-{host}"
            written.write_bytes(state.to_json())
            written.rename(self._folder / f"replication-{host}")

    def _role(self, index: int) -> str:
        if index == self._leader:
            return "leader"
        return "follower" if index in self._voters else "learner" if index in self._learners else "absent"

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            for index, host in enumerate(self._hosts):
                changes = self._folder / f"changes-{host}"
                lines = changes.read_text().splitlines() if changes.exists() else []
                for line in lines[self._heard[index] :]:
                    self._change(*line.partition(" ")[::2])
                self._heard[index] = len(lines)
            await asyncio.sleep(LOOK_S)

    def _change(self, action: str, member: str) -> None:
        if action == "transfer":
            self._leader = int(member[1:]) if member else min(self._voters - {self._leader})
            self._term += 1
        elif self.done[-1:] != [f"{action} {member}"]:
            index = int(member[1:])
            self._learners.discard(index)
            self._voters.discard(index)
            if action != "remove":
                (self._learners if action == "addLearner" else self._voters).add(index)
            self.done.append(f"{action} {member}")
        self.describe()


def resize(plane: ControlPlane, namespace: str, replicas: int) -> None:
    path = f"{OURS}/namespaces/{namespace}/brokerclusters/demo"
    plane.request("PATCH", path, {"spec": {"replicas": replicas}}, "application/merge-patch+json")


def objects(plane: ControlPlane, namespace: str, path: str) -> dict[str, Any]:
    items = plane.request("GET", f"{path}/namespaces/{namespace}/{'statefulsets' if 'apps' in path else 'configmaps'}")
    return {item["metadata"]["name"]: item for item in items["items"] if "-broker-" in item["metadata"]["name"]}


def peer_counts(plane: ControlPlane, namespace: str) -> dict[str, int]:
    files = objects(plane, namespace, "/api/v1")
    return {name: file["data"]["broker.conf"].count(":10913") for name, file in files.items()}


async def test_it_grows_from_three_to_five_and_shrinks_again(
    tmp_path: Path, shared_plane: ControlPlane, namespace: str
) -> None:
    plane = shared_plane
    group = Group(tmp_path, namespace)
    allow(plane, namespace)
    group.describe()
    names = [f"demo-broker-0-{index}" for index in range(5)]
    environment = {"LEASE_NAME": "raptormq-operator", "WATCH_NAMESPACES": namespace}

    def is_done(count: int) -> bool:
        return reasons(plane, namespace, "brokerclusters")["demo"] == "Ready" and peer_counts(plane, namespace) == (
            dict.fromkeys(names[:count], count)
        )

    operator = OperatorProcess(tmp_path, plane.kubeconfig("limited"), "one", **environment)
    with peers(tmp_path, (namespace, "demo", 2, 1, 5)), settling(plane), operator:
        async with group.at_work():
            make(plane, namespace, "BrokerCluster", "demo", replicas=3, replication={"mode": "dledger"})
            await until("three serve", lambda: is_done(3))
            resize(plane, namespace, 5)
            await until("five serve", lambda: is_done(5))
            assert group.done == ["addLearner n3", "promote n3", "addLearner n4", "promote n4"]
            assert list(objects(plane, namespace, "/apis/apps/v1")) == names
            resize(plane, namespace, 3)
            await until("three serve again", lambda: is_done(3))
            assert group.done[4:] == ["remove n4", "remove n3"]
            assert list(objects(plane, namespace, "/apis/apps/v1")) == names[:3]
