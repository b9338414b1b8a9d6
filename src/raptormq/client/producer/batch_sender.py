"""Sends closed batches of AutoBatch and completes their waiters.

`BatchSender` uses up to three forms, all within one send_timeout::

    group    batches for several queues of a broker, one request (`producer.queue_batches`)
      v      the broker does not know this request, or the topic has changed its type
    batch    one request (320), or a single message (310) when the batch has only one
      v      the broker does not know batches, or the batch is too large once encrypted
    message  each message by itself (310)

See also: `producer.accumulator` decides what is sent together and when, `producer.sender` sends a batch or a message,
`producer.batch_encoding` and `message.encryption` compress and encrypt it. Source: RocketMQ `ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import count, repeat
from typing import Any

from raptormq.client.config import ProducerConfig
from raptormq.client.message import SendRequest, prepare_merged, prepare_single
from raptormq.client.producer.callbacks import complete, complete_all, fail_all
from raptormq.client.producer.open_batch import OpenBatch
from raptormq.client.producer.queue_batches import BatchPart, Outcome, QueueBatchesSender
from raptormq.client.results import SendResult, stored_as_one
from raptormq.errors import MessageError, RaptorMQError, RequestTimeout, SendAttempt, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.codes import ResponseCode
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory

log = get_logger(__name__)

_RESENT_CODES = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
"""Response codes after which a part is sent again individually, because its topic or broker has changed."""

Send = Callable[[SendRequest, MessageQueue | None, str | None, float, Callable[[], bool] | None], Awaitable[SendResult]]
"""`raptormq.client.producer.sender.MessageSender.send`, or a function with the same contract."""


class BatchSender:
    """Sends the batches of the producers with the same group and configuration.

    Args:
        discard: called for each completed batch of a group; other batches of the group may still be pending.
    """

    def __init__(
        self,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        queue_batches: QueueBatchesSender,
        discard: Callable[[OpenBatch], None],
    ) -> None:
        self._config = config
        self._ids = ids
        self._send = send
        self._queue_batches = queue_batches
        self._discard = discard
        self._clock = asyncio.get_running_loop().time

    async def send_group(self, group: Sequence[OpenBatch]) -> None:
        """Send batches for queues of one broker as one request. A batch without an outcome, or one that may be stored
        in another form, is then sent individually.
        """
        for batch in group:
            batch.remove_cancelled()
        # Order parts by kind, because the broker writes consecutive parts of one kind together.
        batches = sorted((batch for batch in group if batch.bodies), key=_is_list)
        if not batches:
            return
        parts = self._close_all(batches)
        deadline = self._deadline()

        async with asyncio.TaskGroup() as resends:

            def complete(number: int, outcome: Outcome) -> None:
                batch = batches[number]
                if _is_resent(batch, outcome):
                    cause = outcome if isinstance(outcome, Exception) else None
                    resends.create_task(self._resend(batch, deadline, cause))
                else:
                    _complete(batch, outcome)
                    self._discard(batch)

            def is_awaited(number: int) -> bool:
                return batches[number].is_awaited()

            refused: RaptorMQError | None = None
            try:
                await self._queue_batches.send(parts, self._config.send_timeout, complete, is_awaited)
            except RaptorMQError as error:
                refused = error
            except Exception:
                log.exception("a request for several queues failed; its batches are sent one by one")
            for number in parts:
                resends.create_task(self._resend(batches[number], deadline, refused))

    def _close_all(self, batches: Sequence[OpenBatch]) -> dict[int, BatchPart]:
        """Assign the unique ids. Return the encoded batches by number. The waiters of a batch that cannot be encoded
        get the error.
        """
        now_ms = time.time_ns() // 1_000_000
        fresh_ids = self._ids.next_ids(now_ms, sum(map(len, batches)))
        parts: dict[int, BatchPart] = {}
        first = 0
        for number, batch in enumerate(batches):
            after = first + len(batch)
            batch.assign_ids(fresh_ids[first:after])
            first = after
            queue = batch.key.queue
            assert queue is not None
            try:
                parts[number] = self._outgoing(batch, now_ms), queue
            except Exception as error:  # noqa: BLE001 - such as a MemoryError; the other batches are sent
                fail_all(batch.take_waiters(), error)
        return parts

    def _deadline(self) -> float:
        """Return the deadline of an encoded batch, without the time for encoding."""
        return self._clock() + self._config.send_timeout

    def _outgoing(self, batch: OpenBatch, now_ms: int) -> SendRequest:
        """Encode a closed batch; a batch of one message becomes a single message."""
        topic, _, tags, wait_stored, sys_flag = batch.key
        if len(batch) == 1:
            return prepare_single(topic, batch.only_record(), sys_flag, batch.message_ids[0], now_ms, self._config)
        batch_id = self._ids.next_id(now_ms)
        return prepare_merged(
            topic, batch.encode(), batch.message_ids, sys_flag, tags, batch.keys, wait_stored, batch_id, now_ms
        )

    async def _resend(self, batch: OpenBatch, deadline: float, cause: Exception | None) -> None:
        """Send one batch of a group individually. Without remaining time its waiters get `cause`. Errors do not affect
        the other batches.
        """
        try:
            if cause is None or self._clock() < deadline:
                await self.send_batch(batch, deadline, cause.attempts if isinstance(cause, RaptorMQError) else ())
            else:
                fail_all(batch.take_waiters(), cause)
        except Exception as error:  # noqa: BLE001 - its senders get it
            fail_all(batch.take_waiters(), error)
        self._discard(batch)

    async def send_batch(
        self, batch: OpenBatch, deadline: float | None = None, earlier: Sequence[SendAttempt] = ()
    ) -> None:
        """Send one batch until `deadline` (loop time), or within send_timeout. `earlier` are the attempts of the batch
        in another form; errors have them too.

        Raises:
            RaptorMQError: The batch was not stored; the caller passes the error to its waiters.
        """
        now_ms = time.time_ns() // 1_000_000
        batch.close(self._ids, now_ms)
        if not batch.bodies:
            return
        _, queue, _, _, sys_flag = batch.key
        merged = self._outgoing(batch, now_ms) if len(batch) > 1 else None
        if deadline is None:
            deadline = self._deadline()
        if merged is not None:
            try:
                result = await self._send_until(deadline, merged, queue, batch.is_awaited)
                if not (sys_flag and stored_as_one(result, len(batch))):
                    _complete(batch, result)
                    return
                # The topic stores batches whole now. Consumers skip this batch, because they expect its body to be
                # compressed.
            except MessageError:  # the individually encrypted messages are too large together
                pass
            except RaptorMQError as error:
                if not _is_sent_singly(error, sys_flag):
                    raise error.after(earlier) from error.__cause__
                earlier = *earlier, *error.attempts
            batch.remove_cancelled()
        await asyncio.gather(*self._send_messages(batch, deadline, earlier))

    def _send_messages(
        self, batch: OpenBatch, deadline: float, earlier: Sequence[SendAttempt]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield one send per message of a batch."""
        now_ms = time.time_ns() // 1_000_000
        for index, ((flag, body, properties), message_id) in enumerate(
            zip(batch.records(), batch.message_ids, strict=True)
        ):
            record = flag, body, properties.decode()
            yield self._send_message(deadline, record, message_id, now_ms, batch, index, earlier)

    async def _send_message(
        self,
        deadline: float,
        record: tuple[int, bytes, str],
        message_id: str,
        now_ms: int,
        batch: OpenBatch,
        index: int,
        earlier: Sequence[SendAttempt],
    ) -> None:
        topic, queue, _, _, sys_flag = batch.key
        try:
            outgoing = prepare_single(topic, record, sys_flag, message_id, now_ms, self._config)
            result = await self._send_until(deadline, outgoing, queue, lambda: batch.is_awaited_at(index))
        except RaptorMQError as error:
            batch.complete(index, error.after(earlier))
        except Exception as error:  # noqa: BLE001 - its sender gets it, the other messages are sent
            batch.complete(index, error)
        else:
            batch.complete(index, result)

    def _send_until(
        self, deadline: float, outgoing: SendRequest, queue: MessageQueue | None, is_awaited: Callable[[], bool]
    ) -> Awaitable[SendResult]:
        left = deadline - self._clock()
        if left <= 0:
            raise RequestTimeout("no time was left to send the messages of a refused batch individually")
        return self._send(outgoing, queue, None, left, is_awaited)


def _is_list(batch: OpenBatch) -> bool:
    return len(batch) > 1


def _is_sent_singly(error: RaptorMQError, sys_flag: int) -> bool:
    """Return whether the messages of a refused batch are sent one by one: the broker does not know batches, or does not
    accept compressed messages in them.
    """
    if not isinstance(error, ServerError):
        return False
    return error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED or bool(
        sys_flag and error.code == ResponseCode.MESSAGE_ILLEGAL
    )


def _is_resent(batch: OpenBatch, outcome: Outcome) -> bool:
    """Return whether a batch must be sent again individually after this outcome."""
    if isinstance(outcome, ServerError):
        return outcome.code in _RESENT_CODES
    if isinstance(outcome, Exception):
        return isinstance(outcome, MessageError)
    return bool(batch.key.sys_flag) and stored_as_one(outcome, len(batch))


def _complete(batch: OpenBatch, outcome: Outcome) -> None:
    """Complete all waiters of a batch with the error, or with their parts of the result.

    A broker that stored single messages returns an id for each; otherwise all messages share the id of the batch.
    """
    if isinstance(outcome, Exception):
        fail_all(batch.take_waiters(), outcome)
        return
    if len(batch) == 1:
        complete(batch.take_waiters()[0], outcome)
        return
    one = stored_as_one(outcome, len(batch))
    ids = [outcome.offset_message_id] * len(batch) if one else outcome.offset_message_id.split(",")
    offsets = count(outcome.queue_offset)
    same = repeat(None), repeat(outcome.region_id), repeat(outcome.trace_on)
    fields = zip(repeat(outcome.status), batch.message_ids, ids, repeat(outcome.queue), offsets, *same)
    # `tuple.__new__` takes half the time of the constructor.
    results: Iterator[SendResult] = map(tuple.__new__, repeat(SendResult), fields)
    complete_all(zip(batch.take_waiters(), results, strict=True))
