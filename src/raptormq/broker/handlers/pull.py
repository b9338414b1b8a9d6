"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long polling (``PullMessageProcessor``).

A pull that finds messages is answered with slices of the log, not copies. One that finds none and may wait is held
(:mod:`raptormq.broker.pull.held_pulls`) and tried once more when its queue grows or its time is up; while much arrives,
not for each batch but in waves (:mod:`raptormq.broker.pull.answer_batching`). What is not in memory is fetched by a
thread first; what has to be copied may have to wait for memory (:mod:`raptormq.transport.memory.send_budget`). Batches
of BatchCQ topics go whole to clients that take them apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from raptormq.broker.clients import ClientRegistry, Subscriptions, Wanted
from raptormq.broker.config import BrokerConfig
from raptormq.broker.metrics import Counters, Statistics
from raptormq.broker.pull import (
    BUCKET_MS,
    LONG_MS,
    MAX_WAIT_MS,
    WAVE_MS,
    HeldPull,
    HeldPulls,
    OffsetResets,
    PullCoalescer,
    empty_code,
)
from raptormq.broker.tables import GroupTable, TopicTable
from raptormq.broker.validation import is_other_topic, made_again, require_group, require_read_queue, require_same_topic
from raptormq.protocol.bodies.heartbeat import BROADCASTING
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.pull import PullFlag, PullMessageRequestHeader, PullMessageResponseHeader
from raptormq.protocol.inner_batch import understands_encrypted_batches, understands_inner_batches
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY
from raptormq.storage.queue import Arrival
from raptormq.storage.read import GetResult, GetStatus, ReadOptions
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.memory import Reading, patience
from raptormq.transport.router import Refused, Router, answer, failure

_MANY = 128
"""So many idle consumers, and more, are read lazily."""
_MUCH = 128 * 1024
"""Bytes that are worth an answer of their own, whatever else arrives."""
_AT_A_TIME = 128
"""Pulls that end before others have their turn."""
_READ = int(Perm.READ)
_NO_TAG = frozenset({0})
_FOUND = GetStatus.FOUND
_COMMIT, _SUSPEND, _SUBSCRIPTION = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUSPEND), int(PullFlag.SUBSCRIPTION)


@dataclass(slots=True)
class _Pull:
    """A pull that has passed its checks; whoever serves or holds it is the only one to have it."""

    connection: Connection
    request: RemotingCommand
    header: PullMessageRequestHeader
    offset: int
    """Where it reads on: behind the header's, once it has been held and found nothing that it wants."""
    options: ReadOptions
    topic_id: str | None
    """Of the topic that the answer is about, where the client has asked for it, or named it."""
    until_ms: int = 0
    """How long it may be held, 0 before it was."""


class PullHandlers:
    """Answers pulls, at once or later."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        config: BrokerConfig,
        counters: Counters,
        statistics: Statistics,
        resets: OffsetResets,
        steady_clock: Callable[[], int],
    ) -> None:
        """``steady_clock`` gives ms that no change of the time of day moves."""
        self._store = store
        self._topics = topics
        self._groups = groups
        self._registry = registry
        self._config = config
        self._counters = counters
        self._statistics = statistics
        self._resets = resets
        self._steady_clock = steady_clock
        self._subscriptions = Subscriptions(registry, config.policies)
        self._holds: HeldPulls[_Pull] = HeldPulls(config.pulling.max_held)
        self._sweeper: asyncio.Handle | None = None
        self._waves: PullCoalescer[_Pull] = PullCoalescer(
            steady_clock, _call_later, lambda: store.end_offset, self._answer_wave
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def register(self, router: Router) -> None:
        """Enter the handlers into the table."""
        router.add(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, self.pull)
        router.add(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader, self.lite_pull)
        router.on_closed(self._holds.drop_owner)

    @property
    def held_count(self) -> int:
        """Pulls that wait for messages."""
        return len(self._holds)

    # --- requests ---

    def lite_pull(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """361: a pull of the lite consumer."""
        if not self._config.policies.lite_pull:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker does not serve lite pulls (litePullMessageEnable)")
        return self.pull(connection, request, header)

    def pull(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """11: messages of one queue from an offset on."""
        if (forbidden := self._forbidden(header)) is not None:
            fields = PullMessageResponseHeader(0, header.queue_offset, 0, 0, forbidden[0])
            return response_to(request, ResponseCode.NO_PERMISSION, forbidden[1], fields)
        topic_id = require_same_topic(self._topics, header.topic, header.topic_id)
        if header.topic_id != TOPIC_ID_QUERY:
            topic_id = header.topic_id
        require_read_queue(self._topics, header.topic, header.queue_id, connection)
        wanted = self._wanted(header)
        place = header.topic, header.consumer_group, header.queue_id
        self._statistics.pulled.setdefault(place, header.queue_offset)
        pulling = self._config.pulling
        if header.max_msg_bytes is None:
            max_count, max_bytes = pulling.memory_count, pulling.memory_bytes
        else:
            max_count, max_bytes = pulling.asked_count, min(max(header.max_msg_bytes, 1), pulling.asked_bytes)
        max_count = min(max(header.max_msg_nums, 1), max_count)
        if header.sys_flag & _COMMIT and header.commit_offset >= 0 and not self._resets.pending(*place):
            self._store.consumer_offsets.commit(*place, header.commit_offset)
        client = request.language, request.version
        batches = understands_inner_batches(*client), understands_encrypted_batches(*client)
        options = ReadOptions(max_count, max_bytes, *wanted, *batches)
        pull = _Pull(connection, request, header, header.queue_offset, options, topic_id)
        self._serve(pull, may_wait=True)
        return None

    def _forbidden(self, header: PullMessageRequestHeader) -> tuple[int, str] | None:
        """Return forbiddenType and remark of a pull that permissions rule out."""
        if not self._config.policies.permission & _READ:
            return 1, "this broker serves no messages (brokerPermission)"
        auto_create = self._config.policies.auto_create_group
        group = require_group(self._groups, header.consumer_group, auto_create=auto_create)
        if not group.consume_enable:
            return 2, f"group {group.name} may not consume"
        topic = self._topics.get(header.topic)
        if topic is not None and not topic.perm & _READ:
            return 3, f"topic {header.topic} is not readable"
        if not group.consume_broadcast_enable and not header.sys_flag & _SUBSCRIPTION:
            consumers = self._registry.consumers.get(header.consumer_group)
            if consumers and consumers.message_model == BROADCASTING:
                return 4, f"group {group.name} may not consume by broadcasting"
        if self._groups.forbidden and not self._groups.may_read(header.consumer_group, header.topic):
            return 5, f"group {group.name} may not read topic {header.topic}"
        return None

    def _wanted(self, header: PullMessageRequestHeader) -> Wanted:
        """Return what the pull wants: from the request, or from the group's heartbeats."""
        if header.sys_flag & _SUBSCRIPTION:
            return self._subscriptions.asked(
                header.topic, header.subscription, header.expression_type, header.sub_version
            )
        return self._subscriptions.announced(header.consumer_group, header.topic, header.sub_version)

    # --- answering ---

    def _serve(self, pull: _Pull, *, may_wait: bool) -> None:
        if pull.connection.is_clogged:
            self._spawn(self._serve_when_drained(pull))
            return
        header = pull.header
        place = header.topic, header.consumer_group, header.queue_id
        if self._resets and (offset := self._resets.take(*place)) is not None:
            self._spawn(self._answer_with(pull, partial(self._nothing, pull, GetStatus.OFFSET_RESET, offset)))
            return
        is_new = may_wait and not pull.until_ms
        if (
            is_new
            and self._store.is_at_end(header.topic, header.queue_id, pull.offset)
            and self._hold(pull, pull.offset)
        ):
            return
        answers = pull.connection.answers
        is_short = answers is not None and answers.is_short
        options = pull.options._replace(copies=False) if is_short else pull.options
        began = perf_counter()
        result = self._store.get_messages(header.topic, header.queue_id, pull.offset, options)
        self._counters.read_since(began)
        if result.cold or (is_short and result.buffers and pull.connection.is_encrypted):
            self._counters.pulls_cold += result.cold
            self._spawn(self._serve_when_room(pull, result))
        elif not ((may_wait and self._held(pull, result)) or (is_new and self._postponed(pull, result))):
            self._answer(pull, result)

    def _held(self, pull: _Pull, result: GetResult) -> bool:
        if result.status is _FOUND:
            return False
        offset = _where_to_wait(pull, result)
        return offset is not None and self._hold(pull, offset)

    def _hold(self, pull: _Pull, offset: int) -> bool:
        """Let ``pull`` wait for a message at ``offset``; False when it does not want to, or may not any more."""
        header = pull.header
        if not header.sys_flag & _SUSPEND:
            return False
        now, pulling = self._steady_clock(), self._config.pulling
        wait_ms = header.suspend_timeout_millis if pulling.long_polling else pulling.short_polling_ms
        wait_ms = pull.until_ms - now if pull.until_ms else min(wait_ms, MAX_WAIT_MS)
        if wait_ms <= 0:
            return False
        pull.offset, pull.until_ms = offset, now + wait_ms
        tags = pull.options.tags
        if tags is not None and self._store.is_batch_topic(header.topic):
            tags |= _NO_TAG  # the messages of a batch without a tag have theirs
        held = HeldPull(header.topic, header.queue_id, offset, tags, pull.connection, pull)
        if not self._holds.hold(held, now, wait_ms):
            return False
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(BUCKET_MS / 1000, self._sweep)
        return True

    def _postponed(self, pull: _Pull, result: GetResult) -> bool:
        """Whether a pull that may wait, and got all there is, but little, is answered in the next wave."""
        header = pull.header
        if not header.sys_flag & _SUSPEND or header.suspend_timeout_millis < WAVE_MS or result.status is not _FOUND:
            return False
        return result.next_offset == result.max_offset and result.total_bytes < _MUCH and self._waves.takes(pull)

    def _answer(self, pull: _Pull, result: GetResult) -> None:
        topic_id = pull.topic_id
        if topic_id is not None and is_other_topic(self._topics, pull.header.topic, topic_id):  # since it was asked for
            answer(pull.connection, pull.request, failure(pull.request, made_again(pull.header.topic, topic_id)))
            return
        is_found = result.status is _FOUND
        code, remark = (0, "FOUND") if is_found else (empty_code(result, pull.offset), result.status.value)
        fields = PullMessageResponseHeader(0, result.next_offset, result.min_offset, result.max_offset)
        if pull.header.topic_id == TOPIC_ID_QUERY:
            fields.topic_id = topic_id
        response = response_to(pull.request, code, remark, fields)
        counters, topic, group = self._counters, pull.header.topic, pull.header.consumer_group
        self._statistics.pulled[topic, group, pull.header.queue_id] = result.next_offset
        if is_found:
            pull.connection.read_promptly()  # it will want more
            counters.pulls_found += 1
            counters.messages_out += result.message_count
            counters.bytes_out += result.total_bytes
            self._statistics.got(topic, group, result.message_count, result.total_bytes)
        else:
            counters.pulls_empty += 1
        if not pull.request.is_oneway:
            pull.connection.send_slices(response, result.buffers, result.copied_bytes)

    async def _serve_when_drained(self, pull: _Pull) -> None:
        while pull.connection.is_clogged and not pull.connection.is_closed:
            await pull.connection.drained()
        if not pull.connection.is_closed:
            self._retry([pull])

    async def _serve_when_room(self, pull: _Pull, result: GetResult) -> None:
        """Answer a pull whose messages take memory: they have to be copied, or some of them wait encrypted."""
        header, connection = pull.header, pull.connection
        asked_ms = min(header.suspend_timeout_millis, MAX_WAIT_MS) if header.sys_flag & _SUSPEND else 0
        wait_ms = pull.until_ms - self._steady_clock() if pull.until_ms else asked_ms
        with Reading(connection.answers, connection, patience(wait_ms / 1000)) as reading:
            has_room = reading.granted if result.cold else reading.granted_mapped
            if await has_room(result.total_bytes) and not connection.is_clogged:
                if result.cold:
                    await self._read_cold(pull)
                else:
                    self._answer(pull, result)
                return
        if connection.is_clogged:  # by answers to other pulls of its own
            await self._serve_when_drained(pull)
        elif not connection.is_closed:  # not OFFSET_OVERFLOW_ONE: some clients take that for the end of the queue
            await self._answer_with(pull, partial(self._nothing, pull, GetStatus.NO_MATCHED_MESSAGE, pull.offset))

    async def _read_cold(self, pull: _Pull) -> None:
        header, pulling, options = pull.header, self._config.pulling, pull.options
        if header.max_msg_bytes is None:  # a client that sets no limit of its own must not make the disk read for long
            options = options._replace(
                max_count=min(options.max_count, pulling.disk_count),
                max_bytes=min(options.max_bytes, pulling.disk_bytes),
            )
        place = header.topic, header.queue_id, pull.offset
        began = perf_counter()
        await self._answer_with(pull, partial(self._store.load_messages, *place, options))
        self._counters.read_since(began)

    async def _answer_with(self, pull: _Pull, read: Callable[[], Coroutine[None, None, GetResult]]) -> None:
        try:
            result = await read()
        except Exception as error:  # noqa: BLE001 - the client must get an answer whatever the disk does
            answer(pull.connection, pull.request, failure(pull.request, error))
            return
        self._answer(pull, result)

    async def _nothing(self, pull: _Pull, status: GetStatus, offset: int) -> GetResult:
        return GetResult(status, [], offset, *await self._store.queue_bounds(pull.header.topic, pull.header.queue_id))

    # --- waking ---

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Try the held pulls again that messages have arrived for, now or in the next wave."""
        if len(self._holds) and not self._waves.takes_arrivals(arrivals):
            self._answer_wave(arrivals)

    def _answer_wave(self, arrivals: Iterable[Arrival], postponed: Iterable[_Pull] = ()) -> None:
        self._retry([held.payload for held in self._holds.take_arrived(arrivals)], arrived=True)
        self._retry(pull for pull in postponed if not pull.connection.is_closed)

    def topic_changed(self, topic: str) -> None:
        """Try the held pulls of a topic again, which may be gone."""
        if len(self._holds):
            self._retry(held.payload for held in self._holds.take_topic(topic))

    def reset(self, topic: str, group: str) -> None:
        """Answer the held pulls of a group whose offsets an administrator has moved, or that may not read any more."""
        if len(self._holds):
            taken = self._holds.take_topic(topic, lambda pull: pull.header.consumer_group == group)
            self._retry(held.payload for held in taken)

    def _sweep(self) -> None:
        held_count, loop = len(self._holds), asyncio.get_running_loop()
        expired = [held.payload for held in self._holds.take_expired(self._steady_clock(), _AT_A_TIME)]
        self._retry(expired)
        if held_count >= _MANY:
            for pull in expired:
                if pull.header.suspend_timeout_millis >= LONG_MS:
                    pull.connection.read_lazily()
        if len(expired) == _AT_A_TIME:
            self._sweeper = loop.call_soon(self._sweep)
        elif len(self._holds):
            self._sweeper = loop.call_later(BUCKET_MS / 1000, self._sweep)
        else:
            self._sweeper = None

    def _retry(self, woken: Iterable[_Pull], *, arrived: bool = False) -> None:
        for pull in woken:
            try:
                if not arrived:  # a change of the topic would have woken it before a message could
                    require_read_queue(self._topics, pull.header.topic, pull.header.queue_id, pull.connection)
                self._serve(pull, may_wait=arrived)
            except Exception as error:  # noqa: BLE001 - one pull must not keep the others from their answers
                answer(pull.connection, pull.request, failure(pull.request, error))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Answer the held pulls with what there is and end the reads under way."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._retry(held.payload for held in self._holds.take_all())
        self._waves.answer_now()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _call_later(delay_s: float, callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, callback)


def _where_to_wait(pull: _Pull, result: GetResult) -> int | None:
    """Return the offset that a pull waits at for messages, None when it is answered."""
    if empty_code(result, pull.offset) == ResponseCode.PULL_NOT_FOUND:
        return pull.offset
    # An arrival says nothing of its properties: one that is not wanted must not cost an answer and another request.
    unwanted = pull.until_ms and result.status is GetStatus.NO_MATCHED_MESSAGE
    return result.next_offset if unwanted and result.next_offset == result.max_offset else None
