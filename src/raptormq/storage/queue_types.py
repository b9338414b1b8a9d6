"""What the broker's topic table (``config/topics.json``) says of queues before they are loaded: which topics there are,
and which have queues of BatchCQ, their attribute ``queue.type`` (Apache RocketMQ ``QueueTypeUtils``)."""

from __future__ import annotations

from typing import NamedTuple

from raptormq.files import Files
from raptormq.json_file import JsonFile
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.storage.filesystem import FileSystem
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
    file = topics_file(f"{paths.config}/topics.json", filesystem)
    table = file.load(TopicConfigTable.from_dict)
    if table is None:
        return DeclaredTopics(None, frozenset())
    batch = frozenset(name for name, topic in table.topics.items() if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ)
    return DeclaredTopics(frozenset(table.topics) if file.is_newest else None, batch)


def topics_file(path: str, files: Files | None) -> JsonFile:
    """Return the file of the topic table at ``path``, for the store and for the broker."""
    without = "without it topics are made again from their queues, with default settings"
    return JsonFile(path, files, key="topicConfigTable", without=without)
