"""The file system as the store sees it: a protocol, the real one, durable JSON files, the page cache.

Knows nothing of messages, queues or the log.
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
from raptormq.storage.fs.page_cache import COLD_ATTEMPTS, Extent, PagesMissing, fetch, release, with_pages
from raptormq.storage.fs.page_seal import PAGE_BYTES, has_seal, is_broken, sealed_page
from raptormq.storage.fs.real import RealFileSystem
from raptormq.storage.fs.saving import TableSaver
from raptormq.storage.fs.topic_ledger import TopicLedger

__all__ = [
    "COLD_ATTEMPTS",
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
    "fetch",
    "file_name",
    "file_offsets",
    "has_seal",
    "is_broken",
    "is_exhausted",
    "is_no_room",
    "is_out_of_descriptors",
    "release",
    "sealed_page",
    "with_pages",
]
