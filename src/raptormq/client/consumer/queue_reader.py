"""Reads one assigned queue: determines the start offset, pulls sequentially, and tracks completed messages.

`QueueReader` pulls messages and passes them to the `submit` function. Fetching pauses while too many messages are
unfinished. After an error the reader pauses and retries.

`start_offset` returns the start offset of a group in a queue: the committed offset, or else the offset according to the
settings. The response of a broker to a group without a committed offset depends on the age of the queue. While the
first message of the queue is still stored, the broker returns offset 0, so a group misses nothing of a young topic;
otherwise it returns "not found" and the settings decide. Readers with an explicit start position only query the
committed offset. Brokers store no offsets of broadcasting members, so for these the settings decide, on young topics
too.

`CrcRetry` decides what happens to a record whose body does not match its CRC. The record is fetched once more, and
skipped when it is damaged again. The first time, it may have been damaged in transit or in a cache of the broker. The
second time, it is damaged on disk, and waiting would block the queue forever. Other unreadable records were sent in
that form and are not fetched again.

`PullPace` sets how long the readers of a consumer pause between pulls. The pause applies to batch listeners, once the
end of the queue was reached. The cost of a pull hardly depends on its size, so readers collect several batches per
pull. While the total pull rate exceeds the target, the pause increases; below the target it decreases::

    pause    5 ms while few pulls are made          <= 25 ms, whatever arrives
    next pause = this pause x pulls per second / wanted pulls per second

A queue whose pull has waited for `RARE_S` or longer is pulled again without a pause.

The broker holds the pulls of idle queues, and readers repeat them when the hold is over. Thousands of idle queues would
keep a consumer and its broker busy, so their pulls are held longer::

    hold = pulls that wait / idle pulls per second    >= as configured, <= four times that

See also: `consumer.rebalance` starts and revokes readers, `consumer.listener_pool` completes messages,
`consumer.process_queue` counts them, `message.decoding` verifies CRCs; `consumer.pull_consumer` uses `start_offset` and
`CrcRetry`, too. Source: RocketMQ `PullMessageService`, `DefaultMQPushConsumerImpl.pullMessage`,
`RebalancePushImpl.computePullFromWhereWithException`; none for the pace, RocketMQ pulls at once (pullInterval).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from raptormq.client.background import background, cancel_all
from raptormq.client.cluster import ClientInstance, OffsetRequests, QueueOffset, call_broker
from raptormq.client.config import ConsumeFromWhere, ConsumerConfig
from raptormq.client.consumer.broker_outages import BrokerOutages, Failure
from raptormq.client.consumer.local_offsets import LocalOffsets
from raptormq.client.consumer.process_queue import FlowLimits, ProcessQueue, RunningCalls, now_ms
from raptormq.client.consumer.pull import UNHELD_PAUSE_S, PullRequest, PullResult, PullStatus, pull
from raptormq.client.description import QueueDescription, ReadState
from raptormq.client.message import MessageBatch, decode_batches
from raptormq.errors import ChecksumError, KeyMissing, RaptorMQError, RecordError, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.batch import MAX_BATCH_RECORDS
from raptormq.protocol.bodies.heartbeat import Subscription
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.record import StoredMessage
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.protocol.topic_names import RETRY_PREFIX
from raptormq.transport.timing import Backoff

log = get_logger(__name__)


async def start_offset(
    offsets: OffsetRequests,
    address: str,
    group: str | None,
    queue: MessageQueue,
    consume_from: ConsumeFromWhere,
    consume_from_ms: int = 0,
    *,
    zero_on_young_topic: bool = False,
) -> QueueOffset:
    """Return the first offset to read. Without a group it depends only on the settings.

    Raises:
        TransportError, ServerError: the broker does not respond, or refuses.
    """
    if group is not None:
        committed = await offsets.committed(address, group, queue, zero_on_young_topic=zero_on_young_topic)
        if committed is not None:
            return committed
    if queue.topic.startswith(RETRY_PREFIX):
        return QueueOffset(0, None)
    if consume_from is ConsumeFromWhere.LAST:
        return await offsets.max_offset(address, queue)
    if consume_from is ConsumeFromWhere.TIMESTAMP:
        return await offsets.offset_by_time(address, queue, consume_from_ms)
    return await offsets.min_offset(address, queue)


class CrcRetry:
    """Tracks the last record of a queue whose body did not match its CRC."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = -1

    def should_retry_crc(self, offset: int, error: Exception) -> bool:
        """Return whether to fetch the record at ``offset`` again, which is unreadable because of ``error``."""
        return isinstance(error, ChecksumError) and offset != self._offset

    def remember(self, offset: int) -> None:
        """Note that the record at ``offset`` is fetched again."""
        self._offset = offset


SHORTEST_S = 0.005
LONGEST_S = 0.025
WANTED_PER_S = 800.0
"""Target pull rate per second over all queues of a consumer; at 100 MB/s each pull returns 128 KiB."""
RARE_S = 10 * LONGEST_S
IDLE_PER_S = 200.0
"""Target rate of expiring holds per second for one consumer."""
LONGEST_HOLDS = 4
_WINDOW_S = 0.05


class PullPace:
    """Pause between pulls and hold time of pulls, shared by all readers of one consumer. Times are in seconds."""

    __slots__ = ("_began", "_pulls", "pause", "waiting")

    def __init__(self) -> None:
        self.pause = SHORTEST_S
        self.waiting = 0
        """Number of pulls that have no response yet."""
        self._began = 0.0
        self._pulls = 0

    def pause_after(self, pull_seconds: float) -> float:
        """Return the pause after a pull that took `pull_seconds`; 0 if a pause would not collect more messages."""
        return self.pause if pull_seconds < RARE_S else 0.0

    def pulled(self, now: float) -> None:
        """Count a pull, and update the pause when enough pulls were counted to determine their rate."""
        self._pulls += 1
        seconds = now - self._began
        if seconds < _WINDOW_S:
            return
        pull_request = self.pause * self._pulls / (seconds * WANTED_PER_S)
        self.pause = min(max(pull_request, SHORTEST_S), LONGEST_S)
        self._began, self._pulls = now, 0

    def hold(self, configured: float) -> float:
        """Return how long brokers may hold an empty pull: from `configured` to `LONGEST_HOLDS` times as long."""
        return min(max(configured, self.waiting / IDLE_PER_S), LONGEST_HOLDS * configured)


_BACKOFF = Backoff(0.1, 5.0)
_WHOLE_PULL_BYTES = 1024 * 1024
"""Bytes per pull for batch listeners, independent of the number of messages."""
_FORGOTTEN = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
_OTHER_SUBSCRIPTIONS = (
    "the broker has no heartbeat of this consumer yet, or another member of the group subscribes to other topics or "
    "with another filter: all members of a group need the same subscriptions"
)
_NO_SUCH_QUEUE = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER, ResponseCode.TOPIC_RECREATED

Submit = Callable[["QueueReader", ProcessQueue, Sequence[MessageExt]], None]


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """Shared objects of all queue readers of one consumer."""

    instance: ClientInstance
    """Connections, routes and heartbeats."""
    config: ConsumerConfig
    """Fetch limits and start position."""
    group: str
    submit: Submit
    """Receives fetched messages with matching tags: those of one pull, or one batch. Must not block."""
    local: LocalOffsets | None
    """Offsets of a broadcasting consumer; None if the broker stores them."""
    pace: PullPace
    outages: BrokerOutages
    resume: Callable[[QueueReader], None]
    """Continues with submitted messages after a pause, or discards them when the queue is no longer read."""


class QueueReader:
    """Reader of one queue, from its assignment until it is dropped.

    Args:
        context: objects shared with the other readers of the consumer.
        queue: the queue to read.
        subscription: the wanted tags.
        whole: returns whether batches are submitted, and completed, as a whole.
        ready: task whose end the first pull waits for; `None` to pull at once.
    """

    def __init__(
        self,
        context: ReaderContext,
        queue: MessageQueue,
        subscription: Subscription,
        whole: Callable[[], bool],
        ready: asyncio.Task[None] | None = None,
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.process_queue: ProcessQueue | None = None
        """Unfinished messages; None until the start offset is known, and after the queue was dropped."""
        self.calls = RunningCalls()
        """Running listener calls with messages of the queue, also those from before a reset of the offset."""
        self.created_ms = self.last_pull_ms = now_ms()
        """Time of the creation and of the last pull request, in ms since 1970."""
        self.is_paused = False
        """True while the application has paused the queue: nothing is fetched, and no call starts."""
        self.locked_until = math.inf
        """Loop time until which calls may start; the end of the queue lock of an ordered consumer."""
        self.is_positioned = asyncio.Event()
        """Set when the start offset is known, or when the first attempt to determine it has failed. Set from the
        beginning if the reader waits for `ready`.
        """
        self._max_offset: int | None = None
        """End of the queue at the last pull."""
        self._error: str | None = None
        """Error of the last pull; None if it succeeded."""
        config = context.config
        self._instance = context.instance
        self._resume = context.resume
        self._config = config
        self._group = context.group
        self._submit = context.submit
        self._local = context.local
        self._pace = context.pace
        self._outages = context.outages
        self._whole = whole
        self._ready = ready
        self._limits = FlowLimits(config.max_messages_per_queue, config.max_bytes_per_queue, config.span_limit)
        self._has_room = asyncio.Event()
        self._crc_retry = CrcRetry()
        self._broker_id = MASTER_ID
        if ready is not None:
            self.is_positioned.set()
        self._task = background(self._run(), f"reader of {queue}")

    def complete(self, process_queue: ProcessQueue, offset: int) -> None:
        """Complete the message or batch at `offset`. `process_queue` is the process queue at the time of its
        submission."""
        process_queue.complete(offset)
        self._has_room.set()

    def reset_to(self, offset: int) -> None:
        """Continue at another offset. Submitted messages are discarded, and a running pull is cancelled."""
        if self.process_queue is not None:
            self.process_queue.dropped = True
        self.process_queue = ProcessQueue(offset)
        self.is_positioned.set()
        self._task.cancel()
        self._task = background(self._run(), f"reader of {self.queue}")
        self._resume(self)

    def pause(self) -> None:
        """Stop fetching and submitting. Running calls continue, and their completions are recorded."""
        self.is_paused = True

    def confirm_lock(self, until: float) -> None:
        """Unblock calls, and start no call after `until` (loop time)."""
        self.locked_until = until
        if not self.is_paused:
            self._resume(self)

    def resume(self) -> None:
        """Continue after `pause`; no effect if the queue is not paused."""
        self.is_paused = False
        self._has_room.set()
        self._resume(self)

    def revoke(self) -> None:
        """Stop reading and submitting, because the queue was revoked. Completions are still recorded."""
        if self.process_queue is not None:
            self.process_queue.revoked = True
        self.is_positioned.set()
        self._task.cancel()
        self._resume(self)

    def describe(self) -> QueueDescription:
        """Return a snapshot of the queue and its reader."""
        process_queue = self.process_queue
        if process_queue is None:
            return QueueDescription(
                self.queue, self._state, None, None, self._max_offset, 0, 0, self.calls.count, self._error
            )
        return QueueDescription(
            self.queue,
            self._state,
            process_queue.commit_offset,
            process_queue.next_offset,
            self._max_offset,
            process_queue.unfinished_messages,
            process_queue.unfinished_bytes,
            self.calls.count,
            self._error,
        )

    @property
    def _state(self) -> ReadState:
        if self.is_paused:
            return ReadState.PAUSED
        if self._error is not None:
            return ReadState.FAILING
        if self.process_queue is None:
            return ReadState.STARTING
        return ReadState.FULL if self.is_full else ReadState.READING

    @property
    def is_full(self) -> bool:
        """Whether fetching pauses because of the flow limits."""
        return self.process_queue is not None and self.process_queue.is_full(self._limits)

    @property
    def is_busy(self) -> bool:
        """Whether listener calls with messages of the queue are running."""
        return self.calls.count > 0

    @property
    def is_abandoned(self) -> bool:
        """Whether a call that ignored its cancellation may still use messages of the queue."""
        return self.calls.is_abandoned

    async def wait_for_calls(self, timeout: float, *, until_end: bool = False) -> None:
        """Wait up to `timeout` seconds until no listener call has messages of a revoked queue; with `until_end` without
        a limit.
        """
        await cancel_all([self._task])
        if await self.calls.wait_idle(timeout):
            return
        if until_end:
            log.warning("group %s keeps %s until a listener has consumed messages of it", self._group, self.queue)
            await self.calls.wait_idle(None)
        else:
            log.warning(
                "group %s releases %s while a listener still has messages of it: they may be consumed twice",
                self._group,
                self.queue,
            )

    def drop(self) -> None:
        """Forget the offset and ignore later completions, because the queue was released or its topic was deleted."""
        if self.process_queue is not None:
            self.process_queue.dropped = True
        self.process_queue = None

    async def _run(self) -> None:
        failures, is_forgotten = 0, False
        failure: Failure | None
        clock = asyncio.get_running_loop().time
        if self._ready is not None:
            await asyncio.wait([self._ready])
        while True:
            try:
                if self.process_queue is None:
                    self.process_queue = await self._at_start_offset()
                await self._wait_for_room(self.process_queue)
                pull_began = clock()
                self.last_pull_ms = now_ms()
                self._pace.waiting += 1
                try:
                    result = await self._pull(self.process_queue.next_offset, self.process_queue.topic_id)
                finally:
                    self._pace.waiting -= 1
                was_end = result.next_offset >= result.max_offset
                self._max_offset = result.max_offset
                try:
                    self._handle_result(self.process_queue, result)
                finally:
                    del result  # otherwise each of thousands of idle readers keeps its last pull result in memory
                failures, is_forgotten, failure, self._error = 0, False, None, None
                pause = self._pull_pause(clock() - pull_began) if was_end else 0.0
                self._outages.note_response(self.queue)
            except RaptorMQError as error:
                was_forgotten, is_forgotten = is_forgotten, isinstance(error, ServerError) and error.code in _FORGOTTEN
                if is_forgotten and not was_forgotten:
                    failures = 0  # the broker is up, and knows the group after the next heartbeat
                if isinstance(error, ServerError) and error.code in _NO_SUCH_QUEUE:
                    if error.code == ResponseCode.TOPIC_RECREATED:
                        self._forget_local()
                    self.drop()  # a recreated topic starts again
                    self._instance.routes.refresh_soon(self.queue.topic)
                pause = _BACKOFF.pause(failures)
                failures += 1
                # Not the error itself, whose traceback keeps the pull result in memory.
                failure = Failure.of(error, has_route=self._instance.routes.cached(self.queue.topic) is not None)
                if is_forgotten:
                    failure = failure._replace(text=f"{failure.text} ({_OTHER_SUBSCRIPTIONS})")
                self._error = failure.text
                self._broker_id = MASTER_ID
            if is_forgotten:
                await self._instance.heartbeats.send_all()
            if failure is not None:
                await self._outages.pause(self.queue, failure, pause)
            elif pause:
                await asyncio.sleep(pause)

    def _pull_pause(self, pull_seconds: float) -> float:
        """Return the pause before the next pull; `pull_seconds` is how long the last one took."""
        interval = self._config.pull_interval
        if interval is not None:
            return interval
        return self._pace.pause_after(pull_seconds) if self._whole() else 0.0

    def _forget_local(self) -> None:
        topic_id = self.process_queue.topic_id if self.process_queue is not None else None
        if self._local is not None and topic_id is not None and self._local.forget(self.queue, topic_id):
            log.warning(
                "topic %s of %s was deleted and recreated: its offsets in %s are no longer valid, and group %s"
                " starts as set by consume_from",
                *(self.queue.topic, self.queue.broker_name, self._local.path, self._group),
            )

    async def _at_start_offset(self) -> ProcessQueue:
        try:
            return ProcessQueue(*await self._start_offset())
        finally:
            self.is_positioned.set()

    async def _start_offset(self) -> QueueOffset:
        if self._local is not None and (known := self._local.get(self.queue)) is not None:
            return QueueOffset(known, self._local.topic_id(self.queue))

        async def ask(address: str) -> QueueOffset:
            return await start_offset(
                self._instance.offsets,
                address,
                self._group if self._local is None else None,
                self.queue,
                self._config.consume_from,
                self._config.consume_from_ms,
                zero_on_young_topic=True,
            )

        return await call_broker(self._instance.routes, self.queue, ask)

    async def _wait_for_room(self, process_queue: ProcessQueue) -> None:
        while self.is_paused or process_queue.is_full(self._limits):
            self._has_room.clear()
            await self._has_room.wait()

    def _pull(self, offset: int, topic_id: str | None) -> Awaitable[PullResult]:
        whole, config = self._whole(), self._config
        hold = self._pace.hold(config.pull_suspend)
        timeout = config.pull_timeout - config.pull_suspend + hold
        pull_request = PullRequest(
            self._group,
            self.queue,
            offset,
            MAX_BATCH_RECORDS if whole else config.pull_batch,
            self.subscription,
            send_subscription=False,
            suspend_ms=int(hold * 1000),
            max_bytes=_WHOLE_PULL_BYTES if whole else None,
            topic_id=topic_id or TOPIC_ID_QUERY,
        )
        instance = self._instance
        return call_broker(
            instance.routes,
            self.queue,
            lambda address: pull(instance.pool, address, pull_request, timeout, UNHELD_PAUSE_S),
            self._broker_id,
        )

    def _handle_result(self, process_queue: ProcessQueue, result: PullResult) -> None:
        self._broker_id = result.suggested_broker_id
        self._pace.pulled(asyncio.get_running_loop().time())
        if result.status is PullStatus.OFFSET_ILLEGAL:
            if (
                result.next_offset != process_queue.next_offset
            ):  # otherwise an administrator has reset it to the same offset
                log.warning(
                    "%s of group %s continues at offset %d instead of %d",
                    *(self.queue, self._group, result.next_offset, process_queue.next_offset),
                )
            process_queue.dropped = True
            self.process_queue = ProcessQueue(result.next_offset, result.topic_id)
            return
        process_queue.topic_id = result.topic_id
        batches: Sequence[MessageBatch] = ()
        next_offset = result.next_offset
        unreadable: RecordError | KeyMissing | None = None

        def skips(record: StoredMessage, error: RecordError | KeyMissing) -> bool:
            nonlocal next_offset, unreadable
            offset = record.queue_offset
            is_retried = self._crc_retry.should_retry_crc(offset, error)
            if is_retried or isinstance(error, KeyMissing):
                next_offset, unreadable = offset, error
                if is_retried:
                    self._crc_retry.remember(offset)
                return False
            # The record can never be read: it was sent like that, or was fetched twice with a wrong checksum.
            log.error("the message at offset %d of %s cannot be consumed and is skipped: %s", offset, self.queue, error)
            return True

        whole = self._whole()
        if result.status is PullStatus.FOUND:
            # The broker compares hashes of tags, which may collide.
            tags, keys = self.subscription.tags, self._instance.config.keys
            batches = decode_batches(
                result.body, self.queue, process_queue.next_offset, tags, skips, keys, lazily=whole
            )
        self._admit(process_queue, batches, next_offset, whole)
        if unreadable is not None:  # the messages before it were submitted, the next pull starts with it
            try:
                raise unreadable
            finally:
                del unreadable  # the traceback of the error and this frame would reference each other

    def _admit(
        self, process_queue: ProcessQueue, batches: Sequence[MessageBatch], next_offset: int, whole: bool
    ) -> None:
        """Submit the messages that were not submitted before."""
        if whole:
            for batch in batches:
                offsets = batch.offsets
                if process_queue.add(offsets[0], batch.body_bytes, len(batch), offsets[-1]):
                    self._submit(self, process_queue, batch)
            process_queue.advance(next_offset)
            return
        pull_request = [
            message
            for batch in batches
            for message in batch
            if process_queue.add(message.queue_offset, len(message.body))
        ]
        process_queue.advance(next_offset)
        if pull_request:
            self._submit(self, process_queue, pull_request)
