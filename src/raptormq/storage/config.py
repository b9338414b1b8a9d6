"""Settings of the store. The docstring of a setting names RocketMQ's key. The default is RocketMQ's unless stated
otherwise.

See also: the broker's configuration (:mod:`raptormq.broker.config`) takes the settings from broker.conf. Source: Apache
RocketMQ ``MessageStoreConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from raptormq.errors import ConfigError
from raptormq.protocol.delay_levels import DEFAULT_LEVELS, parse_delay_levels
from raptormq.storage.fs import StorePaths
from raptormq.storage.queue import BATCH_ITEM_BYTES, ITEM_BYTES

MIB = 1 << 20
RESIDENT_BYTES = 64 * MIB


class FlushDiskType(Enum):
    """When a send is acknowledged: after the write, or after the flush (key ``flushDiskType``)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@dataclass(slots=True)
class StoreConfig:
    """All settings of a store."""

    root_dir: Path
    """Key ``storePathRootDir``."""

    commit_log_dir: Path | None = None
    """Key ``storePathCommitLog``; None: ``commitlog`` below ``root_dir``."""

    segment_size: int = 1024 * MIB
    """Bytes of a commit log file, key ``mappedFileSizeCommitLog``. All files of a log have the same size."""

    queue_file_size: int = 300_000 * ITEM_BYTES
    """Bytes of a consume queue file, key ``mappedFileSizeConsumeQueue``; rounded up to whole items, as in RocketMQ."""

    batch_queue_file_size: int = 300_000 * BATCH_ITEM_BYTES
    """Bytes of a consume queue file of a BatchCQ topic, key ``mapperFileSizeBatchConsumeQueue`` (sic), rounded up to
    whole items."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Key ``flushDiskType``."""

    replicated: bool = False
    """Whether the store is one replica of a group, which confirms its records (:mod:`~raptormq.storage.replica`)."""

    flush_interval_ms: int = 500
    """Time between flushes of the log under ASYNC_FLUSH, key ``flushIntervalCommitLog``."""

    maintenance_interval_ms: int = 1000
    """Interval in ms of the checks whether the log needs a new segment, pending keys have to be indexed, and files of
    deleted queues have to be removed."""

    queue_flush_interval_ms: int = 5000
    """Time between writes of buffered queue items. Each queue with items costs one write on the event loop, so frequent
    writes cost more per item. Readers find buffered items in memory, and a crash costs the time since the checkpoint
    anyway. RocketMQ writes every second once they fill two pages (``flushIntervalConsumeQueue``).
    """

    checkpoint_interval_ms: int = 10_000
    """Time between checkpoints. Bounds the work of a recovery."""

    offsets_interval_ms: int = 5000
    """Time between writes of the consumer offsets, key ``flushConsumerOffsetInterval``."""

    retention_interval_ms: int = 10_000
    """Time between retention runs, which check age and disk usage; key ``cleanResourceInterval``."""

    full_retry_interval_ms: int = 500
    """Time in ms between retries while writes are refused because disk space, descriptors or memory are exhausted."""

    file_reserved_hours: int = 72
    """Age in hours at which a segment may be deleted, key ``fileReservedTime``."""

    delete_when: str = "04"
    """Local hours, separated by ``;``, at which old segments are deleted, key ``deleteWhen``."""

    delete_batch_max: int = 10
    """Maximum number of segments deleted in one run, key ``deleteFileBatchMax``."""

    disk_max_used_ratio: float = 0.75
    """Disk usage above which old segments are deleted at any hour, key ``diskMaxUsedSpaceRatio`` (there in percent)."""

    disk_clean_ratio: float = 0.85
    """Disk usage above which the oldest segments are deleted whatever their age, key
    ``diskSpaceCleanForciblyRatio``.
    """

    disk_full_ratio: float = 0.90
    """Disk usage above which writes are refused, key ``diskSpaceWarningLevelRatio``."""

    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_LEVELS)
    """Delays of the levels from 1 on, key ``messageDelayLevel`` (there as text)."""

    index_enabled: bool = True
    """Whether messages can be found by key, key ``messageIndexEnable``."""

    index_slots: int = 5_000_000
    """Hash slots of an index file, key ``maxHashSlotNum``."""

    index_entries: int = 20_000_000
    """Entries of an index file, key ``maxIndexNum``."""

    concurrent_build: bool = False
    """Whether other processes parse the log during a rebuild of queues and index, key
    ``enableBuildConsumeQueueConcurrently``.
    """

    max_open_queue_files: int = 4096
    """Maximum number of open consume queue files; the least recently used one is closed."""

    max_open_segments: int = 1024
    """Maximum number of open log files, besides those being written or mapped; the least recently used one is
    closed.
    """

    resident_bytes: int = RESIDENT_BYTES
    """The newest bytes of the log that are assumed to be in memory. They are read without a copy and without a check
    whether their pages are resident. Each of their segments needs a second descriptor.
    """

    kept_page_bytes: int = 1024 * MIB
    """The newest bytes of the log whose pages are never evicted, key ``logBytesKeptInPageCache``; three times as many
    for topics without a group. 0 disables eviction.
    """

    store_host: bytes = field(default=b"\x7f\0\0\1\0\0\x2a\x9f")
    """Packed address of this broker for the STOREHOST field: ip (4 or 16 bytes) and port (4)."""

    def __post_init__(self) -> None:
        self.queue_file_size = _whole_items("mappedFileSizeConsumeQueue", self.queue_file_size, ITEM_BYTES)
        self.batch_queue_file_size = _whole_items(
            "mapperFileSizeBatchConsumeQueue", self.batch_queue_file_size, BATCH_ITEM_BYTES
        )
        if self.segment_size < 1024:
            raise ConfigError(f"mappedFileSizeCommitLog={self.segment_size} is below 1024 bytes")
        if len(self.store_host) not in (8, 20):
            raise ConfigError("the store host must have 8 or 20 bytes")

    @property
    def paths(self) -> StorePaths:
        """Paths of the files of this store."""
        root = str(self.root_dir)
        return StorePaths(root, str(self.commit_log_dir) if self.commit_log_dir else f"{root}/commitlog")


def _whole_items(key: str, size: int, item: int) -> int:
    """Return ``size`` rounded up to whole items; 6M, for example, is no multiple of an item.

    Raises:
        ConfigError: ``size`` is not above 0.
    """
    if size <= 0:
        raise ConfigError(f"{key}={size} is not above 0")
    return -(-size // item) * item
