"""The sender of the sink, with a producer whose broker responds when the test permits it."""

from __future__ import annotations

import asyncio

import pytest

from pyspark_raptormq.errors import MissingTopic, RowError, SendFailed
from pyspark_raptormq.sink.encoder import EncodedPortion, EncodedRows
from pyspark_raptormq.sink.rows import Place, Rows
from pyspark_raptormq.sink.sender import TaskSender
from raptormq.client import Callback, EncodedBatch, Message, MessageQueue, SendResult, SendStatus, pick_by_key
from raptormq.errors import MessageError, NoRoute, ServerError, TransportError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import ResponseCode
from tests.turns import some_turns

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(4)]


class HeldProducer:
    """Keeps messages until `answer` is called."""

    def __init__(self) -> None:
        self.held: list[tuple[Message, Callback, MessageQueue | None]] = []
        self.held_batches: list[tuple[EncodedBatch, asyncio.Future[SendResult]]] = []
        self.route = {"t": QUEUES}

    async def send_encoded(self, batch: EncodedBatch) -> SendResult:
        answer: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.held_batches.append((batch, answer))
        return await answer

    def send_with_callback(self, message: Message, callback: Callback, *, queue: MessageQueue | None = None) -> None:
        if message.tags == "huge":
            raise MemoryError
        if message.tags == "bad":
            raise MessageError("a tag is bad")
        self.held.append((message, callback, queue))

    async def queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self.route:
            raise NoRoute.to(topic)
        return self.route[topic]

    def answer(self, status: SendStatus = SendStatus.SEND_OK, error: BaseException | None = None) -> None:
        for message, callback, queue in self.held:
            callback(error or SendResult(status, "id", "id", queue or MessageQueue(message.topic, "broker-a", 0), 0))
        self.held.clear()


def rows(count: int, first: int = 1, body: bytes = b"x" * 800, places: list[Place] | None = None) -> Rows:
    return Rows(first, [Message("t", body) for _ in range(count)], places, count * len(body))


def sender(producer: HeldProducer, limit: int = 10_000, *, all_acks: bool = True) -> TaskSender:
    return TaskSender(producer, 3, max_in_flight_bytes=limit, all_acks=all_acks)


async def test_no_more_is_under_way_than_the_limit_says() -> None:
    producer = HeldProducer()
    task = sender(producer)
    await task.send(rows(6))
    assert task.in_flight_bytes == 6000
    more = asyncio.create_task(task.send(rows(5, 7)))
    await some_turns()
    assert not more.done()
    assert len(producer.held) == 6
    producer.answer()
    await more
    assert task.in_flight_bytes == 5000
    ending = asyncio.create_task(task.finish())
    await some_turns()
    assert not ending.done()
    producer.answer()
    await ending
    assert task.in_flight_bytes == 0


async def test_a_portion_beyond_the_limit_travels_alone() -> None:
    producer = HeldProducer()
    task = sender(producer, limit=1000)
    await task.send(rows(1, body=b"x" * 5000))
    waiting = asyncio.create_task(task.send(rows(1, 2, body=b"x" * 5000)))
    await some_turns()
    assert len(producer.held) == 1
    producer.answer()
    await waiting
    assert len(producer.held) == 1


async def test_a_late_failure_ends_the_task() -> None:
    """The failure occurs after the last row was passed. It must not be lost."""
    producer = HeldProducer()
    task = sender(producer)
    await task.send(rows(3))
    ending = asyncio.create_task(task.finish())
    await some_turns()
    cause = TransportError("gone")
    producer.answer(error=cause)
    with pytest.raises(
        SendFailed, match="rows 1 to 3 of partition 3 could not be sent, at least in part: gone"
    ) as caught:
        await ending
    assert caught.value.__cause__ is cause


async def test_a_failure_wakes_up_who_waits_for_room() -> None:
    producer = HeldProducer()
    task = sender(producer, limit=1000)
    await task.send(rows(2))
    waiting = asyncio.create_task(task.send(rows(1, 3)))
    await some_turns()
    _, callback, _ = producer.held[0]
    callback(TransportError("gone"))
    with pytest.raises(SendFailed):
        await waiting


async def test_less_safe_than_configured_is_not_written() -> None:
    for status in (SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT):
        producer = HeldProducer()
        task = sender(producer)
        await task.send(rows(1))
        producer.answer(status)
        with pytest.raises(SendFailed, match=rf"stored by broker-a, but less safely .*\({status.name}\)"):
            await task.finish()
        lenient = sender(producer, all_acks=False)
        await lenient.send(rows(1))
        producer.answer(status)
        await lenient.finish()


async def test_queues_are_chosen() -> None:
    producer = HeldProducer()
    task = sender(producer)
    keys = [f"plane{number}" for number in range(5)]
    places = [*(Place(sharding_key=key) for key in keys), Place(queue_id=2), Place(None, "broker-a", 3), Place()]
    await task.send(rows(8, places=places))
    chosen = [queue for _, _, queue in producer.held]
    assert chosen == [*(pick_by_key(QUEUES, key) for key in keys), QUEUES[2], QUEUES[3], None]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (Place(queue_id=4), "there is no queue t@broker-a:4 to write to; topic t has broker-a:0, broker-a:1"),
        (Place(None, "broker-b", 0), "there is no queue t@broker-b:0"),
    ],
)
async def test_a_queue_that_is_none_is_named_with_the_row(place: Place, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        await sender(HeldProducer()).send(rows(3, 11, places=[Place(), Place(), place]))
    assert str(caught.value).startswith(f"row 13 of partition 3 cannot be sent: {reason}")


async def test_a_number_alone_names_no_queue_of_several_brokers() -> None:
    producer = HeldProducer()
    producer.route["t"] = [*QUEUES, MessageQueue("t", "broker-b", 0)]
    with pytest.raises(RowError, match=r"\(broker-a and broker-b\): column queueId needs brokerName"):
        await sender(producer).send(rows(1, places=[Place(queue_id=0)]))
    await sender(producer).send(rows(1, places=[Place(None, "broker-b", 0)]))
    assert producer.held[-1][2] == MessageQueue("t", "broker-b", 0)
    producer.route["t"] = []
    with pytest.raises(RowError, match="topic t has no writable queue"):
        await sender(producer).send(rows(1, places=[Place("key")]))
    del producer.route["t"]
    with pytest.raises(MissingTopic, match="topic t does not exist"):
        await sender(producer).send(rows(1, places=[Place("key")]))


async def test_a_message_that_is_none_is_named_with_the_row() -> None:
    wrong = rows(3, 101)
    wrong.messages[1].tags = "bad"
    with pytest.raises(RowError, match="row 102 of partition 3 cannot be sent: a tag is bad"):
        await sender(HeldProducer()).send(wrong)


def portion(count: int, batches: int, first: int = 1) -> EncodedPortion:
    """Return batches of `count` rows with bodies of 800 bytes."""
    body = encode_batch([(0, b"x" * 800, b"TAGS\x01a\x02KEYS\x01k l\x02WAIT\x01true\x02UNIQ_KEY\x01id\x02")] * count)
    found = EncodedBatch("t", body, ["id"] * count, "a", ["k", "l"])
    return EncodedPortion([EncodedRows(first + number * count, found) for number in range(batches)], 800 * count)


async def test_encoded_batches_keep_the_limit() -> None:
    producer = HeldProducer()
    task = sender(producer, limit=6_000)
    sending = asyncio.create_task(task.send(portion(3, 3)))
    await some_turns()
    assert len(producer.held_batches) == 2
    assert not sending.done()
    producer.held_batches[0][1].set_result(SendResult(SendStatus.SEND_OK, "id", "id", QUEUES[0], 0))
    await sending
    ending = asyncio.create_task(task.finish())
    await some_turns()
    assert len(producer.held_batches) == 3
    for _, answer in producer.held_batches[1:]:
        assert not ending.done()
        answer.set_result(SendResult(SendStatus.SEND_OK, "id", "id", QUEUES[0], 0))
    await ending
    assert task.in_flight_bytes == 0


async def test_a_failed_batch_ends_the_task() -> None:
    producer = HeldProducer()
    task = sender(producer, limit=100_000)
    await task.send(portion(3, 2, first=11))
    await some_turns()
    cause = TransportError("gone")
    producer.held_batches[1][1].set_exception(cause)
    with pytest.raises(SendFailed, match=r"rows 14 to 16 of partition 3 could not be sent, .*: gone") as caught:
        await task.finish()
    assert caught.value.__cause__ is cause
    with pytest.raises(SendFailed, match="rows 14 to 16"):
        await task.send(portion(1, 1))


async def test_a_batch_that_is_stored_less_safely_fails_the_task() -> None:
    producer = HeldProducer()
    task = sender(producer)
    await task.send(portion(1, 1))
    await some_turns()
    producer.held_batches[0][1].set_result(SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "id", "id", QUEUES[0], 0))
    with pytest.raises(SendFailed, match="rows 1 to 1 of partition 3 are stored by broker-a, but less safely"):
        await task.finish()


async def test_a_broker_that_does_not_know_batches_gets_the_messages() -> None:
    producer = HeldProducer()
    task = sender(producer)
    await task.send(portion(2, 1))
    await some_turns()
    producer.held_batches[0][1].set_exception(ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", "a:1"))
    ending = asyncio.create_task(task.finish())
    await some_turns()
    expected = Message("t", b"x" * 800, "a", ("k", "l"), {"UNIQ_KEY": "id"})
    assert [message for message, _, _ in producer.held] == [expected, expected]
    assert not ending.done()
    producer.answer()
    await ending
    assert task.in_flight_bytes == 0


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (b"TAGS\x01bad\x02WAIT\x01true\x02", "a tag is bad"),
        (b"TAGS\x01huge\x02WAIT\x01true\x02", r"MemoryError\(\)"),
        (b"TAGS\x01\xff\x02WAIT\x01true\x02", r"UnicodeDecodeError\(.*\)"),
    ],
)
async def test_an_error_of_the_single_messages_ends_the_task(properties: bytes, reason: str) -> None:
    producer = HeldProducer()
    task = sender(producer)
    body = encode_batch([(0, b"x", properties)])
    await task.send(EncodedPortion([EncodedRows(1, EncodedBatch("t", body, ["id"]))], 1))
    await some_turns()
    producer.held_batches[0][1].set_exception(ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", "a:1"))
    with pytest.raises(SendFailed, match=f"rows 1 to 1 of partition 3 could not be sent, at least in part: {reason}$"):
        await asyncio.wait_for(task.finish(), 5)
    assert task.in_flight_bytes == 0


async def test_after_one_refused_batch_no_other_is_sent() -> None:
    producer = HeldProducer()
    task = sender(producer)
    await task.send(portion(2, 1))
    await some_turns()
    producer.held_batches[0][1].set_exception(ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", "a:1"))
    await some_turns()
    await task.send(portion(2, 2, first=3))
    await some_turns()
    assert len(producer.held_batches) == 1
    assert len(producer.held) == 6
    ending = asyncio.create_task(task.finish())
    producer.answer()
    await ending
    assert task.in_flight_bytes == 0
