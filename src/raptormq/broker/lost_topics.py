"""Topics whose table was lost: ``config/topics.json`` is gone or damaged, but there are queues. Its backup, where there
is one, may be a change behind.

Without this their messages would be hidden until somebody made the topics again by hand, and what is delayed for them
dropped when it is due. How many queues a topic had for reading and writing is not known any more: it gets as many as
have ever had a message. Their type follows in :meth:`raptormq.broker.conversions.Conversions.start`.
"""

from __future__ import annotations

from raptormq.broker.tables import Tables
from raptormq.logs import get_logger
from raptormq.protocol.bodies.topic_config import READ_WRITE, TopicConfig
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)


def with_lost_topics(tables: Tables, store: MessageStore) -> Tables:
    """Return ``tables`` with the topics that ``store`` has queues of, unless their last table was read."""
    if tables.topics_known:
        return tables
    topics = tables.topics
    lost = sorted(topic for topic in store.topics() if topic not in topics.configs)
    for topic in lost:
        count = max(store.queue_ids(topic)) + 1
        topics.put_back(TopicConfig(topic, count, count, READ_WRITE))
    if lost:
        logger.warning("topics.json is gone or damaged: %d topics were made again from their queues", len(lost))
    return tables
