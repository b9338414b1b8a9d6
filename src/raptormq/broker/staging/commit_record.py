"""Records of ``rmq_sys_STAGED_COMMITS``, queue 0: commits of batches and completed publications. Pure functions.

::

    commit      {"query", "batch", "decision", "at", "topic"}      lists of the batch; they must be published
    published   the same with "messages", "dropped" and "lost"     all lists are published

A batch is committed when its commit record is in the log. The current or a later leader then publishes it. The
published record repeats the decision, because a repeated commit request is answered from it. "topic" is optional: the
commits of older clients do not have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from raptormq.errors import BodyError, RecordError
from raptormq.protocol.bodies.staging import Decision, decode_decision, encode_decision
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_names import STAGED_COMMITS_TOPIC
from raptormq.storage.queue import PendingRecord


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the publication of a batch."""

    messages: int
    """Published messages."""
    dropped: int
    """Lists whose topic was deleted after the commit."""
    lost: int
    """Lists that were damaged or no longer in the log."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A commit, and its outcome once it is published."""

    query: str
    batch: int
    decision: Decision
    committed_at: int
    """Time of the commit in ms since 1970."""
    outcome: Outcome | None = None
    topic: str | None = None
    """Topic to which the query writes, empty if its rows name their topics; None if unknown."""

    @property
    def batch_name(self) -> str:
        """Name of the batch in staged lists."""
        return batch_name(self.query, self.batch)

    def to_record(self, now: int) -> PendingRecord:
        """Return the record to append."""
        value: dict[str, Any] = {
            "query": self.query,
            "batch": self.batch,
            "decision": encode_decision(self.decision).decode(),
            "at": self.committed_at,
        }
        if self.topic is not None:
            value["topic"] = self.topic
        if self.outcome is not None:
            value |= {
                "messages": self.outcome.messages, "dropped": self.outcome.dropped, "lost": self.outcome.lost
            }  # fmt: skip
        return PendingRecord(STAGED_COMMITS_TOPIC, 0, dumps(value), born_timestamp=now)


def batch_name(query: str, batch: int) -> str:
    """Return the name of a batch in staged lists."""
    return f"{query}:{batch}"


def parse_commit(record: StoredMessage) -> CommitRecord:
    """Decode a record.

    Raises:
        RecordError: the record is neither a commit record nor a published record.
    """
    try:
        value = loads_object(record.body)
        outcome = Outcome(*(int(value[name]) for name in ("messages", "dropped", "lost"))) if "lost" in value else None
        return CommitRecord(
            str(value["query"]),
            int(value["batch"]),
            decode_decision(value["decision"].encode()),
            int(value["at"]),
            outcome,
            None if value.get("topic") is None else str(value["topic"]),
        )
    except (BodyError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise RecordError(f"the commit record at log offset {record.physical_offset} is damaged: {error}") from None


def published_counts(origins: Iterable[int]) -> dict[int, int]:
    """Return the number of published records by the log offset of their staged list."""
    found: dict[int, int] = {}
    for origin in origins:
        found[origin] = found.get(origin, 0) + 1
    return found
