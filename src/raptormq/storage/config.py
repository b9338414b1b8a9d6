"""Settings of the store, grouped; RocketMQ's key for each is named, its value is the default.

Neighbour: the broker's configuration reads broker.conf and fills these in. Source: Apache RocketMQ
``MessageStoreConfig``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from raptormq.errors import ConfigError
from raptormq.storage.fs import StorePaths
from raptormq.storage.queue import BATCH_ITEM_BYTES, DEFAULT_LEVELS, ITEM_BYTES, parse_delay_levels

MIB = 1 << 20
RESIDENT_BYTES = 64 * MIB


class FlushDiskType(Enum):
    """When a producer is answered: after the write, or after the disk has it (key ``flushDiskType``)."""

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
    """Bytes of a consume queue file, key ``mappedFileSizeConsumeQueue`` (RocketMQ counts it in bytes, too, and rounds
    it up to whole items likewise)."""

    batch_queue_file_size: int = 300_000 * BATCH_ITEM_BYTES
    """Bytes of a consume queue file of a BatchCQ topic, key ``mapperFileSizeBatchConsumeQueue`` (sic), rounded up to
    whole items."""

    max_message_size: int = 4 * MIB
    """Largest body in bytes, key ``maxMessageSize``; a whole record may have 64 KiB more."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    """Key ``flushDiskType``."""

    flush_interval_ms: int = 500
    """Time between flushes of the log under ASYNC_FLUSH, key ``flushIntervalCommitLog``."""

    maintenance_interval_ms: int = 1000
    """Time between looks whether the log needs a segment, entries of the key index wait, or deleted queues have files.
    """

    queue_flush_interval_ms: int = 5000
    """Time between writes of the buffered queue items. Each queue that has some costs a write of the event loop, which
    is the more per item the more often it is done; readers find them in memory, and a crash costs the checkpoint's time
    anyway. RocketMQ writes them every second where they fill two pages (``flushIntervalConsumeQueue``).
    """

    checkpoint_interval_ms: int = 10_000
    """Time between checkpoints (queues made durable, then the checkpoint written); bounds the work of a recovery."""

    offsets_interval_ms: int = 5000
    """Time between writes of the consumer offsets, key ``flushConsumerOffsetInterval``."""

    retention_interval_ms: int = 10_000
    """Time between looks at age and disk use, key ``cleanResourceInterval``."""

    full_retry_interval_ms: int = 500
    """Time between looks whether writes that are refused for want of room, descriptors or memory can go on."""

    file_reserved_hours: int = 72
    """Age in hours at which a segment may be deleted, key ``fileReservedTime``."""

    delete_when: str = "04"
    """Local hours, separated by ``;``, at which old segments are deleted, key ``deleteWhen``."""

    delete_batch_max: int = 10
    """Segments deleted in one run at most, key ``deleteFileBatchMax``."""

    disk_max_used_ratio: float = 0.75
    """Above it old segments are deleted at any hour, key ``diskMaxUsedSpaceRatio`` (there in percent)."""

    disk_clean_ratio: float = 0.85
    """Above it the oldest segments are deleted whatever their age, key ``diskSpaceCleanForciblyRatio``."""

    disk_full_ratio: float = 0.90
    """Above it writes are refused, key ``diskSpaceWarningLevelRatio``."""

    delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_LEVELS)
    """Delays of the levels from 1 on, key ``messageDelayLevel`` (there as text)."""

    index_enabled: bool = True
    """Whether messages are found by their keys, key ``messageIndexEnable``."""

    index_slots: int = 5_000_000
    """Hash slots of an index file, key ``maxHashSlotNum``."""

    index_entries: int = 20_000_000
    """Entries of an index file, key ``maxIndexNum``."""

    concurrent_build: bool = False
    """Whether other processes parse the log when queues and index are built from it, key
    ``enableBuildConsumeQueueConcurrently``.
    """

    max_open_queue_files: int = 4096
    """Open consume queue files at most; the least recently used one is closed."""

    max_open_segments: int = 1024
    """Open files of the log at most, beside those that are written to or mapped; the least recently used is closed."""

    resident_bytes: int = RESIDENT_BYTES
    """The newest bytes of the log that are taken to be in memory and handed out without a
    copy or a question to the kernel. A descriptor for each segment that they are in, beside its file.
    """

    kept_page_bytes: int = 1024 * MIB
    """The newest bytes of the log whose pages are left to the kernel even when all groups have consumed them (three
    times as many where there is no group), key ``logBytesKeptInPageCache``; 0: all.
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
            raise ConfigError("the store host has neither 8 nor 20 bytes")

    @property
    def paths(self) -> StorePaths:
        """Where the files of this store are."""
        root = str(self.root_dir)
        return StorePaths(root, str(self.commit_log_dir) if self.commit_log_dir else f"{root}/commitlog")


def _whole_items(key: str, size: int, item: int) -> int:
    """Return the size of a queue file that holds ``size`` bytes and whole items: 6M is none of them.

    Raises:
        ConfigError: it is not above 0.
    """
    if size <= 0:
        raise ConfigError(f"{key}={size} is not above 0")
    return -(-size // item) * item
