"""Observed features of brokers: how they store batches, and which requests they do not support.

`BatchSupport` tracks by topic whether a broker stores batches whole (queue type BatchCQ). Routes do not contain this
information. The response to a batch contains it: the unique id of the batch is set if the batch was stored whole
(RIP-26, `SendMessageResponseHeader.batchUniqId`). A topic may be converted while producers send, so a response may
refer to the previous type.

Brokers may differ, for example if one was down during a conversion, so each is tracked separately. A batch without a
queue is encoded before its broker is selected. While the brokers differ, it is sent as plain records, which all brokers
accept.

`Refusals` tracks brokers that do not support a request. Entries expire, because a broker may be upgraded.
`BatchSupport` uses it for brokers that do not support batches.

See also: `producer.sender` and `producer.queue_batches` record responses, `producer.batch_encoding` and
`producer.accumulator` query them; `producer.queue_batches` uses `Refusals` for its request. Source: none for
`Refusals`, RocketMQ's clients do not ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from raptormq.protocol.message import MessageQueue

REFUSAL_ASK_AGAIN_S = 600.0
"""Seconds for which a broker is assumed not to support a request."""

_NOBODY: frozenset[str] = frozenset()


class Refusals:
    """Brokers that do not support a request; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, broker_name: str) -> None:
        """Record that a broker does not support the request."""
        self._until[broker_name] = self._clock() + REFUSAL_ASK_AGAIN_S

    def names(self) -> frozenset[str]:
        """Return the brokers that are assumed not to support the request."""
        if not self._until:
            return _NOBODY
        now = self._clock()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until)

    def __contains__(self, broker_name: str) -> bool:
        until = self._until.get(broker_name)
        return until is not None and until > self._clock()


ASK_AGAIN_S = 60.0
"""Seconds for which no inner batch is sent to a topic after a rejection. The limit is temporary, because the batch
itself may have been the cause.
"""


class BatchSupport:
    """Batch support by topic and broker; unknown until a broker has responded to a batch.

    Args:
        clock: returns monotonic seconds.
        brokers: returns the names of the brokers that currently serve a topic; other brokers are ignored.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        brokers: Callable[[str], Collection[str]] = lambda _topic: (),
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._answers: dict[str, dict[str, bool | None]] = {}
        """Support by topic and broker; None after a rejection that contradicts the last response."""
        self._refused_until: dict[str, dict[str, float]] = {}
        self._know_no_batches = Refusals(clock)
        self.all_accept_batches = True
        """True while all brokers support batches; otherwise call `accepts_batches`."""

    def stores_whole(self, topic: str, queue: MessageQueue | None = None) -> bool | None:
        """Return whether batches to the topic are stored whole, by the broker of the given queue, or else by all
        brokers; None if unknown or if brokers differ.
        """
        answers = self._answers.get(topic)
        if not answers:
            return None
        if queue is not None:
            return answers.get(queue.broker_name)
        said = set(answers.values())
        if len(said) > 1:
            there = self._brokers(topic)
            said = {whole for name, whole in answers.items() if name in there}
        return said.pop() if len(said) == 1 else None

    def accepts_inner_batches(self, topic: str, queue: MessageQueue | None = None) -> bool:
        """Return whether batches may be sent in their stored form."""
        if not self.stores_whole(topic, queue):
            return False
        refused = self._refused_until.get(topic)
        if not refused:
            return True
        there = {queue.broker_name} if queue is not None else self._brokers(topic) or refused
        return all(refused[name] <= self._clock() for name in refused.keys() & there)

    def accepts_batches(self, topic: str, queue: MessageQueue | None = None) -> bool:
        """Return whether the broker of the given queue, or else any broker of the topic, may support batches."""
        old = self.brokers_without_batches()
        self.all_accept_batches = not old
        if queue is not None:
            return queue.broker_name not in old
        there = self._brokers(topic)
        return not there or any(name not in old for name in there)

    def brokers_without_batches(self) -> frozenset[str]:
        """Return the brokers that do not support batches."""
        return self._know_no_batches.names()

    def note_batches_refused(self, broker_name: str) -> None:
        """Record that a broker does not support batches."""
        self._know_no_batches.note(broker_name)
        self.all_accept_batches = False

    def note_answer(self, topic: str, broker_name: str, *, whole: bool) -> None:
        """Record the response to a batch."""
        self._answers.setdefault(topic, {})[broker_name] = whole
        if not whole and topic in self._refused_until:
            self._refused_until[topic].pop(broker_name, None)

    def note_inner_batch_refused(self, topic: str, broker_name: str) -> None:
        """Record that a broker has rejected an inner batch."""
        answers = self._answers.setdefault(topic, {})
        if answers.get(broker_name) is not False:
            answers[broker_name] = None
            self._refused_until.setdefault(topic, {})[broker_name] = self._clock() + ASK_AGAIN_S

    def note_compressed_messages_refused(self, topic: str, broker_name: str) -> None:
        """Record that a broker has rejected a batch with individually compressed messages."""
        answers = self._answers.setdefault(topic, {})
        if answers.get(broker_name) is not True:
            answers[broker_name] = None
