"""Serves pulls, with long polling (``PullMessageProcessor``, ``PullRequestHoldService``).

Each attempt to serve a pull ends with one of eight outcomes::

    clogged -----------------------------> CLOGGED    wait until the peer has read, then try again
    the group was moved -----------------> RESET      answer: go on from another offset
    at the end of the queue --+
                              +--hold ---> HELD       wait for an arrival or the time-out, then try again
    read: nothing found ------+
                              `----------> EMPTY      answer: no messages
    read: pages not in memory -----------> COLD       a thread reads them, then answer
    read: TLS, and memory is short ------> NO_MEMORY  wait for memory, then answer
    read: few found, the log grows fast -> COALESCED  wait at most 25 ms for more, then try again
    read: found -------------------------> FOUND      answer with slices of the log, without copying

FOUND and EMPTY are the common cases and complete without a task. Reads that copy reserve memory first
(:mod:`raptormq.transport.memory`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from time import perf_counter

from raptormq.broker.config import PullSettings
from raptormq.broker.metrics import Counters
from raptormq.broker.pull.answer_batching import COALESCE_MS, PullCoalescer
from raptormq.broker.pull.answers import PullAnswers, empty_code
from raptormq.broker.pull.held_pulls import BUCKET_MS, LONG_POLL_MS, MAX_WAIT_MS, HeldPull, HeldPulls
from raptormq.broker.pull.offset_resets import OffsetResets
from raptormq.broker.pull.request import Attempt, PullRequest
from raptormq.broker.tables import TopicTable
from raptormq.broker.validation import require_read_queue
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.queue import Arrival
from raptormq.storage.read import GetResult, GetStatus
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading, patience

IDLE_PULLS = 128
"""Number of held pulls from which on the connections of idle consumers are read lazily."""
EXPIRED_AT_A_TIME = 128
"""Expired pulls that are answered before the event loop serves other requests."""
_COALESCED_BYTES = 128 * 1024
"""Answers of this size and more are sent at once: coalescing would gain nothing."""
_UNTAGGED = frozenset({0})


class Outcome(Enum):
    """How an attempt to serve a pull ends; see the module's drawing."""

    FOUND = "found"
    EMPTY = "empty"
    HELD = "held"
    COALESCED = "coalesced"
    RESET = "reset"
    COLD = "cold"
    NO_MEMORY = "no memory"
    CLOGGED = "clogged"


_FIRST, _ARRIVAL, _LAST = Attempt.FIRST, Attempt.ARRIVAL, Attempt.LAST
_FOUND, _EMPTY, _HELD, _COALESCED = Outcome.FOUND, Outcome.EMPTY, Outcome.HELD, Outcome.COALESCED
_STATUS_FOUND = GetStatus.FOUND
_UNREAD = GetResult(GetStatus.NO_MATCHED_MESSAGE, [], 0, 0, 0)
"""The result of an attempt that ends before the store is read."""


class PullService:
    """The pulls of one broker: served, held, woken, coalesced."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        resets: OffsetResets,
        answers: PullAnswers,
        settings: PullSettings,
        counters: Counters,
        steady_clock: Callable[[], int],
    ) -> None:
        """``steady_clock`` returns ms of a monotonic clock."""
        self._store = store
        self._topics = topics
        self._resets = resets
        self._answers = answers
        self._settings = settings
        self._counters = counters
        self._steady_clock = steady_clock
        self._held_pulls: HeldPulls[PullRequest] = HeldPulls(settings.max_held)
        self._sweeper: asyncio.Handle | None = None
        self._coalescer: PullCoalescer[PullRequest] = PullCoalescer(
            steady_clock, _call_later, lambda: store.end_offset, self._wake
        )
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def held_count(self) -> int:
        """Number of held pulls."""
        return len(self._held_pulls)

    # --- one attempt ---

    def serve(self, pull: PullRequest, attempt: Attempt) -> Outcome:
        """Serve ``pull`` once. It is answered now, or kept by the service until it can be.

        Raises whatever the store raises; then the pull is neither answered nor kept.
        """
        outcome, result = self._attempt(pull, attempt)
        if outcome is _FOUND or outcome is _EMPTY:
            self._answers.send(pull, result)
        elif outcome is not _HELD and outcome is not _COALESCED:
            self._spawn(self._complete(pull, outcome, result))
        return outcome

    def _attempt(self, pull: PullRequest, attempt: Attempt) -> tuple[Outcome, GetResult]:
        """Return how the attempt ends and what was read. Pulls that are HELD or COALESCED have been put there."""
        header, connection = pull.header, pull.connection
        topic, queue_id = header.topic, header.queue_id
        if connection.is_clogged:
            return Outcome.CLOGGED, _UNREAD
        if self._resets and (reset_to := self._resets.take(topic, header.consumer_group, queue_id)) is not None:
            return Outcome.RESET, GetResult(GetStatus.OFFSET_RESET, [], reset_to, 0, 0)
        if attempt is _FIRST and self._store.is_at_end(topic, queue_id, pull.offset) and self._hold(pull, pull.offset):
            return _HELD, _UNREAD
        memory = connection.answers
        is_short = memory is not None and memory.is_short
        options = pull.options._replace(copies=False) if is_short else pull.options
        began = perf_counter()
        result = self._store.get_messages(topic, queue_id, pull.offset, options)
        self._counters.record_read_time(began)
        if result.non_resident:
            self._counters.pulls_cold += 1
            return Outcome.COLD, result
        if is_short and result.buffers and connection.is_encrypted:
            return Outcome.NO_MEMORY, result
        if result.status is _STATUS_FOUND:
            if attempt is _FIRST and self._coalesce(pull, result):
                return _COALESCED, result
            return _FOUND, result
        if attempt is not _LAST and (offset := _hold_offset(pull, result)) is not None and self._hold(pull, offset):
            return _HELD, result
        return _EMPTY, result

    # --- HELD ---

    def _hold(self, pull: PullRequest, offset: int) -> bool:
        """Hold ``pull`` until a message arrives at ``offset``. False when it must not wait, or too many do."""
        if not pull.may_suspend():
            return False
        header, settings, now = pull.header, self._settings, self._steady_clock()
        if pull.deadline_ms:
            wait_ms = pull.deadline_ms - now
        else:
            asked_ms = header.suspend_timeout_millis if settings.long_polling else settings.short_polling_ms
            wait_ms = min(asked_ms, MAX_WAIT_MS)
        if wait_ms <= 0:
            return False
        pull.offset, pull.deadline_ms = offset, now + wait_ms
        tags = pull.options.tags
        if tags is not None and self._store.is_batch_topic(header.topic):
            tags |= _UNTAGGED  # a batch without a tag may contain messages with tags
        held = HeldPull(header.topic, header.queue_id, offset, tags, pull.connection, pull)
        if not self._held_pulls.hold(held, now, wait_ms):
            return False
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(BUCKET_MS / 1000, self._sweep)
        return True

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Serve the held pulls that wait for these messages, now or coalesced."""
        if len(self._held_pulls) and not self._coalescer.defer_arrivals(arrivals):
            self._wake(arrivals)

    def topic_changed(self, topic: str) -> None:
        """Serve the held pulls of a topic that was changed or deleted."""
        if len(self._held_pulls):
            self._serve_last(held.payload for held in self._held_pulls.take_topic(topic))

    def reset(self, topic: str, group: str) -> None:
        """Serve the held pulls of a group whose offsets were reset or whose right to read was withdrawn."""
        if len(self._held_pulls):
            taken = self._held_pulls.take_topic(topic, lambda pull: pull.header.consumer_group == group)
            self._serve_last(held.payload for held in taken)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the held pulls of a connection."""
        self._held_pulls.drop_owner(connection)

    def _wake(self, arrivals: Iterable[Arrival], coalesced: Iterable[PullRequest] = ()) -> None:
        for pull in [held.payload for held in self._held_pulls.take_arrived(arrivals)]:
            try:
                # The queue exists: a change of its topic would have woken the pull before a message could.
                self.serve(pull, _ARRIVAL)
            except Exception as error:  # noqa: BLE001 - the other pulls must get their answers
                self._answers.fail(pull, error)
        self._serve_last(pull for pull in coalesced if not pull.connection.is_closed)

    def _sweep(self) -> None:
        held_count, loop = len(self._held_pulls), asyncio.get_running_loop()
        expired = [held.payload for held in self._held_pulls.take_expired(self._steady_clock(), EXPIRED_AT_A_TIME)]
        self._serve_last(expired)
        if held_count >= IDLE_PULLS:
            for pull in expired:
                if pull.header.suspend_timeout_millis >= LONG_POLL_MS:
                    pull.connection.read_lazily()
        if len(expired) == EXPIRED_AT_A_TIME:
            self._sweeper = loop.call_soon(self._sweep)
        elif len(self._held_pulls):
            self._sweeper = loop.call_later(BUCKET_MS / 1000, self._sweep)
        else:
            self._sweeper = None

    def _serve_last(self, pulls: Iterable[PullRequest]) -> None:
        """Answer pulls that must not wait any longer. A failure is the answer to its pull alone."""
        for pull in pulls:
            try:
                require_read_queue(self._topics, pull.header.topic, pull.header.queue_id, pull.connection)
                self.serve(pull, _LAST)
            except Exception as error:  # noqa: BLE001 - the other pulls must get their answers
                self._answers.fail(pull, error)

    # --- COALESCED ---

    def _coalesce(self, pull: PullRequest, result: GetResult) -> bool:
        """Defer a pull that has reached the end of its queue and found little, while the log grows fast."""
        if not pull.may_suspend() or pull.header.suspend_timeout_millis < COALESCE_MS:
            return False
        is_small = result.next_offset == result.max_offset and result.total_bytes < _COALESCED_BYTES
        return is_small and self._coalescer.defer(pull)

    # --- CLOGGED, RESET, COLD, NO_MEMORY: a task completes the pull ---

    async def _complete(self, pull: PullRequest, outcome: Outcome, result: GetResult) -> None:
        if outcome is Outcome.CLOGGED:
            await self._serve_when_drained(pull)
        elif outcome is Outcome.RESET:
            await self._answer_without_messages(pull, result.status, result.next_offset)
        else:
            await self._serve_with_memory(pull, outcome, result)

    async def _serve_when_drained(self, pull: PullRequest) -> None:
        while pull.connection.is_clogged and not pull.connection.is_closed:
            await pull.connection.drained()
        if not pull.connection.is_closed:
            self._serve_last([pull])

    async def _serve_with_memory(self, pull: PullRequest, outcome: Outcome, result: GetResult) -> None:
        """Answer a pull whose messages are copied (COLD), or wait encrypted for the peer (NO_MEMORY)."""
        header, connection = pull.header, pull.connection
        if pull.deadline_ms:
            wait_ms = pull.deadline_ms - self._steady_clock()
        else:
            wait_ms = min(header.suspend_timeout_millis, MAX_WAIT_MS) if pull.may_suspend() else 0
        is_cold = outcome is Outcome.COLD
        with Reading(connection.answers, connection, patience(wait_ms / 1000)) as reading:
            granted = reading.granted if is_cold else reading.granted_mapped
            if await granted(result.total_bytes) and not connection.is_clogged:
                if is_cold:
                    await self._read_cold(pull)
                else:
                    self._answers.send(pull, result)
                return
        if connection.is_clogged:  # by the answers to its other pulls
            await self._serve_when_drained(pull)
        elif not connection.is_closed:
            # Not OFFSET_OVERFLOW_ONE, which some clients take for the end of the queue.
            await self._answer_without_messages(pull, GetStatus.NO_MATCHED_MESSAGE, pull.offset)

    async def _read_cold(self, pull: PullRequest) -> None:
        header, settings, options = pull.header, self._settings, pull.options
        if header.max_msg_bytes is None:  # the client sets no limit of its own: bound the work of the disk
            options = options._replace(
                max_count=min(options.max_count, settings.disk_count),
                max_bytes=min(options.max_bytes, settings.disk_bytes),
            )
        began = perf_counter()
        await self._answer_with(pull, self._store.load_messages(header.topic, header.queue_id, pull.offset, options))
        self._counters.record_read_time(began)

    async def _answer_without_messages(self, pull: PullRequest, status: GetStatus, next_offset: int) -> None:
        async def result() -> GetResult:
            bounds = await self._store.queue_bounds(pull.header.topic, pull.header.queue_id)
            return GetResult(status, [], next_offset, *bounds)

        await self._answer_with(pull, result())

    async def _answer_with(self, pull: PullRequest, reading: Coroutine[None, None, GetResult]) -> None:
        try:
            result = await reading
        except Exception as error:  # noqa: BLE001 - the client must get an answer whatever the disk does
            self._answers.fail(pull, error)
            return
        self._answers.send(pull, result)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Answer the held and coalesced pulls with what there is, and cancel the reads in progress."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._serve_last(held.payload for held in self._held_pulls.take_all())
        self._coalescer.flush()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _call_later(delay_s: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, callback)


def _hold_offset(pull: PullRequest, result: GetResult) -> int | None:
    """Return the offset at which a pull that found nothing waits, None when it is answered."""
    if empty_code(result, pull.offset) == ResponseCode.PULL_NOT_FOUND:
        return pull.offset
    # An arrival does not tell the properties of its message. A message that the filter rejects must not cost an answer
    # and another request.
    is_filtered = pull.deadline_ms and result.status is GetStatus.NO_MATCHED_MESSAGE
    return result.next_offset if is_filtered and result.next_offset == result.max_offset else None
