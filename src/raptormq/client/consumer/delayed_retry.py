"""Redelivery after a delay chosen by the application, and dead letters with a reason.

`DelayedRetry.retry` uses the first of these requests that the broker of the message accepts::

    no delay given     send the message back (36); the broker chooses the delay by the number of deliveries
    0                  a copy to %RETRY%group
    a delay            a copy to %RETRY%group with TIMER_DELAY_MS, if the broker is of RocketMQ 5 and accepts timers
                       send the message back with the next delay level that is not shorter
                       a copy with that level

Brokers before RocketMQ 5 ignore TIMER_DELAY_MS; they are recognized by the version in their responses. A message that
was delivered as often as the group allows becomes a dead letter, regardless of the delay. The default delays of the
levels are assumed, because clients without an administrator's rights cannot read the broker setting messageDelayLevel.
A message that no broker accepts stays unsettled, and the caller gets the last error.

See also: `consumer.send_back` sends the requests, `consumer.delivery` is the interface of the application. Source:
none; RocketMQ 5 has `changeInvisibleDuration` for popped messages only, and delay levels for others.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from typing import NamedTuple

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ConsumerConfig, MessageModel
from raptormq.client.consumer.failure_log import FailureLog
from raptormq.client.consumer.send_back import Redelivery
from raptormq.client.interceptors import ConsumeChain
from raptormq.client.settings import SecondsOrZero, check_setting
from raptormq.errors import ClientError, MessageError, RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol import properties as names
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import request
from raptormq.protocol.delay_levels import DEFAULT_LEVELS, FIRST_RETRY_LEVEL, parse_delay_levels
from raptormq.protocol.headers.offset import QueueRequestHeader
from raptormq.protocol.inner_batch import is_inner_batch
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.topic_names import dlq_topic, retry_topic

log = get_logger(__name__)

LEVEL_DELAYS_S = tuple(delay_ms // 1000 for delay_ms in parse_delay_levels(DEFAULT_LEVELS))
"""Delays in seconds of the levels from 1, as brokers have them by default."""
_V5_0_0 = 413
"""Ordinal of the first version with timers."""
MAX_REASON_CHARS = 1000
"""Longer reasons of dead letters are cut."""


class RetryKind(enum.Enum):
    """Kind of a redelivery."""

    TIMER = "timer"
    """After exactly the given delay."""
    LEVEL = "level"
    """After the delay of a level, which is not shorter than the given one."""
    AT_ONCE = "at once"
    """Without a delay."""
    DEAD_LETTER = "dead letter"
    """Not at all: the message was delivered as often as the group allows, and is in %DLQ%group now."""
    HANDED_OVER = "handed over"
    """By another member, or after the next start: this consumer has given up the queue, so nothing was sent."""


class Retry(NamedTuple):
    """Kind and time of a redelivery."""

    kind: RetryKind
    delay: float = 0.0
    """Seconds; for a level the default delay of that level."""
    level: int | None = None


def level_not_below(seconds: float) -> int:
    """Return the first delay level that is at least `seconds` long.

    Raises:
        MessageError: every level is shorter.
    """
    index = bisect_left(LEVEL_DELAYS_S, seconds)
    if index == len(LEVEL_DELAYS_S):
        raise MessageError(
            f"the broker has no timers, or none for {seconds:g} s, and its longest delay level has "
            f"{LEVEL_DELAYS_S[-1]:,} s: retry with a shorter delay"
        )
    return index + 1


class DelayedRetry:
    """Redelivers messages of one group on behalf of the application."""

    def __init__(
        self, instance: ClientInstance, group: str, config: ConsumerConfig, interceptors: ConsumeChain
    ) -> None:
        self._instance = instance
        self._interceptors = interceptors
        self._group = group
        self._config = config
        self._redelivery = Redelivery(instance, group, config, interceptors)
        self._outcomes = FailureLog(log, group)
        self._versions: dict[str, int] = {}
        """Version of each broker, by its address."""

    def check(self, after: float | None) -> None:
        """Check a call before anything is sent.

        Raises:
            ClientError: the group broadcasts.
            ConfigError: the delay is not a number of seconds from 0.
        """
        check_setting("after", after, SecondsOrZero | None)
        if self._config.message_model is MessageModel.BROADCASTING:
            raise ClientError(
                f"group {self._group} broadcasts: a message is neither delivered again nor made a dead letter, "
                "because a retry topic cannot address a single member; ack() it"
            )

    async def retry(self, message: MessageExt, after: float | None) -> Retry:
        """Request redelivery of a message from a broker.

        Raises:
            MessageError: the broker has no timers and every delay level is shorter, or the broker cannot store the
                copy.
            NoRoute, TransportError, ServerError: no broker accepts the message now.
        """
        if await self.give_up_exhausted(message):
            return Retry(RetryKind.DEAD_LETTER)
        if after is None:
            level = min(FIRST_RETRY_LEVEL + message.reconsume_times, len(LEVEL_DELAYS_S))
            return await self._retry_by_level(message, level, own=False)
        if after == 0:
            await self._redelivery.send_copy(message, {})
            return Retry(RetryKind.AT_ONCE)
        try:
            queue = await self._timed_queue(message)
            if queue is not None:
                delay = {names.TIMER_DELAY_MS: str(max(round(after * 1000), 1))}
                await self._redelivery.send_copy(message, delay, queue=queue)
                return Retry(RetryKind.TIMER, after)
        except RaptorMQError as error:  # the timers are switched off, or end before this delay
            log.info(
                "group %s: the broker accepts no timer for message %s (%g s); trying a delay level: %s",
                self._group,
                message.message_id,
                after,
                error,
            )
        return await self._retry_by_level(message, level_not_below(after), own=True)

    async def give_up_exhausted(self, message: MessageExt) -> bool:
        """Store a message as a dead letter if it was delivered as often as the group allows. Return whether it was.

        Raises:
            MessageError: brokers cannot store the copy.
            NoRoute, TransportError, ServerError: no broker accepts it now.
        """
        if message.reconsume_times < self._config.max_reconsume_times:
            return False
        await self._redelivery.send_copy(message)
        self._outcomes.outcome("dead letter", message, dead_letter_topic=dlq_topic(self._group))
        self._interceptors.dead_letter(message, dlq_topic(self._group))
        return True

    async def dead_letter(self, message: MessageExt, reason: str) -> None:
        """Store a message as a dead letter, with the reason in its property DLQ_REASON.

        Raises:
            MessageError: brokers cannot store the copy.
            NoRoute, TransportError, ServerError: no broker accepts it now.
        """
        text = reason.replace(names.NAME_SEPARATOR, " ").replace(names.PAIR_SEPARATOR, " ")
        if len(text) > MAX_REASON_CHARS:
            text = f"{text[: MAX_REASON_CHARS - 1]}…"
        await self._redelivery.send_copy(message, dead_letter_reason=text)
        self._outcomes.outcome("dead letter", message, dead_letter_topic=dlq_topic(self._group), reason=text)
        self._interceptors.dead_letter(message, dlq_topic(self._group), text)

    async def _retry_by_level(self, message: MessageExt, level: int, *, own: bool) -> Retry:
        """Send a message back. `own`: the level was chosen by this client instead of the broker."""
        try:
            if is_inner_batch(message.sys_flag):  # Apache RocketMQ's brokers have no position for its messages
                await self._redelivery.send_copy(message, {names.DELAY: str(level)})
            else:
                await self._redelivery.send_back_request(message, level if own else 0)
        except RaptorMQError as error:
            if is_inner_batch(message.sys_flag):
                raise
            log.info("group %s could not send message %s back: %s", self._group, message.message_id, error)
            await self._redelivery.send_copy(message, {names.DELAY: str(level)})
        return Retry(RetryKind.LEVEL, LEVEL_DELAYS_S[level - 1], level)

    async def _timed_queue(self, message: MessageExt) -> MessageQueue | None:
        """Return a queue of the retry topic at the broker of the message; None if that broker has no timers."""
        found = await self._instance.routes.find(retry_topic(self._group))
        queue = next((each for each in found.write_queues if each.broker_name == message.queue.broker_name), None)
        address = found.master(message.queue.broker_name)
        if queue is None or address is None:
            return None
        return queue if await self._version_of(address, message.queue) >= _V5_0_0 else None

    async def _version_of(self, address: str, queue: MessageQueue) -> int:
        if address not in self._versions:
            header = QueueRequestHeader(queue.topic, queue.queue_id)
            timeout = self._instance.config.request_timeout
            response = await self._instance.pool.request(address, request(RequestCode.GET_MAX_OFFSET, header), timeout)
            self._versions[address] = response.version
        return self._versions[address]
