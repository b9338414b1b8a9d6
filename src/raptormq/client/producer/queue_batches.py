"""Sends batches for several queues of one broker as one request (code 30320, `raptormq.protocol.queue_batches`).

`QueueBatchesSender` handles the parts of such a request like `MessageSender` of `producer.sender` handles one message.
A part is retried after a temporary failure; all parts are retried if the broker is busy. Every part belongs to a queue,
so it cannot be sent to another broker. Brokers that do not support this request are remembered for some time, and their
parts are sent individually.

See also: `producer.batch_sender` creates the parts and sends the remaining ones individually, `producer.accumulator`
checks which brokers support the request. RocketMQ has no such request.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from raptormq.client.cluster import ClientInstance
from raptormq.client.config import ProducerConfig
from raptormq.client.message import SendRequest
from raptormq.client.producer.attempts import Attempts
from raptormq.client.producer.broker_features import Refusals
from raptormq.client.producer.in_flight import InFlight
from raptormq.client.producer.sender import STATUSES, MessageSender, failed_attempt, is_retriable, master_of
from raptormq.client.results import SendResult
from raptormq.errors import NoRoute, RaptorMQError, SendAttempt, ServerError
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.send import QueueBatchesRequestHeader, QueueBatchesResponseHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.queue_batches import (
    TOPIC_SEPARATOR,
    Part,
    PartKind,
    PartResponse,
    decode_part_responses,
    encode_parts,
)
from raptormq.protocol.schema import decode_header
from raptormq.protocol.topic_names import AUTO_CREATE_TOPIC

BatchPart = tuple[SendRequest, MessageQueue]
"""A batch or a single message, with its queue."""
Outcome = SendResult | Exception
Complete = Callable[[int, Outcome], None]
"""Called once for each part, by its number, with its final outcome."""
IsAwaited = Callable[[int], bool]
"""Returns whether a part, given by its number, is not cancelled."""


class QueueBatchesSender:
    """Sends batches for several queues of a broker, for one producer group.

    Args:
        encode: compresses or encrypts a batch before it is sent.
    """

    def __init__(
        self,
        instance: ClientInstance,
        sender: MessageSender,
        group: str,
        config: ProducerConfig,
        encode: Callable[[SendRequest, MessageQueue], SendRequest],
    ) -> None:
        self._pool = instance.pool
        self._routes = instance.routes
        self._in_flight = instance.shared(InFlight.of)
        self._sender = sender
        self._group = group
        self._config = config
        self._encode = encode
        self._refusals = Refusals()

    def serves(self, broker_name: str) -> bool:
        """Return whether the broker may support this request."""
        return broker_name not in self._refusals

    async def send(
        self, parts: dict[int, BatchPart], timeout: float, complete: Complete, is_awaited: IsAwaited
    ) -> None:
        """Send parts for one broker.

        A part is removed from `parts` and completed as soon as its outcome is final or the part is cancelled. Parts of
        one topic do not wait for parts of another topic, which may be read-only.

        Raises:
            ServerError: The broker rejected the whole request; the remaining `parts` have no outcome. The attempts of
                the error are those before this request, in which all of these parts were. If the broker does not
                support the request, `serves` returns False from now on.
        """
        clock = asyncio.get_running_loop().time
        for number, (outgoing, queue) in list(parts.items()):
            try:
                parts[number] = self._encode(outgoing, queue), queue
            except Exception as error:  # noqa: BLE001 - such as a MemoryError; the other parts are sent
                del parts[number]
                complete(number, error)
        deadline = clock() + timeout  # the time for compression is excluded
        attempts = Attempts(self._config.retries, deadline, clock, lambda: any(map(is_awaited, parts)))
        tried: defaultdict[int, list[SendAttempt]] = defaultdict(list)
        while parts:
            began = clock()
            try:
                outcomes = await self._attempt(tuple(parts.values()), attempts.attempt_timeout(), deadline)
            except ServerError as error:
                raise error.after(next(iter(tried.values()), ())) from error.__cause__
            failed: dict[int, RaptorMQError] = {}
            for number, outcome in zip(tuple(parts), outcomes, strict=True):
                if isinstance(outcome, RaptorMQError):
                    queue = parts[number][1]
                    address = self._known_address(queue)
                    tried[number].append(
                        failed_attempt(outcome, queue, address, clock() - began, is_sent=address is not None)
                    )
                if isinstance(outcome, RaptorMQError) and is_retriable(outcome):
                    failed[number] = outcome
                else:
                    own = outcome.with_attempts(tried[number]) if isinstance(outcome, RaptorMQError) else outcome
                    del parts[number]
                    complete(number, own)
            is_retried = bool(failed) and await self._wait_for_next(parts, failed, attempts)
            for number, cause in failed.items():
                if not (is_retried and is_awaited(number)):
                    del parts[number]
                    complete(number, cause.with_attempts(tried[number]))

    def _known_address(self, queue: MessageQueue) -> str | None:
        known = self._routes.cached(queue.topic)
        return None if known is None else known.master(queue.broker_name)

    async def _wait_for_next(
        self, parts: Mapping[int, BatchPart], failed: Mapping[int, RaptorMQError], attempts: Attempts
    ) -> bool:
        """Wait before the next attempt for failed parts. Return False if there is no further attempt."""
        # Use a topic with a known route, because the failure of an unknown topic may concern only that topic.
        chosen_by = next((each for each in failed if self._routes.cached(parts[each][0].topic)), next(iter(failed)))
        queue = parts[chosen_by][1]
        if self._sender.no_broker_reached(queue.topic, failed[chosen_by]):
            return await self._sender.wait_for_broker(queue.topic, None, queue, attempts)
        pause = attempts.next_pause()
        if pause is None:
            return False
        await asyncio.sleep(pause)
        await self._sender.refresh(queue.topic, (attempts.deadline - asyncio.get_running_loop().time()) / 2)
        return True

    async def _attempt(self, parts: Sequence[BatchPart], left: float, deadline: float) -> Sequence[Outcome]:
        """Send the request once. Return an outcome for each part.

        A connection error is the outcome of all parts. If no broker was found, each topic has its own error.
        """
        size = sum(len(outgoing.body) for outgoing, _ in parts)
        clock = asyncio.get_running_loop().time
        end = clock() + left
        address = await self._address(parts, end)
        if not isinstance(address, str):
            return self._failed(parts, [address[outgoing.topic] for outgoing, _ in parts])
        try:
            command = self._request(parts)
            if not self._in_flight.try_acquire(size):
                await self._sender.acquire_in_flight(size, deadline)
            asked = clock()
            try:
                response = await self._pool.request(address, command, max(end - clock(), 0.0))
            finally:
                self._in_flight.release(size)
            self._sender.note_latency(parts[0][1].broker_name, asked)
            if response.code != ResponseCode.SUCCESS:
                raise ServerError(response.code, response.remark, address)
            responses = decode_part_responses(response.body, len(parts))
            common = decode_header(QueueBatchesResponseHeader, response.ext_fields)
        except ServerError as error:
            if error.code == ResponseCode.SYSTEM_BUSY:  # individual requests would add to the load
                return [error] * len(parts)
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._refusals.note(parts[0][1].broker_name)
            raise
        except RaptorMQError as error:
            return self._failed(parts, [error] * len(parts))
        return [
            self._outcome(outgoing, queue, part, common, address)
            for (outgoing, queue), part in zip(parts, responses, strict=True)
        ]

    def _failed(self, parts: Sequence[BatchPart], causes: Sequence[RaptorMQError]) -> Sequence[Outcome]:
        """Record the failure of each topic once. Return the causes."""
        now = asyncio.get_running_loop().time()
        by_topic = {outgoing.topic: (queue, cause) for (outgoing, queue), cause in zip(parts, causes, strict=True)}
        for topic, (queue, cause) in by_topic.items():
            self._sender.note_failure(topic, queue, cause, now)
        return causes

    async def _address(self, parts: Sequence[BatchPart], end: float) -> str | dict[str, RaptorMQError]:
        """Return the address of the parts' broker, or the error of each topic if it was not found.

        All topics are on the same broker, so any known route contains the address. A topic that does not exist does not
        delay the parts of other topics.
        """
        broker_name, known, clock = parts[0][1].broker_name, self._routes.cached, asyncio.get_running_loop().time
        causes: dict[str, RaptorMQError] = {}
        unknown: list[str] = []
        for topic in dict.fromkeys(outgoing.topic for outgoing, _ in parts):
            topic_queues = known(topic)
            if topic_queues is None or not topic_queues.write_queues:
                unknown.append(topic)
                continue
            try:
                return master_of(topic_queues, MessageQueue(topic, broker_name, 0))
            except NoRoute as error:
                causes[topic] = error
        for topic in unknown:
            try:
                found = await self._sender.find(topic, end - clock())
                return master_of(found, MessageQueue(topic, broker_name, 0))
            except RaptorMQError as error:
                causes[topic] = error
        return causes

    def _request(self, batch_parts: Sequence[BatchPart]) -> RemotingCommand:
        topics: dict[str, int] = {}
        new, index_of, list_code = tuple.__new__, topics.setdefault, RequestCode.SEND_BATCH_MESSAGE
        parts = []
        for outgoing, queue in batch_parts:
            kind = PartKind.LIST if outgoing.code == list_code else PartKind.MESSAGE
            place = kind, index_of(outgoing.topic, len(topics)), queue.queue_id
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

    def _outcome(
        self,
        outgoing: SendRequest,
        queue: MessageQueue,
        part: PartResponse,
        common: QueueBatchesResponseHeader,
        address: str,
    ) -> Outcome:
        status = STATUSES.get(part.code)
        if status is None:
            if part.code == ResponseCode.TOPIC_NOT_EXIST and self._routes.cached(outgoing.topic) is None:
                return NoRoute.to(outgoing.topic)  # the same error as without a known route
            self._sender.note_refusal(outgoing, queue, part.code)
            return ServerError(part.code, part.text, address)
        self._sender.note_success(outgoing, queue, whole=part.stored_as_batch)
        if part.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, part.queue_id)
        place = status, outgoing.message_id, part.text, queue, part.queue_offset, None
        # half the time of the constructor
        return tuple.__new__(SendResult, (*place, common.region_id, common.trace_on))
