"""From the broker's settings to those of its store."""

from __future__ import annotations

from pathlib import Path

from raptormq.broker.config.config import BrokerConfig
from raptormq.errors import ConfigError
from raptormq.storage.config import RESIDENT_BYTES, FlushDiskType, StoreConfig
from raptormq.storage.queue import parse_delay_levels
from raptormq.transport.descriptors import DescriptorBudget

_RECORD_OVERHEAD_BYTES = 70_000
"""Room for topic, properties and the fixed part of a record beside its body."""

_DESCRIPTORS_PER_LOG_FILE = 3
"""One of a segment that is open to be read, and two of one that is written or mapped."""

_SLOTS_PER_ENTRY = 50
"""Each index file that is not written yet has its slots in memory: no more than 200 bytes an entry."""


def store_config(config: BrokerConfig, store_host: bytes, descriptors: DescriptorBudget) -> StoreConfig:
    """Return the settings of the store, which opens as many files as ``descriptors`` grants it.

    Raises:
        ConfigError: sizes that do not go together.
    """
    keeping = config.keeping
    least_entries = keeping.index_slots // _SLOTS_PER_ENTRY
    if keeping.index_entries < least_entries:
        raise ConfigError(
            f"maxIndexNum = {keeping.index_entries} is too little for maxHashSlotNum = {keeping.index_slots}: "
            f"expected at least {least_entries}, or fewer slots"
        )
    log_files = max(1, descriptors.log_files // _DESCRIPTORS_PER_LOG_FILE)
    settings = StoreConfig(
        root_dir=Path(keeping.root_dir),
        commit_log_dir=Path(keeping.commit_log_dir) if keeping.commit_log_dir else None,
        segment_size=keeping.segment_bytes,
        queue_file_size=keeping.queue_file_bytes,
        batch_queue_file_size=keeping.batch_queue_file_bytes,
        max_message_size=max_body_bytes(config),
        flush_disk_type=FlushDiskType(keeping.flush_disk_type),
        flush_interval_ms=keeping.flush_interval_ms,
        offsets_interval_ms=keeping.flush_offsets_ms,
        retention_interval_ms=keeping.clean_period_ms,
        index_enabled=keeping.index_enabled,
        concurrent_build=keeping.concurrent_build,
        index_slots=keeping.index_slots,
        index_entries=keeping.index_entries,
        delays_ms=parse_delay_levels(keeping.delay_levels),
        max_open_queue_files=max(1, descriptors.queue_files),
        max_open_segments=log_files,
        resident_bytes=min(RESIDENT_BYTES, log_files * keeping.segment_bytes),
        kept_page_bytes=keeping.kept_page_bytes,
        store_host=store_host,
    )
    keep(config, settings)
    return settings


def keep(config: BrokerConfig, settings: StoreConfig) -> None:
    """Set how long and up to which use of the disk messages are kept, which may change while the store is open."""
    keeping = config.keeping
    settings.file_reserved_hours = keeping.retention_hours
    settings.delete_when = keeping.delete_when
    settings.disk_max_used_ratio = keeping.disk_used_percent_clean / 100
    settings.disk_clean_ratio = keeping.disk_used_percent_forced / 100
    settings.disk_full_ratio = keeping.disk_used_percent_full / 100


def max_body_bytes(config: BrokerConfig) -> int:
    """Largest message body: the limit, or less where the segments are too small for it."""
    return max(1, min(config.policies.max_message_bytes, config.keeping.segment_bytes - _RECORD_OVERHEAD_BYTES))
