"""The parts of one store, built once and passed as one value.

:func:`build_parts` creates the parts without I/O and without an event loop; :mod:`~raptormq.storage.lifecycle` opens
them. The packages ``recovery``, ``maintenance`` and ``conversion`` take :class:`StoreParts`. The lower packages take
individual parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raptormq.storage.config import FlushDiskType, StoreConfig
from raptormq.storage.fs import FileSystem, StorePaths
from raptormq.storage.index import KeyIndex
from raptormq.storage.log import CommitLog, Confirmation, FlushService, WriteGate
from raptormq.storage.queue import (
    ConsumerOffsets,
    ConversionLedger,
    DeletionLedger,
    QueueFiles,
    QueueTable,
    offsets_file,
)
from raptormq.storage.records import Appender, Dispatcher


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The parts of one store. ``clock`` returns the time of day in ms since 1970."""

    config: StoreConfig
    filesystem: FileSystem
    clock: Callable[[], int]
    gate: WriteGate
    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    """The key index; None if ``messageIndexEnable`` is false."""
    appender: Appender
    dispatcher: Dispatcher
    confirmation: Confirmation
    flusher: FlushService
    consumer_offsets: ConsumerOffsets
    deletions: DeletionLedger
    conversions: ConversionLedger

    @property
    def paths(self) -> StorePaths:
        """Paths of the files of the store."""
        return self.config.paths


def build_parts(config: StoreConfig, filesystem: FileSystem, clock: Callable[[], int]) -> StoreParts:
    """Return the parts of a store in ``config.root_dir`` without opening a file."""
    paths = config.paths
    gate = WriteGate()
    log = CommitLog(
        filesystem, paths.log, config.segment_size, config.resident_bytes, gate, clock, config.max_open_segments
    )
    files = QueueFiles(
        filesystem, paths, config.queue_file_size, config.batch_queue_file_size, config.max_open_queue_files
    )
    queues = QueueTable(files, config.delays_ms)
    index = (
        KeyIndex(filesystem, paths.key_index, config.index_slots, config.index_entries, clock)
        if config.index_enabled
        else None
    )
    is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    confirmation = Confirmation(log, waits_for_flush=is_sync, is_replica=config.replicated)
    appender = Appender(log, gate, queues.get_or_create, clock, config.store_host)
    dispatcher = Dispatcher([queues] if index is None else [queues, index])
    return StoreParts(
        config=config,
        filesystem=filesystem,
        clock=clock,
        gate=gate,
        log=log,
        queues=queues,
        index=index,
        appender=appender,
        dispatcher=dispatcher,
        confirmation=confirmation,
        flusher=FlushService(
            log,
            gate,
            sync=is_sync,
            interval_ms=config.flush_interval_ms,
            # A follower appends nothing, so everything that it dispatches is in the log.
            last_timestamp=lambda: max(appender.last_timestamp, dispatcher.last_timestamp),
            flushed=confirmation.flushed,
        ),
        consumer_offsets=ConsumerOffsets(offsets_file(f"{paths.config}/consumerOffset.json", filesystem), clock),
        deletions=DeletionLedger(filesystem, paths),
        conversions=ConversionLedger(filesystem, paths),
    )
