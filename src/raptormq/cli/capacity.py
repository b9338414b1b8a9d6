"""Capacity planning: computes the broker groups, cores, memory and disks for a load from measurements.

The measurements are in ``bench/results``: 1 KiB messages, one broker, and a load generator on the same machine with 2
cores. The plan uses half of the measured rate per broker. The command also prints the published rule: one core for
10,000 messages/s, at least 8 GB of memory, and rate x size x retention of disk. See docs/guides/capacity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

KIB, MIB, GIB, TIB = (1 << shift for shift in (10, 20, 30, 40))
DAY_S = 86_400
MEASURED_BODY_BYTES = 1024
LARGEST_BODY_BYTES = 4 * MIB
"""Default of ``maxMessageSize``."""
PLANNED_SHARE = 0.5
"""Planned load of a broker as share of the measured rate. The rest is a reserve for peaks, other work on the machine
and consumers that catch up."""
STORED_BESIDE_BODY_BYTES = 200
"""Overhead per message in bytes: record 91, topic, message id and other properties about 70, queue 20, index 20."""
FILLED_SHARE = 0.75
"""Planned used share of a volume. Above it (``diskMaxUsedSpaceRatio``), expired segments are deleted at any hour, not
only at ``deleteWhen``."""
SEGMENTS_BESIDE_BYTES = 2 * GIB
"""Size of the current and the next segment, which are fully allocated."""
OWN_MEMORY_BYTES = 128 * MIB
"""Private memory of a broker. Measured: 60 MB, 110 MB with 10,000 queues."""
BUDGET_BYTES = 2 * 256 * MIB
"""``maxUnfinishedRequestBytes`` and ``maxUnreadAnswerBytes``, which slow or hostile clients can exhaust."""
LEAST_CACHE_BYTES = 3 * GIB
"""Minimum page cache: three times ``logBytesKeptInPageCache``."""
CACHED_S = 60
"""Age in seconds of messages that consumers read from the page cache."""
LARGEST_VOLUME_BYTES = 32 * TIB
MOST_GROUPS = 64
"""Maximum number of broker groups of a BrokerCluster."""
PUBLISHED_RATE_PER_CORE = 10_000
PUBLISHED_MEMORY_BYTES = 8 * 10**9


class Sends(StrEnum):
    """Type of the sends of producers."""

    BATCHES = "batches"
    SINGLE = "single"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of a broker."""

    what: str
    source: str
    """File with the result."""
    rate: float
    """Messages per second."""
    store_cpu_s: float
    """CPU time of the broker to store a million messages, in seconds."""
    deliver_cpu_s: float
    """CPU time of the broker to deliver a million messages to one consumer group, in seconds."""
    consumer_groups: int
    """Number of consumer groups during the measurement."""

    def cpu_s(self, consumer_groups: int) -> float:
        """Return the CPU time in seconds for a million messages with ``consumer_groups`` consumer groups."""
        return self.store_cpu_s + consumer_groups * self.deliver_cpu_s

    def rate_with(self, consumer_groups: int) -> float:
        """Return the rate of one broker with ``consumer_groups`` consumer groups at the measured CPU usage."""
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
        "Java client, 32 threads that wait for each response", "bench/results/client_load.md", 20_398, 32.5, 4.0, 0
    ),
}
MACHINE = "2 cores shared with the load (AMD EPYC, 24 GiB), 1 KiB messages, ASYNC_FLUSH, one copy"


@dataclass(frozen=True, slots=True)
class Load:
    """The load to plan for."""

    rate: float
    """Messages per second of all producers."""
    body_bytes: float
    """Average size of a message body in bytes."""
    retention_s: float
    copies: int = 1
    consumer_groups: int = 1
    """Number of consumer groups that consume every message."""
    sends: Sends = Sends.SINGLE


@dataclass(frozen=True, slots=True)
class Capacity:
    """Result of a plan."""

    load: Load
    figure: Figure
    groups: int
    limited_by: str
    """The resource that determines the number of groups."""
    busy_cores: float
    """Busy cores of all masters together."""
    cores_per_broker: int
    memory_per_broker_bytes: int
    volume_per_broker_bytes: int
    written_per_broker_bytes_s: float
    """Bytes written to the disk of each broker per second."""
    body_bytes_per_day: float
    published_cores: float
    published_disk_bytes: float
    """Rate x size x retention for one copy."""

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
        "messages per second": load.rate / (PLANNED_SHARE * figure.rate_with(load.consumer_groups)),
        "bytes per second": stored_bytes_s / (PLANNED_SHARE * written_limit),
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
