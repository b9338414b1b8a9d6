"""Lag of a broker's consume queues behind its log, sampled from outside during a load.

The broker's runtime information (request 28) is requested several times per second. RaptorMQ reports the lag as a
time (`dispatchBehindMilliseconds`). For Apache RocketMQ the lag is `dispatchBehindBytes` divided by the growth rate
of `commitLogMaxOffset`. Peaks between two samples are not recorded.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from raptormq.client import BlockingAdminClient
from raptormq.errors import RaptorMQError
from raptormq.protocol.bodies.route import MASTER_ID

_PERIOD_S = 0.25
_MAX_RUNTIME_FIGURES_S = 5.0


@dataclass(frozen=True)
class Look:
    """One sample."""

    seconds: float
    log_end: int
    behind: int
    """Lag in bytes."""
    behind_ms: float | None = None
    """Lag in ms; None if the broker does not report it."""


def lag_ms(looks: list[Look]) -> float | None:
    """Return the largest lag of the samples in ms, as reported or computed from the write rate; None without data."""
    told = [look.behind_ms for look in looks if look.behind_ms is not None]
    if told:
        return max(told)
    if len(looks) < 2 or looks[-1].log_end == looks[0].log_end:
        return None
    bytes_per_ms = (looks[-1].log_end - looks[0].log_end) / (looks[-1].seconds - looks[0].seconds) / 1000
    return max(look.behind for look in looks) / bytes_per_ms


@dataclass
class IndexLag:
    """Samples a broker between `begin` and `end`, inside its context."""

    name_server: str
    _looks: list[Look] = field(default_factory=list)
    _looking: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        self._looking.set()

    def end(self) -> float | None:
        """Return the largest lag since `begin` in ms."""
        self._looking.clear()
        return lag_ms(list(self._looks))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="index lag", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join(_MAX_RUNTIME_FIGURES_S)

    def _run(self) -> None:
        try:
            with BlockingAdminClient(name_servers=self.name_server) as admin:
                brokers = admin.cluster_info().brokers.values()
                address = next(iter(brokers)).broker_addrs[MASTER_ID]
                while not self._over.wait(_PERIOD_S):
                    if self._looking.is_set():
                        self._looks.append(_look(admin, address))
        except RaptorMQError:
            return  # the broker is too busy to respond; the samples so far are used


def _look(admin: BlockingAdminClient, address: str) -> Look:
    figures = admin.runtime_info(address)
    told = figures.get("dispatchBehindMilliseconds")
    behind_ms = float(told) if told is not None else None
    return Look(time.monotonic(), int(figures["commitLogMaxOffset"]), int(figures["dispatchBehindBytes"]), behind_ms)
