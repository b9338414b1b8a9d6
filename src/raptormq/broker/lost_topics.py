"""Topics whose table was lost: ``config/topics.json`` and its backup are gone, but there are queues.

Without this their messages would be hidden until somebody made the topics again by hand. How many queues a topic had
for reading and writing is not known any more: it gets as many as have ever had a message.
"""

from __future__ import annotations

import logging

from raptormq.broker.topics import TopicTable
from raptormq.protocol.bodies.topic_config import READ_WRITE, TopicConfig
from raptormq.storage.queue_types import BATCH_CQ, QUEUE_TYPE
from raptormq.storage.store import MessageStore

logger = logging.getLogger(__name__)


def restore_topics(topics: TopicTable, store: MessageStore) -> None:
    """Make the topics again that ``store`` has queues of."""
    lost = sorted(topic for topic in store.topics() if topic not in topics.configs)
    for topic in lost:
        count = max(store.queue_ids(topic)) + 1
        attributes = {QUEUE_TYPE: BATCH_CQ} if store.is_batch_topic(topic) else {}
        topics.put(TopicConfig(topic, count, count, READ_WRITE, attributes=attributes))
    if lost:
        logger.warning("topics.json is gone: %d topics were made again from their queues", len(lost))
