"""Sends the messages of one task and waits for every acknowledgement.

Messages are handed to the process's producer (AutoBatch: what goes to one queue travels together) until
`max_in_flight_bytes` are unacknowledged; then the task waits, and with it Spark. The first failure ends the task: no
further row is sent, and Spark repeats the task or fails the query.
Neighbours: `rows` makes the messages, `cluster` has the producer and its event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark_raptormq.errors import MissingTopic, RowError, SendFailed
from pyspark_raptormq.sink.rows import Place, Rows
from raptormq.client import Callback, Message, MessageQueue, SendResult, SendStatus, pick_by_key
from raptormq.errors import MessageError, NoRoute, RaptorMQError

_MESSAGE_OVERHEAD_BYTES = 200
"""What a message costs beside its body, in memory and on the wire."""


class MessageProducer(Protocol):
    """What sends; `raptormq.client.Producer` in production."""

    def send_with_callback(
        self, message: Message, callback: Callback, *, queue: MessageQueue | None = None
    ) -> None: ...
    async def queues(self, topic: str) -> list[MessageQueue]: ...


class _Portion:
    """Messages that are sent together, and their callback."""

    def __init__(self, sender: TaskSender, rows: Rows, size: int) -> None:
        self._sender = sender
        self._rows = rows
        self._size = size
        self._unanswered = len(rows.messages)

    def __call__(self, outcome: SendResult | BaseException) -> None:
        if isinstance(outcome, BaseException) or outcome.status is not SendStatus.SEND_OK:
            self._sender.note(outcome, self._rows)
        self._unanswered -= 1
        if not self._unanswered:
            self._sender.give_back(self._size)


class TaskSender:
    """Sends the rows of one task; used on the event loop of its producer.

    Args:
        producer: what sends.
        partition: number of the task's partition, for errors.
        max_in_flight_bytes: bytes without an acknowledgement; a portion of rows that is larger is let through alone.
        all_acks: whether a message that was stored less safely than configured fails the task.
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

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that are not acknowledged."""
        return self._in_flight

    async def send(self, rows: Rows) -> None:
        """Hand rows over once there is room for them.

        Raises:
            RowError: a row cannot be sent; those before it are.
            SendFailed: rows that were handed over before could not be sent.
            MissingTopic: a topic does not exist.
            TransportError: no name server answers.
        """
        size = rows.body_bytes + _MESSAGE_OVERHEAD_BYTES * len(rows.messages)
        while self._failure is None and self._in_flight and self._in_flight + size > self._limit:
            self._room.clear()
            await self._room.wait()
        self._raise_failure()
        queues = await self._queues(rows)
        self._in_flight += size
        answered = _Portion(self, rows, size)
        send = self._producer.send_with_callback
        for index, message in enumerate(rows.messages):
            try:
                queue = None if rows.places is None else queues[message.topic].choose(rows.places[index])
                send(message, answered, queue=queue)
            except (MessageError, RowError) as error:
                row = f"row {rows.first + index} of partition {self._partition}"
                raise RowError(f"{row} cannot be sent: {error}") from error

    async def finish(self) -> None:
        """Wait until all rows are acknowledged.

        Raises:
            SendFailed: some could not be sent.
        """
        while self._failure is None and self._in_flight:
            self._room.clear()
            await self._room.wait()
        self._raise_failure()

    def note(self, outcome: SendResult | BaseException, rows: Rows) -> None:
        """Remember the first failure, for the task to end with."""
        last = rows.first + len(rows.messages) - 1
        where = f"rows {rows.first} to {last} of partition {self._partition}"
        if isinstance(outcome, SendResult):
            if not self._all_acks:
                return
            what = (
                f"{where} are stored by {outcome.queue.broker_name}, but not as safely as it is configured for "
                f"({outcome.status.name}). Set option acks to 1 to take that for written"
            )
        else:
            what = f"{where} could not be sent, at least in part: {outcome}"
        if self._failure is None:
            cause = outcome if isinstance(outcome, BaseException) else None
            self._failure = SendFailed(what)
            self._failure.__cause__ = cause
        self._room.set()

    def give_back(self, size: int) -> None:
        """Give the room of a portion back, all of which was answered."""
        self._in_flight -= size
        self._room.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _queues(self, rows: Rows) -> Mapping[str, _Queues]:
        """Return the queues of the topics where rows choose theirs; looked up each time, for a topic may grow."""
        if rows.places is None:
            return {}
        found: dict[str, _Queues] = {}
        for topic in {message.topic for message in rows.messages}:
            try:
                found[topic] = _Queues(topic, await self._producer.queues(topic))
            except NoRoute as error:
                raise MissingTopic(f"topic {topic} does not exist, or no broker that has it is up") from error
        return found


class _Queues:
    """The queues of a topic that rows may choose."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        self._topic = topic
        self._ordered = queues
        self._known = frozenset(queues)
        self._brokers = sorted({queue.broker_name for queue in queues})

    def choose(self, place: Place) -> MessageQueue | None:
        """Return the queue that a row wants, `None` for any.

        Raises:
            RowError: there is no such queue.
        """
        if place.sharding_key is None and place.queue_id is None:
            return None
        if not self._ordered:
            raise RowError(f"topic {self._topic} has no queue that takes messages")
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
