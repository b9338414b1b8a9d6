"""How batches of AutoBatch leave, and how their senders learn what became of them.

`BatchSender` chooses the form. A batch leaves alone (320, or 310 when nobody joined its only message), or with the
batches for other queues of its broker as one request. What that request does not settle (the broker does not know it,
the topic is not what it was known as) goes batch by batch; what no batch can carry goes message by message. One
send_timeout covers all of this.

`Shipping` sends the requests for several queues of one broker and makes their attempts (code 30320,
`raptormq.protocol.queue_batches`). What `Delivery` of `producer.sender` does for one message is done here for all parts
of a request: the parts that another attempt may cure are tried again, and all parts where the broker has too much to
do. Every part belongs to a queue, so there is nowhere else to go. A broker that does not know such requests is
remembered for a while, and what was meant for it is sent part by part.

Neighbours: `producer.accumulator` decides what leaves together and when, `producer.sender` sends a lone batch or
message, `producer.batch_encoding` and `message.encryption` give the form. Source: RocketMQ `ProduceAccumulator`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import count, repeat
from typing import Any, Protocol

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.client.message import Outgoing, prepare_merged, prepare_single
from raptormq.client.producer.attempts import Attempts
from raptormq.client.producer.broker_features import Refusals
from raptormq.client.producer.callbacks import fail, tell, tell_all
from raptormq.client.producer.in_flight import InFlight
from raptormq.client.producer.open_batch import OpenBatch
from raptormq.client.producer.sender import STATUSES, Delivery, master_of, may_succeed_later
from raptormq.client.results import SendResult, stored_as_one
from raptormq.errors import MessageError, NoRoute, RaptorMQError, RequestTimeout, ServerError
from raptormq.logs import get_logger
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.send import QueueBatchesRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory
from raptormq.protocol.queue_batches import (
    TOPIC_SEPARATOR,
    Part,
    PartKind,
    PartResponse,
    decode_part_responses,
    encode_parts,
)
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC

log = get_logger(__name__)


class Shipping:
    """Sends requests for several queues, for one producer group.

    Args:
        form: the last change before a parcel leaves (compression or encryption of a whole batch).
    """

    def __init__(
        self,
        instance: ClientInstance,
        delivery: Delivery,
        group: str,
        config: ProducerConfig,
        form: Callable[[Outgoing, MessageQueue], Outgoing],
    ) -> None:
        self._pool = instance.pool
        self._routes = instance.routes
        self._in_flight = instance.shared(InFlight.of)
        self._delivery = delivery
        self._group = group
        self._config = config
        self._form = form
        self._refusals = Refusals()

    def serves(self, broker_name: str) -> bool:
        """Whether the broker is worth a try."""
        return broker_name not in self._refusals

    async def send(self, parts: dict[int, BatchPart], timeout: float, settle: Settle, is_wanted: IsWanted) -> None:
        """Send parcels for one broker. Each is taken out and settled as soon as no further attempt would change what
        became of it, or nobody wants one: nobody waits for another topic, which may be read-only.

        Raises:
            ServerError: the broker does not take the request, it answered nothing of what is left; `serves` tells why.
        """
        clock = asyncio.get_running_loop().time
        for number, (outgoing, queue) in list(parts.items()):
            try:
                parts[number] = self._form(outgoing, queue), queue
            except Exception as error:  # noqa: BLE001 - no memory to compress it, no key: no matter of the others
                del parts[number]
                settle(number, error)
        deadline = clock() + timeout  # not before: compressing is no fault of the broker's
        attempts = Attempts(self._config.retries, deadline, clock)
        while parts:
            outcomes = await self._attempt(tuple(parts.values()), attempts.seconds(), deadline)
            failed: dict[int, RaptorMQError] = {}
            for number, outcome in zip(tuple(parts), outcomes, strict=True):
                if isinstance(outcome, RaptorMQError) and may_succeed_later(outcome):
                    failed[number] = outcome
                else:
                    del parts[number]
                    settle(number, outcome)
            goes_on = bool(failed) and await self._another(parts, failed, attempts, deadline)
            for number, cause in failed.items():
                if not (goes_on and is_wanted(number)):
                    del parts[number]
                    settle(number, cause)

    async def _another(
        self, parts: Mapping[int, BatchPart], failed: Mapping[int, RaptorMQError], attempts: Attempts, deadline: float
    ) -> bool:
        """Whether there is another attempt for what has failed; its time has come then."""
        # A topic that the client knows decides: what is wrong with another one may be wrong with that alone.
        chosen_by = next((each for each in failed if self._routes.known(parts[each][0].topic)), next(iter(failed)))
        topic = parts[chosen_by][0].topic
        pause = attempts.another(no_broker_reached=self._delivery.no_broker_reached(topic, failed[chosen_by]))
        if pause is None:
            return False
        await asyncio.sleep(pause)
        with contextlib.suppress(RaptorMQError):  # the next attempt will say so
            await self._delivery.refresh(topic, (deadline - asyncio.get_running_loop().time()) / 2)
        return True

    async def _attempt(self, parts: Sequence[BatchPart], left: float, deadline: float) -> Sequence[Outcome]:
        """Send once; an error of the way there is the outcome of all, but that no broker was found has a cause for each
        topic.
        """
        size = sum(len(outgoing.body) for outgoing, _ in parts)
        clock = asyncio.get_running_loop().time
        end = clock() + left
        address = await self._address(parts, end)
        if not isinstance(address, str):
            return self._failed(parts, [address[outgoing.topic] for outgoing, _ in parts])
        try:
            command = self._request(parts)
            if not self._in_flight.try_take(size):
                await self._delivery.take_room(size, deadline)
            try:
                answer = await self._pool.request(address, command, max(end - clock(), 0.0))
            finally:
                self._in_flight.give_back(size)
            if answer.code != ResponseCode.SUCCESS:
                raise ServerError(answer.code, answer.remark, address)
            answers = decode_part_responses(answer.body, len(parts))
        except ServerError as error:
            if error.code == ResponseCode.SYSTEM_BUSY:  # a request per part would make it more so
                return [error] * len(parts)
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._refusals.note(parts[0][1].broker_name)
            raise
        except RaptorMQError as error:
            return self._failed(parts, [error] * len(parts))
        return [
            self._outcome(outgoing, queue, part, address)
            for (outgoing, queue), part in zip(parts, answers, strict=True)
        ]

    def _failed(self, parts: Sequence[BatchPart], causes: Sequence[RaptorMQError]) -> Sequence[Outcome]:
        """Note, once for each topic, what parcels have failed with, and return it."""
        now = asyncio.get_running_loop().time()
        by_topic = {outgoing.topic: (queue, cause) for (outgoing, queue), cause in zip(parts, causes, strict=True)}
        for topic, (queue, cause) in by_topic.items():
            self._delivery.note_failure(topic, queue, cause, now)
        return causes

    async def _address(self, parts: Sequence[BatchPart], end: float) -> str | dict[str, RaptorMQError]:
        """Return where the broker of the parcels is, or why it was not found, by topic.

        All topics have the same broker, so one that is known will do: nobody waits for a name server, or fails, because
        of another topic, which may not exist.
        """
        where, known, clock = parts[0][1].broker_name, self._routes.known, asyncio.get_running_loop().time
        causes: dict[str, RaptorMQError] = {}
        unknown: list[str] = []
        for topic in dict.fromkeys(outgoing.topic for outgoing, _ in parts):
            topic_queues = known(topic)
            if topic_queues is None or not topic_queues.write_queues:
                unknown.append(topic)
                continue
            try:
                return master_of(topic_queues, MessageQueue(topic, where, 0))
            except NoRoute as error:
                causes[topic] = error
        for topic in unknown:
            try:
                return master_of(await self._delivery.find(topic, end - clock()), MessageQueue(topic, where, 0))
            except RaptorMQError as error:
                causes[topic] = error
        return causes

    def _request(self, batch_parts: Sequence[BatchPart]) -> RemotingCommand:
        topics: dict[str, int] = {}
        new, number_of, the_list = tuple.__new__, topics.setdefault, RequestCode.SEND_BATCH_MESSAGE
        parts = []
        for outgoing, queue in batch_parts:
            kind = PartKind.LIST if outgoing.code == the_list else PartKind.MESSAGE
            place = kind, number_of(outgoing.topic, len(topics)), queue.queue_id
            parts.append(new(Part, (*place, outgoing.sys_flag, outgoing.flag, outgoing.properties, outgoing.body)))
        header = QueueBatchesRequestHeader(
            self._group,
            TOPIC_SEPARATOR.join(topics),
            AUTO_CREATE_TOPIC,
            self._config.default_topic_queues,
            batch_parts[0][0].born_ms,
            batch_parts[0][1].broker_name,
        )
        return request(RequestCode.SEND_QUEUE_BATCHES, header, encode_parts(parts))

    def _outcome(self, outgoing: Outgoing, queue: MessageQueue, part: PartResponse, address: str) -> Outcome:
        status = STATUSES.get(part.code)
        if status is None:
            if part.code == ResponseCode.TOPIC_NOT_EXIST and self._routes.known(outgoing.topic) is None:
                return NoRoute.to(outgoing.topic)  # as if it had been looked for
            self._delivery.note_refusal(outgoing, queue, part.code)
            return ServerError(part.code, part.text, address)
        self._delivery.note_success(outgoing, queue, whole=part.is_whole)
        if part.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, part.queue_id)
        fields = status, outgoing.message_id, part.text, queue, part.queue_offset, None
        return tuple.__new__(SendResult, fields)  # half the time of the constructor, which is a Python function


_ALONE_MAY_HELP = ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED
"""The topic, or the broker between two attempts, is not what it was known as."""

BatchPart = tuple[Outgoing, MessageQueue]
"""What goes to one queue."""
Outcome = SendResult | Exception
Settle = Callable[[int, Outcome], None]
"""Called once for a parcel, by its number, when it is certain what became of it."""
IsWanted = Callable[[int], bool]
"""Whether anybody still waits for a parcel, by its number."""
Send = Callable[[Outgoing, MessageQueue | None, str | None, float, Callable[[], bool]], Awaitable[SendResult]]
"""`raptormq.client.producer.sender.Delivery.deliver`, or what does the same with another form."""


class Ships(Protocol):
    """Who sends parcels for several queues of a broker as one request: `Shipping`."""

    def serves(self, broker_name: str) -> bool:
        """Whether the broker is worth a try."""

    async def send(self, parts: dict[int, BatchPart], timeout: float, settle: Settle, is_wanted: IsWanted) -> None:
        """Take out and settle one after the other; raises `ServerError` when the broker takes no such request."""


class BatchSender:
    """Sends the batches of the producers that have one group and one configuration.

    Args:
        release: called when all senders of a batch are told, though others of its request may wait still.
    """

    def __init__(
        self,
        config: ProducerConfig,
        ids: UniqueIdFactory,
        send: Send,
        shipping: Ships | None,
        release: Callable[[OpenBatch], None],
    ) -> None:
        self._config = config
        self._ids = ids
        self._send = send
        self._shipping = shipping
        self._release = release
        self._clock = asyncio.get_running_loop().time

    async def together(self, batches: Sequence[OpenBatch]) -> None:
        """Send batches for queues of one broker as one request; what that does not settle is sent batch by batch."""
        assert self._shipping is not None
        for batch in batches:
            batch.leave_out_cancelled()
        # The broker writes parts of one kind together.
        sealed = sorted((batch for batch in batches if batch.bodies), key=_has_company)
        if not sealed:
            return
        parts = self._parts(sealed)
        deadline = self._deadline()

        async with asyncio.TaskGroup() as lone:

            def settle(number: int, outcome: Outcome) -> None:
                batch = sealed[number]
                if self._settle(batch, outcome):
                    self._release(batch)
                else:
                    refusal = outcome if isinstance(outcome, Exception) else None
                    lone.create_task(self._alone_or_failed(batch, deadline, refusal))

            def is_wanted(number: int) -> bool:
                return sealed[number].is_wanted()

            refused: RaptorMQError | None = None
            try:
                await self._shipping.send(parts, self._config.send_timeout, settle, is_wanted)
            except RaptorMQError as error:
                refused = error  # what is left, sent alone, says why to its senders
            except Exception:
                log.exception("a request for several queues has failed, its batches are sent one by one")
            for number in parts:
                lone.create_task(self._alone_or_failed(sealed[number], deadline, refused))

    def _parts(self, sealed: Sequence[OpenBatch]) -> dict[int, BatchPart]:
        """Give the messages their ids and return what is ready to send, by the number of its batch."""
        now_ms = time.time_ns() // 1_000_000
        fresh_ids = self._ids.next_ids(now_ms, sum(map(len, sealed)))
        parts: dict[int, BatchPart] = {}
        first = 0
        for number, batch in enumerate(sealed):
            after = first + len(batch)
            batch.name(fresh_ids[first:after])
            first = after
            part = self._part(batch, now_ms)
            if part is not None:
                parts[number] = part
        return parts

    def _part(self, batch: OpenBatch, now_ms: int) -> BatchPart | None:
        """Return a sealed batch for a queue ready to send; None when it cannot be made so, and its senders are told."""
        queue = batch.key[1]
        assert queue is not None
        try:
            return self._outgoing(batch, now_ms), queue
        except Exception as error:  # noqa: BLE001 - a compressor without memory; the other batches go on
            fail(batch.take_waiters(), error)
            return None

    def _deadline(self) -> float:
        """Of what is ready to leave, not before: a process that is stopped while it encodes has sent nothing yet."""
        return self._clock() + self._config.send_timeout

    def _outgoing(self, batch: OpenBatch, now_ms: int) -> Outgoing:
        """Return a sealed batch ready to send; a message without company is a single one."""
        topic, _, tags, wait_stored, sys_flag = batch.key
        if len(batch) == 1:
            return prepare_single(topic, batch.only_record(), sys_flag, batch.message_ids[0], now_ms, self._config)
        batch_id = self._ids.next_id(now_ms)
        return prepare_merged(
            topic, batch.encode(), batch.message_ids, sys_flag, tags, batch.keys, wait_stored, batch_id, now_ms
        )

    def _settle(self, batch: OpenBatch, outcome: Outcome) -> bool:
        """Tell the senders of a batch what became of it; False when it has to be sent by itself, or in parts."""
        if isinstance(outcome, MessageError):
            return False
        if isinstance(outcome, ServerError) and outcome.code in _ALONE_MAY_HELP:
            return False
        if isinstance(outcome, Exception):
            fail(batch.take_waiters(), outcome)
        elif batch.key[4] and stored_as_one(outcome, len(batch)):
            return False
        else:
            _share_out(outcome, batch)
        return True

    async def _alone_or_failed(self, batch: OpenBatch, deadline: float, refusal: Exception | None) -> None:
        """Send one batch, and where no time is left tell its senders the `refusal` of what it was a part of; whatever
        happens, the others go on.
        """
        try:
            if refusal is None or self._clock() < deadline:
                await self.alone(batch, deadline)
            else:
                fail(batch.take_waiters(), refusal)
        except Exception as error:  # noqa: BLE001 - its senders get it
            fail(batch.take_waiters(), error)
        self._release(batch)

    async def alone(self, batch: OpenBatch, deadline: float | None = None) -> None:
        """Send one batch, until `deadline` of the loop's clock or within send_timeout.

        Raises:
            RaptorMQError: it was not stored; its senders are not told yet.
        """
        now_ms = time.time_ns() // 1_000_000
        batch.seal(self._ids, now_ms)
        if not batch.bodies:
            return
        _, queue, _, _, sys_flag = batch.key
        merged = self._outgoing(batch, now_ms) if len(batch) > 1 else None
        if deadline is None:
            deadline = self._deadline()
        if merged is not None:
            try:
                result = await self._send_until(deadline, merged, queue, batch.is_wanted)
                if not (sys_flag and stored_as_one(result, len(batch))):
                    _share_out(result, batch)
                    return
                # The topic changed its type: consumers will leave this one out, they take a batch for compressed.
            except MessageError:  # each message is encrypted, and together they have become too large
                pass
            except ServerError as error:
                knows_none = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                if not knows_none and not (sys_flag and error.code == ResponseCode.MESSAGE_ILLEGAL):
                    raise
            batch.leave_out_cancelled()
        await asyncio.gather(*self._singles(batch, deadline))

    def _singles(self, batch: OpenBatch, deadline: float) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sends of the messages one by one."""
        now_ms = time.time_ns() // 1_000_000
        for index, (record, message_id) in enumerate(zip(batch.records(), batch.message_ids, strict=True)):
            yield self._send_one(deadline, record, message_id, now_ms, batch, index)

    async def _send_one(
        self,
        deadline: float,
        record: tuple[int, bytes, bytes],
        message_id: str,
        now_ms: int,
        batch: OpenBatch,
        index: int,
    ) -> None:
        (topic, queue, _, _, sys_flag), (flag, body, properties) = batch.key, record
        try:
            outgoing = prepare_single(
                topic, (flag, body, properties.decode()), sys_flag, message_id, now_ms, self._config
            )
            result = await self._send_until(deadline, outgoing, queue, lambda: batch.is_wanted_at(index))
        except Exception as error:  # noqa: BLE001 - its sender gets it, the other messages go on
            batch.tell(index, error)
        else:
            batch.tell(index, result)

    def _send_until(
        self, deadline: float, outgoing: Outgoing, queue: MessageQueue | None, is_wanted: Callable[[], bool]
    ) -> Awaitable[SendResult]:
        left = deadline - self._clock()
        if left <= 0:
            raise RequestTimeout("no time was left to send in parts what the broker refused as a whole")
        return self._send(outgoing, queue, None, left, is_wanted)


def _has_company(batch: OpenBatch) -> bool:
    return len(batch) > 1


def _share_out(result: SendResult, batch: OpenBatch) -> None:
    """Give each sender its part: a broker that stored single messages names one id each, else all share the batch's."""
    if len(batch) == 1:
        tell(batch.take_waiters()[0], result)
        return
    one = stored_as_one(result, len(batch))
    ids = [result.offset_message_id] * len(batch) if one else result.offset_message_id.split(",")
    offsets = count(result.queue_offset)
    fields = zip(repeat(result.status), batch.message_ids, ids, repeat(result.queue), offsets, repeat(None))
    # `tuple.__new__` takes half the time of the constructor, which is a Python function.
    outcomes: Iterator[SendResult] = map(tuple.__new__, repeat(SendResult), fields)
    tell_all(zip(batch.take_waiters(), outcomes, strict=True))
