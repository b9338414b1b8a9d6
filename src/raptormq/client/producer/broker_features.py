"""What a client has learned about brokers: how they store batches, and which requests they do not know.

`BatchSupport` knows by topic whether a broker stores batches whole (queue type BatchCQ). Routes do not contain this.
The response to a batch does: it has the unique id of the batch if the batch was stored whole (RIP-26,
`SendMessageResponseHeader.batchUniqId`). A topic may be converted while its producers send: a batch that was sent
before may be answered after.

Brokers may differ, for example when one was down while the topic was converted, so each is known by its own responses.
A batch without a queue is encoded before its broker is selected. While the brokers that have answered differ, it is
sent as plain records, which all brokers accept. A form that one kind of broker refuses would be sent twice.

`Refusals` has the brokers that do not know a request. An entry expires, since a newer broker may take their place.
`BatchSupport` uses it for brokers that know no batches at all.

Neighbours: `producer.sender` and `producer.queue_batches` record responses, `producer.batch_encoding` and
`producer.accumulator` ask; `producer.queue_batches` uses `Refusals` for its request. Source: none for `Refusals`,
RocketMQ's clients do not ask again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from raptormq.protocol.message import MessageQueue

REFUSAL_ASK_AGAIN_S = 600.0
"""How long a broker is assumed not to know a request."""

_NOBODY: frozenset[str] = frozenset()


class Refusals:
    """The brokers that have refused a request lately; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, broker_name: str) -> None:
        """Record that a broker does not know the request."""
        self._until[broker_name] = self._clock() + REFUSAL_ASK_AGAIN_S

    def names(self) -> frozenset[str]:
        """Return the brokers that must not be asked now."""
        if not self._until:
            return _NOBODY
        now = self._clock()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return frozenset(self._until)

    def __contains__(self, broker_name: str) -> bool:
        until = self._until.get(broker_name)
        return until is not None and until > self._clock()


ASK_AGAIN_S = 60.0
"""How long no inner batch is sent to a topic whose broker has refused one; that batch alone may have been at fault."""


class BatchSupport:
    """How brokers store batches, by topic and broker; unknown until a broker was sent a batch.

    Args:
        clock: returns monotonic seconds.
        brokers: returns the names of the brokers that serve a topic now; others do not count when brokers differ.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        brokers: Callable[[str], Collection[str]] = lambda _topic: (),
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._answers: dict[str, dict[str, bool | None]] = {}
        """By topic and broker; None after a refusal has made the last response doubtful."""
        self._refused_until: dict[str, dict[str, float]] = {}
        self._know_no_batches = Refusals(clock)
        self.all_accept_batches = True
        """True in the usual case; otherwise `accepts_batches` decides."""

    def stores_whole(self, topic: str, queue: MessageQueue | None = None) -> bool | None:
        """Whether batches to the topic are stored whole, by the broker of the given queue, else by all brokers; `None`
        when that is not known, or brokers differ.
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
        """Whether batches may be sent in the form that they are stored in."""
        if not self.stores_whole(topic, queue):
            return False
        refused = self._refused_until.get(topic)
        if not refused:
            return True
        there = {queue.broker_name} if queue is not None else self._brokers(topic) or refused
        return all(refused[name] <= self._clock() for name in refused.keys() & there)

    def accepts_batches(self, topic: str, queue: MessageQueue | None = None) -> bool:
        """Whether the broker of the given queue, else any broker of the topic, may accept a batch."""
        old = self.brokers_without_batches()
        self.all_accept_batches = not old
        if queue is not None:
            return queue.broker_name not in old
        there = self._brokers(topic)
        return not there or any(name not in old for name in there)

    def brokers_without_batches(self) -> frozenset[str]:
        """Return the brokers that know no batches."""
        return self._know_no_batches.names()

    def note_batches_refused(self, broker_name: str) -> None:
        """Record that a broker knows no batches."""
        self._know_no_batches.note(broker_name)
        self.all_accept_batches = False

    def note_answer(self, topic: str, broker_name: str, *, whole: bool) -> None:
        """Record the response to a batch."""
        self._answers.setdefault(topic, {})[broker_name] = whole
        if not whole and topic in self._refused_until:
            self._refused_until[topic].pop(broker_name, None)

    def note_inner_batch_refused(self, topic: str, broker_name: str) -> None:
        """Record that a broker has refused a batch in the form that it would be stored in."""
        answers = self._answers.setdefault(topic, {})
        if answers.get(broker_name) is not False:
            answers[broker_name] = None
            self._refused_until.setdefault(topic, {})[broker_name] = self._clock() + ASK_AGAIN_S

    def note_compressed_messages_refused(self, topic: str, broker_name: str) -> None:
        """Record that a broker has refused a batch whose messages are compressed one by one."""
        answers = self._answers.setdefault(topic, {})
        if answers.get(broker_name) is not True:
            answers[broker_name] = None
