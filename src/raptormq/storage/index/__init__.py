"""The key index: messages by key and unique key, in index files.

Depends on records of the log, not on queues.
"""

from __future__ import annotations

from raptormq.storage.index.index_file import Header, remove_set_aside
from raptormq.storage.index.key_index import KeyIndex
from raptormq.storage.index.query import KeyQueries

__all__ = [
    "Header",
    "KeyIndex",
    "KeyQueries",
    "remove_set_aside",
]
