"""What a client has learned of topics: whether their broker stores batches whole (queue type BatchCQ).

Routes do not say it. The answer to a batch does: it carries the batch's unique id where the batch was stored whole
(RIP-26, `SendMessageResponseHeader.batchUniqId`). Neighbours: `delivery` learns, `batch_sending` asks.
"""

from __future__ import annotations


class QueueKinds:
    """By topic; a topic that was not sent a batch yet is unknown."""

    def __init__(self) -> None:
        self._stores_whole: dict[str, bool] = {}
        self._refused: set[str] = set()

    def stores_whole(self, topic: str) -> bool | None:
        """Whether batches to the topic are stored whole; `None` when that is not known."""
        return self._stores_whole.get(topic)

    def takes_wrapped(self, topic: str) -> bool:
        """Whether batches may be sent in the form that they are stored in."""
        return self._stores_whole.get(topic, False) and topic not in self._refused

    def answered(self, topic: str, *, whole: bool) -> None:
        """Learn from the answer to a batch."""
        self._stores_whole[topic] = whole
        if not whole:
            self._refused.discard(topic)

    def refused(self, topic: str) -> None:
        """Learn that the broker did not take a batch for the kind that the topic was known as."""
        if self._stores_whole.pop(topic, None):
            self._refused.add(topic)
