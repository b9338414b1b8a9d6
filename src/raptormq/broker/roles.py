"""Services that depend on the role of a broker: leader, follower, master, slave, or a broker alone.

A broker without replication needs this module, too. It therefore imports nothing of the replication.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from raptormq.protocol.bodies.replication import UNREPLICATED, ReplicationState
from raptormq.storage.store import MessageStore

ConfirmLeadership = Callable[[], Awaitable[None]]
"""Waits until a majority of the Dledger group has confirmed that this member leads. Raises NotLeader if it does not, or
if it has ceased to lead since the call, even if it leads again. See
:meth:`~raptormq.broker.replication.Replication.confirm_leadership`.
"""


@dataclass(frozen=True, slots=True)
class LeaderWork:
    """Callbacks that start and stop the services of a leader and register the broker."""

    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    register: Callable[[int], None]
    """Registers the broker under this broker id, and notifies the running services of the change of role."""


def unreplicated(broker_name: str, store: MessageStore, address: str) -> ReplicationState:
    """Return the status of a broker without replication."""
    end = store.end_offset
    return ReplicationState(broker_name, UNREPLICATED, "", "leader", 0, "", store.confirmed_offset, end, address)
