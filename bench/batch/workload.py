"""What is put on a system: the workloads of the OpenMessaging Benchmark that the figures are about, and their like.

Sizes, rates and clients' settings are those of that benchmark: one topic, one producer, one consumer group, 1 KiB
bodies that are half random, RocketMQ's producer with AutoBatch and at most 1,024 requests that wait for an answer.
"As fast as it goes" is a rate of 10 million messages a second, as there.
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
    """How long a run lasts."""

    warm_up_seconds: int
    seconds: int
    max_messages: int = 4_000_000
    """The measured part ends after so many even when time is left: it bounds the disk."""

    @property
    def timeout_seconds(self) -> float:
        """When a load has failed: its time, and what topics, readiness and the end may take."""
        return 150 + 2 * (self.warm_up_seconds + self.seconds)


SATURATED = Timing(warm_up_seconds=40, seconds=15)
"""Two busy CPUs have compiled what a JVM runs often after some 40 s; before, broker and client cost several times as
much."""


class Client(StrEnum):
    """Who sends and consumes."""

    OFFICIAL = "official"
    """The Java client of RocketMQ or Kafka."""
    OWN = "own"
    """RaptorMQ's client for Python."""


@dataclass(frozen=True)
class Workload:
    """One topic under load."""

    name: str
    """For `--only` and for the JSON file."""
    title: str
    queues: int = 16
    rate: int = AS_FAST_AS_IT_GOES
    """Messages per second of all producers."""
    auto_batch: bool = True
    batch_bytes: int = 32 * 1024
    delay_ms: int = 10
    queue_type: str = "BatchCQ"
    producers: int = 1
    consumers: int = 1
    """0: publish only."""
    client: Client = Client.OFFICIAL
    timing: Timing = SATURATED

    @property
    def load_settings(self) -> list[str]:
        """What both load programs take: name=value."""
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
