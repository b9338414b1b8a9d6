"""Serves pulls, with long polling (``PullMessageProcessor``, ``PullRequestHoldService``).

An attempt to serve a pull has one of nine outcomes::

    output buffer full ------------------> CLOGGED    wait until the peer has read, then try again
    offset was reset --------------------> RESET      respond with the new offset
    at the end of the queue --+
                              +--hold ---> HELD       wait for an arrival or the timeout, then try again
    read: nothing found ------+
                              +--group --> BEHIND     wait for what the group has confirmed, then try again
                              `----------> EMPTY      respond without messages
    read: pages not in memory -----------> COLD       read in a thread, then respond
    read: TLS, and memory is low --------> NO_MEMORY  wait for memory, then respond
    read: few found, the log grows fast -> COALESCED  wait at most 25 ms for more, then try again
    read: found -------------------------> FOUND      respond with slices of the log, without a copy

FOUND and EMPTY are the common cases and need no task. Reads that copy reserve memory first
(:mod:`raptormq.transport.memory`).

A member of a Dledger group may lack messages that the group has acknowledged. This includes a leader that was replaced
without detecting it. Before a response contains the end of a queue, the member waits until it has everything that was
confirmed when the pull arrived. Pulls are therefore linearizable on every member. If the wait takes longer than
``CATCH_UP_S``, the response requests another pull. A slave without a master cannot check this, so its responses may be
out of date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
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
"""Number of held pulls at which the broker begins to read the connections of idle consumers lazily."""
EXPIRED_AT_A_TIME = 128
"""Maximum number of expired pulls that are answered in one iteration of the event loop."""
CATCH_UP_S = 1.0
"""Maximum time in seconds that a member of a group waits until it has everything that the group has confirmed."""
_COALESCED_BYTES = 128 * 1024
"""Responses of at least this size are sent immediately."""
_UNTAGGED = frozenset({0})


class Outcome(Enum):
    """Outcome of an attempt to serve a pull. See the diagram of the module."""

    FOUND = "found"
    EMPTY = "empty"
    BEHIND = "behind"
    HELD = "held"
    COALESCED = "coalesced"
    RESET = "reset"
    COLD = "cold"
    NO_MEMORY = "no memory"
    CLOGGED = "clogged"


_FIRST, _ARRIVAL, _LAST, _CAUGHT_UP = Attempt.FIRST, Attempt.ARRIVAL, Attempt.LAST, Attempt.CAUGHT_UP
_FOUND, _EMPTY, _HELD, _COALESCED = Outcome.FOUND, Outcome.EMPTY, Outcome.HELD, Outcome.COALESCED
_STATUS_FOUND = GetStatus.FOUND
_OUTSIDE = frozenset(
    {
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
    }
)
"""Results of a read at an offset that is not in the queue."""
_TELLS_END = _OUTSIDE | {GetStatus.OFFSET_OVERFLOW_ONE}
"""Results that tell a consumer the end of a queue, or that there are no messages from its offset on."""
_UNREAD = GetResult(GetStatus.NO_MATCHED_MESSAGE, [], 0, 0, 0)
"""Result of an attempt without a read."""


class PullService:
    """Serves the pulls of one broker."""

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
        """Create the service. ``steady_clock`` returns ms of a monotonic clock."""
        self._catch_up: Callable[[float], Awaitable[bool]] | None = None
        self._is_stopping = False
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

    def attach_group(self, catch_up: Callable[[float], Awaitable[bool]]) -> None:
        """Serve pulls as a member of a Dledger group. ``catch_up(seconds)`` waits until the member has everything that
        was confirmed at the call. It returns False if the time limit is reached first.
        """
        self._catch_up = catch_up

    @property
    def held_count(self) -> int:
        """Number of held pulls."""
        return len(self._held_pulls)

    # --- one attempt ---

    def serve(self, pull: PullRequest, attempt: Attempt) -> Outcome:
        """Attempt to serve ``pull``. The service answers it now or later.

        Raises:
            RaptorMQError: the store could not be read. The caller must answer the pull.
        """
        outcome, result = self._attempt(pull, attempt)
        if outcome is _FOUND or outcome is _EMPTY:
            self._answers.send(pull, result)
        elif outcome is not _HELD and outcome is not _COALESCED:
            self._spawn(self._complete(pull, outcome, result))
        return outcome

    def _attempt(self, pull: PullRequest, attempt: Attempt) -> tuple[Outcome, GetResult]:
        """Return the outcome and the result of the read. HELD and COALESCED pulls have been registered."""
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
        may_hold = attempt is _FIRST or attempt is _ARRIVAL
        if may_hold and (offset := self._hold_offset(pull, result)) is not None and self._hold(pull, offset):
            return _HELD, result
        if attempt is not _CAUGHT_UP and self._must_catch_up(result):
            return (_EMPTY, _pull_again(pull, result)) if self._is_stopping else (Outcome.BEHIND, result)
        return _EMPTY, self._without_moves(pull, result)

    def _must_catch_up(self, result: GetResult) -> bool:
        """Return whether only a group member that has caught up may return ``result``."""
        return self._catch_up is not None and result.status in _TELLS_END

    def _without_moves(self, pull: PullRequest, result: GetResult) -> GetResult:
        """Return ``result``, or on a follower a result that does not change the offset of the consumer. Only the leader
        knows the offsets of a queue, so a change would repeat or skip messages.
        """
        if result.status not in _OUTSIDE or not self._store.is_follower:
            return result
        if result.status is GetStatus.OFFSET_TOO_SMALL:  # the leader's log may begin earlier and have the message
            return _pull_again(pull, result)
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, [], pull.offset, result.min_offset, result.max_offset)

    # --- HELD ---

    def _hold_offset(self, pull: PullRequest, result: GetResult) -> int | None:
        """Return the offset at which a pull without messages waits, or None if it must be answered."""
        if empty_code(result, pull.offset) == ResponseCode.PULL_NOT_FOUND:
            return pull.offset
        if result.status in _OUTSIDE and self._store.is_follower:
            return pull.offset
        # Arrivals do not contain properties, so an SQL92 filter is evaluated after the read. If it rejects the message,
        # the pull waits again, which saves a response and a request.
        is_filtered = pull.deadline_ms and result.status is GetStatus.NO_MATCHED_MESSAGE
        return result.next_offset if is_filtered and result.next_offset == result.max_offset else None

    def _hold(self, pull: PullRequest, offset: int) -> bool:
        """Hold ``pull`` until a message arrives at ``offset``. Return False if it may not wait."""
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
        """Serve the held pulls that wait for these messages, immediately or coalesced."""
        if len(self._held_pulls) and not self._coalescer.defer_arrivals(arrivals):
            self._wake(arrivals)

    def topic_changed(self, topic: str) -> None:
        """Serve the held pulls of a topic that was changed or deleted."""
        if len(self._held_pulls):
            self._serve_last(held.payload for held in self._held_pulls.take_topic(topic))

    def reset(self, topic: str, group: str) -> None:
        """Serve the held pulls of a group after a reset of its offsets or a change of its permissions."""
        if len(self._held_pulls):
            taken = self._held_pulls.take_topic(topic, lambda pull: pull.header.consumer_group == group)
            self._serve_last(held.payload for held in taken)

    def connection_closed(self, connection: Connection) -> None:
        """Remove the held pulls of a closed connection."""
        self._held_pulls.drop_owner(connection)

    def _wake(self, arrivals: Iterable[Arrival], coalesced: Iterable[PullRequest] = ()) -> None:
        for pull in [held.payload for held in self._held_pulls.take_arrived(arrivals)]:
            try:
                # No check of the queue: a change of the topic answers its held pulls.
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

    def _serve_last(self, pulls: Iterable[PullRequest], attempt: Attempt = _LAST) -> None:
        """Answer pulls that may not wait any longer. An error is the response to one pull only."""
        for pull in pulls:
            try:
                require_read_queue(self._topics, pull.header.topic, pull.header.queue_id, pull.connection)
                self.serve(pull, attempt)
            except Exception as error:  # noqa: BLE001 - the other pulls must get their answers
                self._answers.fail(pull, error)

    # --- COALESCED ---

    def _coalesce(self, pull: PullRequest, result: GetResult) -> bool:
        """Defer a pull with a small response that reaches the end of the queue, while the log grows fast."""
        if not pull.may_suspend() or pull.header.suspend_timeout_millis < COALESCE_MS:
            return False
        is_small = result.next_offset == result.max_offset and result.total_bytes < _COALESCED_BYTES
        return is_small and self._coalescer.defer(pull)

    # --- CLOGGED, RESET, BEHIND, COLD, NO_MEMORY: a task completes the pull ---

    async def _complete(self, pull: PullRequest, outcome: Outcome, result: GetResult) -> None:
        if outcome is Outcome.CLOGGED:
            await self._serve_when_drained(pull)
        elif outcome is Outcome.RESET:
            await self._answer_without_messages(pull, result.status, result.next_offset)
        elif outcome is Outcome.BEHIND:
            await self._serve_when_caught_up(pull)
        else:
            await self._serve_with_memory(pull, outcome, result)

    async def _serve_when_drained(self, pull: PullRequest) -> None:
        while pull.connection.is_clogged and not pull.connection.is_closed:
            await pull.connection.drained()
        if not pull.connection.is_closed:
            self._serve_last([pull])

    async def _serve_when_caught_up(self, pull: PullRequest) -> None:
        assert self._catch_up is not None
        has_caught_up = await self._catch_up(CATCH_UP_S)
        if pull.connection.is_closed:
            return
        if has_caught_up:
            self._serve_last([pull], _CAUGHT_UP)
        else:
            await self._answer_to_pull_again(pull)

    async def _answer_to_pull_again(self, pull: PullRequest) -> None:
        await self._answer_without_messages(pull, GetStatus.NO_MATCHED_MESSAGE, pull.offset)

    async def _serve_with_memory(self, pull: PullRequest, outcome: Outcome, result: GetResult) -> None:
        """Answer a pull that needs memory: for a copy of its messages (COLD) or for their encryption (NO_MEMORY)."""
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
        if connection.is_clogged:  # responses to other pulls have filled the output buffer
            await self._serve_when_drained(pull)
        elif not connection.is_closed:
            await self._answer_to_pull_again(pull)

    async def _read_cold(self, pull: PullRequest) -> None:
        header, settings, options = pull.header, self._settings, pull.options
        if header.max_msg_bytes is None:  # without a limit of the client, limit the disk reads
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
        except Exception as error:  # noqa: BLE001 - any error is a response to the client
            self._answers.fail(pull, error)
            return
        if self._must_catch_up(result):
            await self._serve_when_caught_up(pull)
        else:
            self._answers.send(pull, self._without_moves(pull, result))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Answer the held and coalesced pulls, and cancel the reads in progress."""
        self._is_stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._serve_last(held.payload for held in self._held_pulls.take_all())
        self._coalescer.flush()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _call_later(delay_s: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, callback)


def _pull_again(pull: PullRequest, result: GetResult) -> GetResult:
    """Return a result without information about the queue. The consumer repeats its pull.

    The status is not OFFSET_OVERFLOW_ONE, which some clients interpret as the end of the queue.
    """
    return GetResult(GetStatus.NO_MATCHED_MESSAGE, [], pull.offset, result.min_offset, result.max_offset)
