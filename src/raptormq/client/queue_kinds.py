"""What a client has learned of topics: whether their broker stores batches whole (queue type BatchCQ).

Routes do not say it. The answer to a batch does: it carries the batch's unique id where the batch was stored whole
(RIP-26, `SendMessageResponseHeader.batchUniqId`). A topic that is converted while it serves becomes another under the
hands of its senders: what was sent before may be answered after.
Neighbours: `delivery` learns, `batch_sending` asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ASK_AGAIN_S = 60.0
"""How long nothing more is sent whole to a topic that has refused it: what was wrong may have been that batch alone."""


class QueueKinds:
    """By topic; a topic that was not sent a batch yet is unknown. `clock` gives seconds that no change of the time of
    day moves.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stores_whole: dict[str, bool] = {}
        self._refused_until: dict[str, float] = {}

    def stores_whole(self, topic: str) -> bool | None:
        """Whether batches to the topic are stored whole; `None` when that is not known."""
        return self._stores_whole.get(topic)

    def takes_wrapped(self, topic: str) -> bool:
        """Whether batches may be sent in the form that they are stored in."""
        if not self._stores_whole.get(topic, False):
            return False
        return topic not in self._refused_until or self._refused_until[topic] <= self._clock()

    def answered(self, topic: str, *, whole: bool) -> None:
        """Learn from the answer to a batch."""
        self._stores_whole[topic] = whole
        if not whole:
            self._refused_until.pop(topic, None)

    def refused_wrapped(self, topic: str) -> None:
        """Learn that the broker did not take a batch in the form that it would be stored in."""
        if self._stores_whole.get(topic):
            del self._stores_whole[topic]
            self._refused_until[topic] = self._clock() + ASK_AGAIN_S

    def refused_singly_compressed(self, topic: str) -> None:
        """Learn that the broker did not take a batch whose messages are compressed one by one."""
        if self._stores_whole.get(topic) is False:
            del self._stores_whole[topic]
