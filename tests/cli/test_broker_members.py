"""The members of one broker, some of which do not respond."""

from __future__ import annotations

from typing import Any

import pytest

from raptormq.cli.broker_members import view_of
from raptormq.cli.cluster import describe
from raptormq.errors import RequestTimeout
from raptormq.protocol.bodies.replication import CopyState, ReplicationState
from raptormq.protocol.bodies.route import BrokerData, ClusterInfo

ADDRESSES = {0: "h:0", 2: "h:1", 3: "h:2"}


class Group:
    """An administration client of a group. Its members respond or not."""

    def __init__(self, responding: set[str], *, leads: bool = True) -> None:
        self._responding = responding
        self._leads = leads

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo({"b": BrokerData("c", "b", ADDRESSES)}, {"c": ["b"]})

    async def replication(self, address: str) -> ReplicationState:
        member = f"n{address[-1]}"
        if member not in self._responding:
            raise RequestTimeout(f"no response from {address} in time")
        knows = True if self._leads else None
        copies = tuple(CopyState(f"n{each}", f"r:{each}", "follower", answering=knows) for each in range(3))
        role = "leader" if self._leads and member == "n0" else "follower"
        return ReplicationState("g", "dledger", member, role, 1, "n0", 0, 0, address, members=copies)


@pytest.mark.parametrize("leads", [True, False])
async def test_member_that_has_not_responded_is_marked(leads: bool) -> None:
    """The leader has heard a frozen member until a moment ago; a follower does not know about the others."""
    group: Any = Group({"n0", "n1"}, leads=leads)
    state = await view_of(group, "b")
    assert {each.id: each.answering for each in state.members} == {"n0": True, "n1": True, "n2": False}


def test_describe_waits_two_seconds_for_a_member_that_does_not_respond() -> None:
    """With the start of the process, and with at most one further request at the same time."""
    [limit] = [option.default for option in describe.params if option.name == "timeout_s"]
    assert limit == 1.5
