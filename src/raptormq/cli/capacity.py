"""What a load needs, in broker groups, cores, memory and disks: pure arithmetic over measured figures.

The figures are those of ``bench/results``: 1 KiB messages, one broker, on a machine of 2 cores that the load shares
with it. A broker is planned for half of what it was measured with. The published rule (one core for 10,000 messages a
second, 8 GB of memory and more, rate x size x retention of disk) is put beside the outcome: docs/guides/capacity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
DAY_S = 86_400
MEASURED_BODY_BYTES = 1024
LARGEST_BODY_BYTES = 4 * MIB
"""``maxMessageSize``, unless a broker is told otherwise."""
PLANNED_SHARE = 0.5
"""Of what a broker was measured with: the rest is for peaks, for other work of the machine and for catching up."""
STORED_BESIDE_BODY_BYTES = 200
"""Of each message: 91 bytes of record, about 70 of topic, message id and other properties, 20 of queue, 20 of index."""
FILLED_SHARE = 0.75
"""Of a volume. Above it (``diskMaxUsedSpaceRatio``) what is past its time is deleted at any hour, below it at night."""
SEGMENTS_BESIDE_BYTES = 2 * GIB
"""The segment that is written to and the next one are allocated whole."""
OWN_MEMORY_BYTES = 128 * MIB
"""Private memory of a broker: 60 MB as measured, 110 with 10,000 queues."""
BUDGET_BYTES = 2 * 256 * MIB
"""``maxUnfinishedRequestBytes`` and ``maxUnreadAnswerBytes``, which slow or hostile clients can fill."""
LEAST_CACHE_BYTES = 3 * GIB
"""What a topic that has no group yet keeps: three times ``logBytesKeptInPageCache``."""
CACHED_S = 60
"""Consumers that are so far behind still read from memory."""
LARGEST_VOLUME_BYTES = 32 * TIB
MOST_GROUPS = 64
"""Of one BrokerCluster."""
PUBLISHED_RATE_PER_CORE = 10_000
PUBLISHED_MEMORY_BYTES = 8 * 10**9


class Sends(StrEnum):
    """How producers send."""

    BATCHES = "batches"
    SINGLE = "single"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one broker was measured with."""

    what: str
    source: str
    """Where it is kept."""
    rate: float
    """Messages a second."""
    store_cpu_s: float
    """CPU of the broker to take a million messages."""
    deliver_cpu_s: float
    """And to hand a million to one consumer group."""
    consumer_groups: int
    """That consumed while ``rate`` was measured."""

    def cpu_s(self, consumer_groups: int) -> float:
        """CPU seconds of a million messages that so many groups consume."""
        return self.store_cpu_s + consumer_groups * self.deliver_cpu_s

    def rate_with(self, consumer_groups: int) -> float:
        """Messages a second of one broker with the CPU that it had then."""
        return self.rate * self.cpu_s(self.consumer_groups) / self.cpu_s(consumer_groups)


FIGURES = {
    Sends.BATCHES: Figure(
        "Java client, AutoBatch on BatchCQ, as fast as it goes, 16 queues",
        "bench/results/batch.md",
        239_548,
        2.1,
        0.9,
        1,
    ),
    Sends.SINGLE: Figure(
        "Java client, asynchronous without batching, 16 queues", "bench/results/batch.md", 49_015, 12.8, 4.0, 1
    ),
    Sends.WAITING: Figure(
        "Java client, 32 threads that wait for each answer", "bench/results/client_load.md", 20_398, 32.5, 4.0, 0
    ),
}
MACHINE = "2 cores shared with the load (AMD EPYC, 24 GiB), 1 KiB messages, ASYNC_FLUSH, one copy"


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be carried."""

    rate: float
    """Messages a second, of all producers."""
    body_bytes: float
    """Of a message, on average."""
    retention_s: float
    copies: int = 1
    consumer_groups: int = 1
    """That consume everything."""
    sends: Sends = Sends.SINGLE


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the load needs. Figures of a broker are those of each."""

    load: Load
    figure: Figure
    groups: int
    limited_by: str
    """What asks for so many groups."""
    busy_cores: float
    """Of all masters together."""
    cores_per_broker: int
    memory_per_broker_bytes: int
    volume_per_broker_bytes: int
    written_per_broker_bytes_s: float
    """A second, onto the disk of each."""
    body_bytes_per_day: float
    published_cores: float
    published_disk_bytes: float
    """Rate x size x retention of one copy."""

    @property
    def brokers(self) -> int:
        """Members of all groups."""
        return self.groups * self.load.copies


def plan(load: Load) -> Capacity:
    """Return what ``load`` needs."""
    figure = FIGURES[load.sends]
    stored_bytes_s = load.rate * (load.body_bytes + STORED_BESIDE_BODY_BYTES)
    kept_bytes = stored_bytes_s * load.retention_s
    largest_kept_bytes = LARGEST_VOLUME_BYTES * FILLED_SHARE - SEGMENTS_BESIDE_BYTES
    written_limit = FIGURES[Sends.BATCHES].rate * (MEASURED_BODY_BYTES + STORED_BESIDE_BODY_BYTES)
    wanted = {
        "messages a second": load.rate / (PLANNED_SHARE * figure.rate_with(load.consumer_groups)),
        "bytes a second": stored_bytes_s / (PLANNED_SHARE * written_limit),
        "the size of a volume": kept_bytes / largest_kept_bytes,
    }
    limited_by = max(wanted, key=lambda reason: wanted[reason])
    groups = max(1, ceil(wanted[limited_by]))
    busy_cores = load.rate * figure.cpu_s(load.consumer_groups) / 1e6
    written = stored_bytes_s / groups
    memory = OWN_MEMORY_BYTES + BUDGET_BYTES + max(LEAST_CACHE_BYTES, written * CACHED_S)
    return Capacity(
        load=load,
        figure=figure,
        groups=groups,
        limited_by=limited_by,
        busy_cores=busy_cores,
        cores_per_broker=ceil(busy_cores / groups / PLANNED_SHARE),
        memory_per_broker_bytes=_rounded_up(memory, GIB),
        volume_per_broker_bytes=_rounded_up((kept_bytes / groups + SEGMENTS_BESIDE_BYTES) / FILLED_SHARE, GIB),
        written_per_broker_bytes_s=written,
        body_bytes_per_day=load.rate * load.body_bytes * DAY_S,
        published_cores=load.rate / PUBLISHED_RATE_PER_CORE,
        published_disk_bytes=load.rate * load.body_bytes * load.retention_s,
    )


def _rounded_up(value: float, unit: int) -> int:
    return ceil(value / unit) * unit
