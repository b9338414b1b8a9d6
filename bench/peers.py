"""The compared systems, started alike: with an empty folder and given CPUs and settings."""

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
    """A system to measure."""

    ROCKETMQ = "Apache RocketMQ 5.5.0"
    RAPTORMQ = "RaptorMQ"


class RunningSystem(Protocol):
    """A running name server and broker."""

    broker: WatchedProcess | None

    @property
    def name_servers(self) -> str:
        """Address of the name server."""

    @property
    def store(self) -> Path:
        """Data folder of the broker."""


def running(
    system: System,
    java: JavaBuild,
    folder: Path,
    *,
    prefix: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> AbstractContextManager[RunningSystem]:
    """Start `system` with settings for broker.conf; `prefix` is put before the broker's command (taskset, nice)."""
    if system is System.ROCKETMQ:
        # Disable the broker's limits on disk usage as far as possible.
        merged = {"diskMaxUsedSpaceRatio": "95", **(settings or {})}
        return RocketMQServers(java, folder, heap=ROCKETMQ_HEAP, prefix=prefix, settings=merged, release=Release.NEWEST)
    return RaptorMQDev(folder, prefix=prefix, settings=settings)


def broker_pid(system: RunningSystem) -> int:
    """Return the process id of the broker (for RaptorMQ: of name server and broker)."""
    if system.broker is None:
        raise ValueError("the broker does not run")
    return system.broker.pid
