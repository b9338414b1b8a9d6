"""What becomes of a batch of AutoBatch: how its senders are told, and how it is broken into smaller parts."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from raptormq.client.message.send_request import SendRequest, prepare_merged
from raptormq.client.producer import batch_sender
from raptormq.client.producer.queue_batches import BatchPart, Complete, QueueBatchesSender
from raptormq.client.results import SendResult
from raptormq.errors import RequestTimeout, ServerError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.compression import Compression, compress
from raptormq.protocol.message import Message, MessageQueue
from tests.client.batch_queues import LONG_TEXT, QUEUE, Broker, add, make_batch_queue
from tests.client.eventually import eventually


async def test_a_failed_batch_fails_its_senders_and_no_others() -> None:
    broker = Broker()
    broker.error = lambda outgoing: RequestTimeout("silence") if outgoing.topic == "bad" else None
    batch_queue = make_batch_queue(broker)
    bad = [add(batch_queue, Message("bad", b"x")) for _ in range(3)]
    alone = add(batch_queue, Message("bad", b"x", "A"))
    good = [add(batch_queue, Message("good", b"x")) for _ in range(3)]
    batch_queue.flush()
    outcomes = await asyncio.gather(*bad, alone, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["silence"] * 4
    assert all(isinstance(outcome, RequestTimeout) for outcome in outcomes)
    assert [result.queue_offset for result in await asyncio.gather(*good)] == [100, 101, 102]


async def test_a_sender_that_gave_up_before_the_batch_left_is_not_sent() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"%d" % n)) for n in range(3)]
    futures[1].cancel()
    batch_queue.flush()
    results = await asyncio.gather(futures[0], futures[2])
    assert [record.body for record in decode_batch(broker.sent[0].body)] == [b"0", b"2"]
    assert [result.queue_offset for result in results] == [100, 101]


async def test_a_broker_that_knows_no_batches_gets_single_messages() -> None:
    broker = Broker()
    unknown = ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")
    broker.error = lambda outgoing: unknown if outgoing.code == RequestCode.SEND_BATCH_MESSAGE else None
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"%d" % n, "A")) for n in range(2)]
    batch_queue.flush()
    results = await asyncio.gather(*futures)
    singles = broker.sent[1:]
    assert [outgoing.body for outgoing in singles] == [b"0", b"1"]
    assert [outgoing.message_id for outgoing in singles] == [result.message_id for result in results]
    assert batch_queue.add(Message("t", b"x"), None) is None
    assert batch_queue.add(Message("t", b"x"), QUEUE) is None
    await asyncio.gather(add(batch_queue, Message("t", b"x"), MessageQueue("t", "other", 0)), batch_queue.release(5))


@pytest.mark.parametrize(("seconds", "timeouts"), [(1.0, [3.0, 2.0, 1.0]), (4.0, [3.0])])
async def test_one_time_limit_covers_a_batch_and_the_messages_that_it_is_broken_into(
    monkeypatch: pytest.MonkeyPatch, seconds: float, timeouts: list[float]
) -> None:
    broker, now = Broker(), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    broker.on_send = lambda: now.append(now.pop() + seconds)
    unknown = ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")
    broker.error = lambda outgoing: unknown if outgoing.code == RequestCode.SEND_BATCH_MESSAGE else None
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"%d" % n)) for n in range(2)]
    batch_queue.flush()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SendResult if timeouts[1:] else RequestTimeout}
    assert broker.timeouts == timeouts


async def test_the_limit_covers_a_request_for_several_queues_and_its_batches_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, now = Broker(), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    class Refusing:
        def serves(self, _: str) -> bool:
            return True

        async def send(self, *_: object) -> None:
            now[0] += 1.0
            raise ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")

    batch_queue = make_batch_queue(broker, queue_batches=cast("QueueBatchesSender", Refusing()))
    futures = [add(batch_queue, Message("t", b"x"), MessageQueue("t", "b", number)) for number in (0, 0, 1)]
    batch_queue.flush()
    await asyncio.gather(*futures)
    assert broker.timeouts == [2.0, 2.0]


@pytest.mark.parametrize("as_a_whole", [True, False], ids=["the request", "a part of it"])
async def test_what_was_refused_too_late_to_be_sent_in_parts_tells_the_refusal(
    monkeypatch: pytest.MonkeyPatch, as_a_whole: bool
) -> None:
    broker, now = Broker(), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    refusal = ServerError(ResponseCode.MESSAGE_ILLEGAL, "not in this form", "b:1")

    class Late:
        def serves(self, _: str) -> bool:
            return True

        async def send(self, parts: dict[int, BatchPart], timeout: float, settle: Complete, _: object) -> None:
            now[0] += timeout
            if as_a_whole:
                raise refusal
            for number in list(parts):
                del parts[number]
                settle(number, refusal)

    batch_queue = make_batch_queue(broker, queue_batches=cast("QueueBatchesSender", Late()))
    futures = [add(batch_queue, Message("t", b"x"), MessageQueue("t", "b", number)) for number in (0, 0, 1)]
    batch_queue.flush()
    assert await asyncio.gather(*futures, return_exceptions=True) == [refusal] * 3
    assert not broker.sent


@pytest.mark.parametrize("queues", [(0, 0), (0, 0, 1)], ids=["alone", "together"])
async def test_the_time_that_encoding_takes_does_not_count(monkeypatch: pytest.MonkeyPatch, queues: list[int]) -> None:
    """As for a process that is stopped meanwhile: nothing was sent yet."""
    broker, now = Broker(), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])

    def slowly(*arguments: Any) -> SendRequest:
        monkeypatch.setattr(batch_sender, "prepare_merged", prepare_merged)
        now[0] += 4.0
        return prepare_merged(*arguments)

    class Unknown:
        def serves(self, _: str) -> bool:
            return True

        async def send(self, *_: object) -> None:
            raise ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")

    batch_queue = make_batch_queue(broker, queue_batches=cast("QueueBatchesSender", Unknown()))
    futures = [add(batch_queue, Message("t", b"x"), MessageQueue("t", "b", number)) for number in queues]
    monkeypatch.setattr(batch_sender, "prepare_merged", slowly)
    batch_queue.flush()
    await asyncio.gather(*futures)
    assert set(broker.timeouts) == {3.0}


async def test_what_one_batch_raises_is_no_matter_of_those_that_it_was_to_leave_with() -> None:
    class Unequal(Broker):
        """Has no memory for one queue, and lets the other one wait."""

        async def send(
            self,
            outgoing: SendRequest,
            queue: MessageQueue | None,
            key: str | None,
            timeout: float,
            is_awaited: Callable[[], bool] | None,
        ) -> SendResult:
            if queue is not None and queue.queue_id == 0:
                raise MemoryError
            return await super().send(outgoing, queue, key, timeout, is_awaited)

    class Refusing:
        def serves(self, _: str) -> bool:
            return True

        async def send(self, *_: object) -> None:
            raise ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")

    broker = Unequal()
    broker.silent = True
    batch_queue = make_batch_queue(broker, queue_batches=cast("QueueBatchesSender", Refusing()))
    bad, good = (
        [add(batch_queue, Message("t", b"x"), MessageQueue("t", "b", number)) for _ in range(2)] for number in (0, 1)
    )
    batch_queue.flush()
    assert [type(error) for error in await asyncio.gather(*bad, return_exceptions=True)] == [MemoryError] * 2
    await eventually(lambda: len(broker.sent) == 1)
    broker.speaks.set()
    assert [result.queue_offset for result in await asyncio.gather(*good)] == [100, 101]


async def test_a_message_that_cannot_be_compressed_alone_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_for_one(body: bytes, compression: Compression) -> tuple[bytes, int]:
        if body.startswith(b"bad"):
            raise MemoryError
        return compress(body, compression)

    def answer(outgoing: SendRequest) -> Exception | None:
        if outgoing.code != RequestCode.SEND_BATCH_MESSAGE:
            return None
        broker.silent = True
        return ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")

    monkeypatch.setattr("raptormq.client.message.send_request.compress", failing_for_one)
    broker = Broker()
    broker.error = answer
    batch_queue = make_batch_queue(broker)
    first, bad, last = (add(batch_queue, Message("t", head + LONG_TEXT)) for head in (b"good", b"bad", b"good"))
    batch_queue.flush()
    with pytest.raises(MemoryError):
        await bad
    await eventually(lambda: len(broker.sent) == 3)
    broker.speaks.set()
    assert [result.queue_offset for result in await asyncio.gather(first, last)] == [100, 100]


async def test_callbacks_share_a_batch_with_futures_and_are_completed_once(caplog: pytest.LogCaptureFixture) -> None:
    broker, told = Broker(), list[SendResult | BaseException]()

    def broken(outcome: SendResult | BaseException) -> None:
        told.append(outcome)
        raise ZeroDivisionError

    batch_queue = make_batch_queue(broker)
    assert batch_queue.add(Message("t", b"0"), None, told.append) == told.append
    future, gave_up = add(batch_queue, Message("t", b"1")), add(batch_queue, Message("t", b"gave up"))
    gave_up.cancel()
    assert batch_queue.add(Message("t", b"2"), None, broken) is broken
    assert batch_queue.add(Message("t", b"3", keys=("k",)), None, told.append) == told.append
    await batch_queue.release(5)
    assert [record.body for record in decode_batch(broker.sent[0].body)] == [b"0", b"1", b"2", b"3"]
    results = [result for result in (told[0], future.result(), *told[1:]) if isinstance(result, SendResult)]
    assert [result.queue_offset for result in results] == [100, 101, 102, 103]
    assert len({result.message_id for result in results}) == 4
    assert "the callback of a send failed" in caplog.text


@pytest.mark.parametrize("whole", [True, False])
async def test_callbacks_learn_why_a_batch_failed(whole: bool) -> None:
    """As a whole, or message by message where the broker knows no batches."""
    broker, told = Broker(), list[SendResult | BaseException]()
    refused, unknown = ServerError(17, "no topic", "b"), ServerError(3, "not supported", "b")
    is_batch = RequestCode.SEND_BATCH_MESSAGE
    broker.error = lambda outgoing: unknown if outgoing.code == is_batch and not whole else refused
    batch_queue = make_batch_queue(broker)
    for _ in range(3):
        batch_queue.add(Message("t", b"x"), None, told.append)
    await batch_queue.release(5)
    assert told == [refused] * 3
    assert len(broker.sent) == (1 if whole else 4)


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "stored whole"])
async def test_compressed_messages_for_a_topic_that_changed_its_type_go_one_by_one(refuses: bool) -> None:
    broker = Broker()
    broker.kinds.note_answer("t", "b", whole=False)

    def answer(outgoing: SendRequest) -> Exception | None:
        if outgoing.code != RequestCode.SEND_BATCH_MESSAGE:
            return None
        if refuses:
            return ServerError(ResponseCode.MESSAGE_ILLEGAL, "the batch is compressed, it says", "broker")
        broker.whole = True
        return None

    broker.error = answer
    batch_queue = make_batch_queue(broker, compress_batches=True)
    futures = [add(batch_queue, Message("t", LONG_TEXT)) for _ in range(2)]
    await batch_queue.release(5)
    await asyncio.gather(*futures)
    singles = broker.sent[1:]
    assert [(outgoing.code, outgoing.sys_flag) for outgoing in singles] == [(RequestCode.SEND_MESSAGE_V2, 0x301)] * 2
    assert {zlib.decompress(outgoing.body) for outgoing in singles} == {LONG_TEXT}
    assert len({future.result().message_id for future in futures}) == 2
