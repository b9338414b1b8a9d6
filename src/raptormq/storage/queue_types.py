"""Which topics have queues of BatchCQ, known before the queues are loaded: attribute ``queue.type`` of the broker's
topic table (``config/topics.json``; Apache RocketMQ ``QueueTypeUtils``)."""

from __future__ import annotations

from raptormq.storage.filesystem import FileSystem
from raptormq.storage.json_file import JsonFile
from raptormq.storage.paths import StorePaths

QUEUE_TYPE = "queue.type"
BATCH_CQ = "BatchCQ"
SIMPLE_CQ = "SimpleCQ"


def declared_batch_topics(filesystem: FileSystem, paths: StorePaths) -> set[str]:
    """Return the topics with ``queue.type=BatchCQ``.

    Raises:
        StoreDamaged: neither the table nor its backup can be read.
    """
    table = (JsonFile(f"{paths.config}/topics.json", filesystem).load() or {}).get("topicConfigTable")
    found: set[str] = set()
    for topic, config in table.items() if isinstance(table, dict) else ():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH_CQ:
            found.add(topic)
    return found
