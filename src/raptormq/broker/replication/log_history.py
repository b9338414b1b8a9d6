"""Topic types and deletions that a member needs before it builds its first queue: GET_LOG_HISTORY (31013).

Types and deletions of topics are records of the log (:mod:`~raptormq.broker.replication.table_records`), each before
the messages that depend on it. These records are missing if retention has deleted them, or if the data was written by
a broker without replication. A member with empty queues therefore requests the history from the leader and dispatches
no record before it has the response. Body of the response::

    {"end": 1200, "batchTopics": ["orders"], "deletedTopics": {"old": 700}}

    end            log offset up to which records may depend on the history; committed
    batchTopics    topics of queue type BatchCQ
    deletedTopics  topic -> log offset before which its records are deleted

A member that restarts before it has built its queues up to ``end`` requests the history again.
"""

from __future__ import annotations

from typing import NamedTuple

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import names_at, object_at, parse_integer
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.storage import TopicHistory


class LogHistory(NamedTuple):
    """The response to GET_LOG_HISTORY."""

    end: int
    topics: TopicHistory

    def to_json(self) -> bytes:
        """Encode the body."""
        return dumps(
            {"end": self.end, "batchTopics": self.topics.batch_topics, "deletedTopics": self.topics.tombstones}
        )

    @classmethod
    def from_json(cls, data: bytes) -> LogHistory:
        """Decode the body.

        Raises:
            BodyError: ``data`` is not the history of a log.
        """
        value = loads_object(data)
        if "end" not in value:
            raise BodyError('the body is not the history of a log: "end" is missing')
        tombstones = {topic: parse_integer(end) for topic, end in object_at(value, "deletedTopics").items()}
        return cls(parse_integer(value["end"]), TopicHistory(names_at(value, "batchTopics"), tombstones))
