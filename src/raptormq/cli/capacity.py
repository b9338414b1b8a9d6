"""Capacity planning: the broker groups, cores, memory and disks for a load. Pure arithmetic over measured figures.

The figures are those of ``bench/results``: 1 KiB messages, one broker, a machine with 2 cores that the load generator
shares. The plan uses half of the measured rate per broker. The published rule (one core for 10,000 messages/s, at least
8 GB of memory, rate x size x retention of disk) is printed beside the result; see docs/guides/capacity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
DAY_S = 86_400
MEASURED_BODY_BYTES = 1024
LARGEST_BODY_BYTES = 4 * MIB
"""The default of ``maxMessageSize``."""
PLANNED_SHARE = 0.5
"""Share of the measured rate that a broker is planned for. The rest covers peaks, other work on the machine, and
catching up."""
STORED_BESIDE_BODY_BYTES = 200
"""Overhead of a message: 91 bytes of record, about 70 of topic, message id and other properties, 20 of queue, 20 of
index."""
FILLED_SHARE = 0.75
"""Planned share of a volume. Above it (``diskMaxUsedSpaceRatio``) expired segments are deleted at any hour, below it at
night."""
SEGMENTS_BESIDE_BYTES = 2 * GIB
"""The current segment and the next one are allocated in full."""
OWN_MEMORY_BYTES = 128 * MIB
"""Private memory of a broker: 60 MB measured, 110 MB with 10,000 queues."""
BUDGET_BYTES = 2 * 256 * MIB
"""``maxUnfinishedRequestBytes`` and ``maxUnreadAnswerBytes``, which slow or hostile clients can use up."""
LEAST_CACHE_BYTES = 3 * GIB
"""Page cache kept for a topic without a group: three times ``logBytesKeptInPageCache``."""
CACHED_S = 60
"""Consumers that are at most this far behind are read from memory."""
LARGEST_VOLUME_BYTES = 32 * TIB
MOST_GROUPS = 64
"""Limit of a BrokerCluster."""
PUBLISHED_RATE_PER_CORE = 10_000
PUBLISHED_MEMORY_BYTES = 8 * 10**9


class Sends(StrEnum):
    """How producers send."""

    BATCHES = "batches"
    SINGLE = "single"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of a broker."""

    what: str
    source: str
    """The file with the result."""
    rate: float
    """Messages per second."""
    store_cpu_s: float
    """CPU seconds of the broker to store a million messages."""
    deliver_cpu_s: float
    """CPU seconds to deliver a million messages to one consumer group."""
    consumer_groups: int
    """Consumer groups during the measurement."""

    def cpu_s(self, consumer_groups: int) -> float:
        """Return the CPU seconds for a million messages that ``consumer_groups`` consume."""
        return self.store_cpu_s + consumer_groups * self.deliver_cpu_s

    def rate_with(self, consumer_groups: int) -> float:
        """Return the messages per second of one broker at the measured CPU usage."""
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
    """The load to plan for."""

    rate: float
    """Messages per second of all producers."""
    body_bytes: float
    """Average size of a message body."""
    retention_s: float
    copies: int = 1
    consumer_groups: int = 1
    """Consumer groups that consume every message."""
    sends: Sends = Sends.SINGLE


@dataclass(frozen=True, slots=True)
class Capacity:
    """The brokers for a load. Figures per broker hold for each one."""

    load: Load
    figure: Figure
    groups: int
    limited_by: str
    """The resource that determines the number of groups."""
    busy_cores: float
    """Cores of all masters together."""
    cores_per_broker: int
    memory_per_broker_bytes: int
    volume_per_broker_bytes: int
    written_per_broker_bytes_s: float
    """Bytes written to the disk of each broker per second."""
    body_bytes_per_day: float
    published_cores: float
    published_disk_bytes: float
    """Rate x size x retention of one copy."""

    @property
    def brokers(self) -> int:
        """Number of brokers in all groups."""
        return self.groups * self.load.copies


def plan(load: Load) -> Capacity:
    """Return the capacity for ``load``."""
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
