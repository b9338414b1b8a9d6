"""Sending of the messages of one task, with a limit on unacknowledged bytes.

Each encoded batch is sent as one request. Messages are passed to the process's producer, which batches them per queue
(AutoBatch). At `max_in_flight_bytes` of unacknowledged messages the task blocks. The first failure ends the task: no
further row is sent, and Spark retries the task or fails the query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark_raptormq.errors import MissingTopic, RowError, SendFailed
from pyspark_raptormq.sink.encoder import EncodedPortion, EncodedRows
from pyspark_raptormq.sink.rows import Place, Rows
from raptormq.client import Callback, EncodedBatch, Message, MessageQueue, SendResult, SendStatus, pick_by_key
from raptormq.errors import MessageError, NoRoute, RaptorMQError, ServerError
from raptormq.protocol.codes import ResponseCode

_MESSAGE_OVERHEAD_BYTES = 200
"""Estimated size in bytes of a message without its body, in memory and on the wire."""


class MessageProducer(Protocol):
    """Interface of the producer. Implemented by `raptormq.client.Producer`."""

    def send_with_callback(
        self, message: Message, callback: Callback, *, queue: MessageQueue | None = None
    ) -> None: ...
    async def send_encoded(self, batch: EncodedBatch) -> SendResult: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...


class _Portion:
    """Messages that are sent together, or a batch. An instance is the callback for their responses."""

    def __init__(self, sender: TaskSender, rows: str, count: int, size: int) -> None:
        self._sender = sender
        self._rows = rows
        self._size = size
        self._unanswered = count

    def __call__(self, outcome: SendResult | BaseException) -> None:
        if isinstance(outcome, BaseException) or outcome.status is not SendStatus.SEND_OK:
            self._sender.note(outcome, self._rows)
        self._unanswered -= 1
        if not self._unanswered:
            self._sender.give_back(self._size)


class TaskSender:
    """Sends the rows of one task. It must be used on the event loop of the producer.

    Args:
        producer: the producer.
        partition: partition number of the task, for error messages.
        max_in_flight_bytes: maximum of unacknowledged bytes. A larger portion of rows is sent when nothing else is
            unacknowledged.
        all_acks: whether the task fails when a message was stored less safely than configured.
    """

    def __init__(
        self, producer: MessageProducer, partition: int, *, max_in_flight_bytes: int, all_acks: bool = True
    ) -> None:
        self._producer = producer
        self._partition = partition
        self._limit = max_in_flight_bytes
        self._all_acks = all_acks
        self._in_flight = 0
        self._room: asyncio.Event = asyncio.Event()
        self._failure: RaptorMQError | None = None
        self._sends: set[asyncio.Task[None]] = set()
        """Pending sends of encoded batches."""
        self._takes_batches = True
        """False after a broker has rejected a batch because it does not support batches."""

    @property
    def in_flight_bytes(self) -> int:
        """Unacknowledged bytes."""
        return self._in_flight

    async def send(self, rows: Rows | EncodedPortion) -> None:
        """Pass rows to the producer as soon as the limit permits.

        Raises:
            RowError: A row cannot be sent. The rows before it are sent.
            SendFailed: Earlier rows could not be sent.
            MissingTopic: A topic does not exist.
            TransportError: No name server responded.
        """
        if isinstance(rows, EncodedPortion):
            for each in rows.batches:
                await self._wait_for_room(len(each.batch.body))
                self._in_flight += len(each.batch.body)
                task = asyncio.create_task(self._send_encoded(each))
                self._sends.add(task)
                task.add_done_callback(self._sends.discard)
            return
        size = rows.body_bytes + _MESSAGE_OVERHEAD_BYTES * len(rows.messages)
        await self._wait_for_room(size)
        queues = await self._queues(rows)
        self._in_flight += size
        answered = _Portion(self, f"rows {rows.first} to {rows.first + rows.row_count - 1}", rows.row_count, size)
        send = self._producer.send_with_callback
        for index, message in enumerate(rows.messages):
            try:
                queue = None if rows.places is None else queues[message.topic].choose(rows.places[index])
                send(message, answered, queue=queue)
            except (MessageError, RowError) as error:
                row = f"row {rows.first + index} of partition {self._partition}"
                raise RowError(f"{row} cannot be sent: {error}") from error

    async def _wait_for_room(self, size: int) -> None:
        while self._failure is None and self._in_flight and self._in_flight + size > self._limit:
            self._room.clear()
            await self._room.wait()
        self._raise_failure()

    async def _send_encoded(self, rows: EncodedRows) -> None:
        """Send one batch, or its messages one by one if a broker does not support batches. `note` records errors."""
        where, size = f"rows {rows.first} to {rows.last}", len(rows.batch.body)
        outcome: SendResult | BaseException | None = None
        try:
            if self._takes_batches:
                outcome = await self._send_batch(rows.batch)
            if outcome is None:
                answered = _Portion(self, where, len(rows.batch.message_ids), size)
                for message in rows.batch.messages():
                    self._producer.send_with_callback(message, answered)
        except Exception as error:  # noqa: BLE001 - bytes that are not given back would stop the task for ever
            outcome = error
        if outcome is not None:
            _Portion(self, where, 1, size)(outcome)

    async def _send_batch(self, batch: EncodedBatch) -> SendResult | None:
        """Send one batch. Return None if the broker does not support batches; later batches are not tried either."""
        try:
            return await self._producer.send_encoded(batch)
        except ServerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        self._takes_batches = False
        return None

    async def finish(self) -> None:
        """Wait until all rows are acknowledged.

        Raises:
            SendFailed: Rows could not be sent.
        """
        while self._failure is None and self._in_flight:
            self._room.clear()
            await self._room.wait()
        self._raise_failure()

    def note(self, outcome: SendResult | BaseException, rows: str) -> None:
        """Record the first failure, which `send` and `finish` then raise."""
        where = f"{rows} of partition {self._partition}"
        if isinstance(outcome, SendResult):
            if not self._all_acks:
                return
            what = (
                f"{where} are stored by {outcome.queue.broker_name}, but less safely than configured "
                f"({outcome.status.name}). Set option acks to 1 to accept that"
            )
        else:
            text = str(outcome) if isinstance(outcome, RaptorMQError) else repr(outcome)  # str() may be empty
            what = f"{where} could not be sent, at least in part: {text}"
        if self._failure is None:
            cause = outcome if isinstance(outcome, BaseException) else None
            self._failure = SendFailed(what)
            self._failure.__cause__ = cause
        self._room.set()

    def give_back(self, size: int) -> None:
        """Subtract the size of a portion whose messages were all answered."""
        self._in_flight -= size
        self._room.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _queues(self, rows: Rows) -> Mapping[str, Queues]:
        """Return the queues of each topic if rows select queues. Each call asks again, because topics may grow."""
        if rows.places is None:
            return {}
        found: dict[str, Queues] = {}
        for topic in {message.topic for message in rows.messages}:
            try:
                found[topic] = Queues(topic, await self._producer.queues(topic))
            except NoRoute as error:
                raise MissingTopic(f"topic {topic} does not exist, or none of its brokers is available") from error
        return found


class Queues:
    """The queues of a topic that rows may choose."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self._topic = topic
        self._ordered = queues
        self._known = frozenset(queues)
        self._brokers = sorted({queue.broker_name for queue in queues})

    def choose(self, place: Place) -> MessageQueue | None:
        """Return the queue that a row selects; None for any queue.

        Raises:
            RowError: The queue does not exist.
        """
        if place.sharding_key is None and place.queue_id is None:
            return None
        if not self._ordered:
            raise RowError(f"topic {self._topic} has no writable queue")
        if place.sharding_key is not None:
            return pick_by_key(self._ordered, place.sharding_key)
        assert place.queue_id is not None
        if place.broker_name is None and len(self._brokers) > 1:
            brokers = " and ".join(self._brokers)
            raise RowError(f"several brokers have topic {self._topic} ({brokers}): column queueId needs brokerName")
        queue = MessageQueue(self._topic, place.broker_name or self._brokers[0], place.queue_id)
        if queue not in self._known:
            known = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in self._ordered)
            raise RowError(f"there is no queue {queue} to write to; topic {self._topic} has {known}")
        return queue
