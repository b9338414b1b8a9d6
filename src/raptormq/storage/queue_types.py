"""What the broker's topic table (``config/topics.json``) says of queues before they are loaded: which topics there are,
and which have queues of BatchCQ, their attribute ``queue.type`` (Apache RocketMQ ``QueueTypeUtils``)."""

from __future__ import annotations

from typing import NamedTuple

from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.paths import StorePaths


class DeclaredTopics(NamedTuple):
    """Topics in the table."""

    names: frozenset[str] | None
    """None without a table, or with an old one."""
    batch: frozenset[str]
    """Those with ``queue.type=BatchCQ``."""


def declared_topics(filesystem: FileSystem, paths: StorePaths) -> DeclaredTopics:
    """Return what the table says.

    Raises:
        StoreDamaged: neither the table nor its backup can be read.
    """
    file = JsonFile(f"{paths.config}/topics.json", filesystem)
    table = (file.load() or {}).get("topicConfigTable")
    if not isinstance(table, dict):
        return DeclaredTopics(None, frozenset())
    batch: set[str] = set()
    for topic, config in table.items():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH_CQ:
            batch.add(topic)
    return DeclaredTopics(frozenset(table) if file.is_newest else None, frozenset(batch))
