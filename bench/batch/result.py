"""Results of one run."""

from __future__ import annotations

from dataclasses import dataclass

from bench.batch.systems import System


@dataclass(frozen=True)
class LoadResult:
    """Result of the load program. Values about consumption are None in runs that only publish."""

    seconds: float
    sent: int
    """Messages acknowledged in the measured part."""
    failed: int
    publish_p50_ms: float
    publish_p99_ms: float
    received: int | None = None
    end_to_end_p50_ms: float | None = None
    """Latency from the born timestamp of a message; for a RocketMQ batch, from that of the batch."""
    end_to_end_p99_ms: float | None = None
    backlog: int | None = None
    """Messages that were acknowledged but not consumed at the end of the measured part."""
    drain_seconds: float | None = None
    """Time in seconds that the consumers then took for the backlog; at most 10 s."""
    undelivered: int | None = None
    """Messages that were still not consumed after `drain_seconds`."""
    surplus: int | None = None
    """Number of duplicate deliveries, excluding failed sends."""
    consumer_cpu_seconds: float = 0.0
    """CPU seconds of consumers in separate processes."""
    first_error: str | None = None
    """Error of the first failed send, including the warm-up."""

    @property
    def sent_per_second(self) -> float:
        return self.sent / self.seconds

    @property
    def received_per_second(self) -> float | None:
        return None if self.received is None else self.received / self.seconds


@dataclass(frozen=True)
class Costs:
    """Resource usage in the measured part."""

    broker_cpu_seconds: float
    client_cpu_seconds: float
    resident_bytes: int
    """Resident memory at the end of the measured part, including pages of mapped files."""
    anonymous_bytes: int
    index_lag_ms: float | None = None
    """Largest observed lag of the queues behind the log, in ms at the measured write rate; None if not reported."""
    stolen_seconds: float | None = None
    """Stolen CPU time; None in results recorded before this value was added."""


@dataclass(frozen=True)
class Run:
    """Run of one workload on one system. Either `load` and `costs` or `failure` is set."""

    workload: str
    system: System
    round: int
    load: LoadResult | None = None
    costs: Costs | None = None
    failure: str | None = None
