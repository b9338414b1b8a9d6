"""The file system as the store uses it: a protocol, the implementation for Linux, durable JSON files, the page cache.

Does not depend on messages, queues or the log.
"""

from __future__ import annotations

from raptormq.storage.fs.filesystem import (
    Buffer,
    DiskUsage,
    File,
    FileSystem,
    StorePaths,
    file_name,
    file_offsets,
    is_exhausted,
    is_no_room,
    is_out_of_descriptors,
)
from raptormq.storage.fs.page_cache import (
    MAX_NOWAIT_ATTEMPTS,
    Extent,
    PagesMissing,
    evict_pages,
    load_pages,
    with_pages,
)
from raptormq.storage.fs.page_checksum import PAGE_BYTES, checksummed_page, has_checksum, has_wrong_checksum
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.fs.table_saver import TableSaver
from raptormq.storage.fs.topic_ledger import TopicLedger

__all__ = [
    "MAX_NOWAIT_ATTEMPTS",
    "PAGE_BYTES",
    "Buffer",
    "DiskUsage",
    "Extent",
    "File",
    "FileSystem",
    "PagesMissing",
    "RealFileSystem",
    "StorePaths",
    "TableSaver",
    "TopicLedger",
    "checksummed_page",
    "evict_pages",
    "file_name",
    "file_offsets",
    "has_checksum",
    "has_wrong_checksum",
    "is_exhausted",
    "is_no_room",
    "is_out_of_descriptors",
    "load_pages",
    "with_pages",
]
