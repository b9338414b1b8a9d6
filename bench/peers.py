"""The systems that are compared, started the same way: over an empty folder, with CPUs and settings given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, Release, RocketMQServers, WatchedProcess

ROCKETMQ_HEAP = "2g"


class System(StrEnum):
    """What can be measured."""

    ROCKETMQ = "Apache RocketMQ 5.5.0"
    RAPTORMQ = "RaptorMQ"


class RunningSystem(Protocol):
    """A name server and a broker that serve."""

    broker: WatchedProcess | None

    @property
    def name_servers(self) -> str:
        """Address of the name server."""

    @property
    def store(self) -> Path:
        """Where the broker keeps its data."""


def running(
    system: System,
    java: JavaBuild,
    folder: Path,
    *,
    prefix: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> AbstractContextManager[RunningSystem]:
    """Start `system` with settings for broker.conf; `prefix` goes before the broker's command (taskset, nice)."""
    if system is System.ROCKETMQ:
        # As little opinion about how full the disk is as it allows.
        merged = {"diskMaxUsedSpaceRatio": "95", **(settings or {})}
        return RocketMQServers(java, folder, heap=ROCKETMQ_HEAP, prefix=prefix, settings=merged, release=Release.NEWEST)
    return RaptorMQDev(folder, prefix=prefix, settings=settings)


def broker_pid(system: RunningSystem) -> int:
    """Process id of the broker (of RaptorMQ: of name server and broker)."""
    if system.broker is None:
        raise ValueError("the broker does not run")
    return system.broker.pid
