"""Workloads of the OpenMessaging Benchmark, and similar ones.

Sizes, rates and client settings are those of that benchmark: one topic, one producer, one consumer group, 1 KiB
bodies that are half random, RocketMQ's producer with AutoBatch and at most 1,024 pending requests. As in the
benchmark, the maximum rate is 10 million messages per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BODY_BYTES = 1024
TOTAL_BATCH_BYTES = 32 * 1024 * 1024
REQUESTS_UNDER_WAY = 1024
AS_FAST_AS_IT_GOES = 10_000_000


@dataclass(frozen=True)
class Timing:
    """Durations of a run."""

    warm_up_seconds: int
    seconds: int
    max_messages: int = 4_000_000
    """Maximum number of messages in the measured part; it limits the use of the disk."""

    @property
    def timeout_seconds(self) -> float:
        """Timeout of a load in seconds: its duration plus the time for topic creation, startup and end."""
        return 150 + 2 * (self.warm_up_seconds + self.seconds)


SATURATED = Timing(warm_up_seconds=40, seconds=15)
"""Durations for loads at full speed. On two busy CPUs the JIT compilation of a JVM takes about 40 s, during which
broker and client use several times the CPU."""


class Client(StrEnum):
    """Client that sends and consumes."""

    OFFICIAL = "official"
    """The Java client of RocketMQ or Kafka."""
    OWN = "own"
    """The Python client of RaptorMQ."""


@dataclass(frozen=True)
class Workload:
    """A load on one topic."""

    name: str
    """Name for `--only` and for the JSON file."""
    title: str
    queues: int = 16
    rate: int = AS_FAST_AS_IT_GOES
    """Messages per second over all producers."""
    auto_batch: bool = True
    batch_bytes: int = 32 * 1024
    delay_ms: int = 10
    queue_type: str = "BatchCQ"
    producers: int = 1
    consumers: int = 1
    """Number of consumers; 0 only publishes."""
    client: Client = Client.OFFICIAL
    timing: Timing = SATURATED

    @property
    def load_settings(self) -> list[str]:
        """Return the arguments of both load programs, as name=value."""
        values = {
            "queues": self.queues,
            "rate": self.rate,
            "auto_batch": str(self.auto_batch).lower(),
            "batch_bytes": self.batch_bytes,
            "delay_ms": self.delay_ms,
            "total_bytes": TOTAL_BATCH_BYTES,
            "under_way": REQUESTS_UNDER_WAY,
            "queue_type": self.queue_type,
            "producers": self.producers,
            "consumers": self.consumers,
            "body_bytes": BODY_BYTES,
            "warm_up": self.timing.warm_up_seconds,
            "seconds": self.timing.seconds,
            "max_messages": self.timing.max_messages,
        }
        return [f"{name}={value}" for name, value in values.items()]
