"""What one run has measured."""

from __future__ import annotations

from dataclasses import dataclass

from bench.batch.systems import System


@dataclass(frozen=True)
class LoadResult:
    """What the load program says at its end; None in runs that only publish."""

    seconds: float
    sent: int
    """Acknowledged in the measured part."""
    failed: int
    publish_p50_ms: float
    publish_p99_ms: float
    received: int | None = None
    end_to_end_p50_ms: float | None = None
    """From the birth of a message as its client writes it: of RocketMQ's batches, the birth of the batch."""
    end_to_end_p99_ms: float | None = None
    backlog: int | None = None
    """Acknowledged and not yet consumed when the measured part ended."""
    drain_seconds: float | None = None
    """How long the consumers took for that afterwards; at most 10 s."""
    undelivered: int | None = None
    """What had not come by then."""
    surplus: int | None = None
    """How many came more often than they were sent, sends that failed aside."""
    consumer_cpu_seconds: float = 0.0
    """Of consumers that are processes of their own."""
    first_error: str | None = None
    """Why the first send failed, also one of the warm-up."""

    @property
    def sent_per_second(self) -> float:
        return self.sent / self.seconds

    @property
    def received_per_second(self) -> float | None:
        return None if self.received is None else self.received / self.seconds


@dataclass(frozen=True)
class Costs:
    """What it cost, in the measured part."""

    broker_cpu_seconds: float
    client_cpu_seconds: float
    resident_bytes: int
    """At the end of the measured part, pages of mapped files included."""
    anonymous_bytes: int
    index_lag_ms: float | None = None
    """Most that the queues were seen behind the log, as time at the measured speed of writing; None: not told."""
    stolen_seconds: float | None = None
    """CPU time in which the host let this machine wait; None in results of before it was noted."""


@dataclass(frozen=True)
class Run:
    """One workload on one system; either `load` and `costs`, or `failure`."""

    workload: str
    system: System
    round: int
    load: LoadResult | None = None
    costs: Costs | None = None
    failure: str | None = None
