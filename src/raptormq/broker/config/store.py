"""Derives the settings of the store from those of the broker."""

from __future__ import annotations

from pathlib import Path

from raptormq.broker.config.config import BrokerConfig
from raptormq.errors import ConfigError
from raptormq.protocol.delay_levels import parse_delay_levels
from raptormq.storage.config import RESIDENT_BYTES, FlushDiskType, StoreConfig
from raptormq.transport.descriptors import DescriptorBudget

_RECORD_OVERHEAD_BYTES = 70_000
"""Space for topic, properties and the fixed fields of a record, in addition to its body."""

_DESCRIPTORS_PER_LOG_FILE = 3
"""Descriptors per segment: one for reading, two for a segment that is written or mapped."""

_SLOTS_PER_ENTRY = 50
"""Maximum number of index slots per index entry. The slots of unwritten index files are in memory. The maximum limits
this memory to 200 bytes per entry.
"""


def store_config(config: BrokerConfig, store_host: bytes, descriptors: DescriptorBudget) -> StoreConfig:
    """Return the settings of the store. ``descriptors`` limits its open files.

    Raises:
        ConfigError: sizes contradict each other.
    """
    storage = config.storage
    least_entries = storage.index_slots // _SLOTS_PER_ENTRY
    if storage.index_entries < least_entries:
        raise ConfigError(
            f"maxIndexNum = {storage.index_entries} is too small for maxHashSlotNum = {storage.index_slots}: "
            f"expected at least {least_entries}, or fewer slots"
        )
    log_files = max(1, descriptors.log_files // _DESCRIPTORS_PER_LOG_FILE)
    settings = StoreConfig(
        root_dir=Path(storage.root_dir),
        commit_log_dir=Path(storage.commit_log_dir) if storage.commit_log_dir else None,
        segment_size=storage.segment_bytes,
        queue_file_size=storage.queue_file_bytes,
        batch_queue_file_size=storage.batch_queue_file_bytes,
        flush_disk_type=FlushDiskType(storage.flush_disk_type),
        flush_interval_ms=storage.flush_interval_ms,
        offsets_interval_ms=storage.flush_offsets_ms,
        retention_interval_ms=storage.clean_period_ms,
        index_enabled=storage.index_enabled,
        concurrent_build=storage.concurrent_build,
        index_slots=storage.index_slots,
        index_entries=storage.index_entries,
        delays_ms=parse_delay_levels(storage.delay_levels),
        max_open_queue_files=max(1, descriptors.queue_files),
        max_open_segments=log_files,
        resident_bytes=min(RESIDENT_BYTES, log_files * storage.segment_bytes),
        kept_page_bytes=storage.kept_page_bytes,
        store_host=store_host,
        replicated=config.replication.enabled or config.ha.is_slave,
    )
    apply_retention(config, settings)
    return settings


def apply_retention(config: BrokerConfig, settings: StoreConfig) -> None:
    """Apply the live retention settings to an open store."""
    storage = config.storage
    settings.file_reserved_hours = storage.retention_hours
    settings.delete_when = storage.delete_when
    settings.disk_max_used_ratio = storage.disk_used_percent_clean / 100
    settings.disk_clean_ratio = storage.disk_used_percent_forced / 100
    settings.disk_full_ratio = storage.disk_used_percent_full / 100


def max_body_bytes(config: BrokerConfig) -> int:
    """Return the maximum size of a message body in bytes: ``maxMessageSize``, or less for small segments."""
    return max(1, min(config.policies.max_message_bytes, config.storage.segment_bytes - _RECORD_OVERHEAD_BYTES))
