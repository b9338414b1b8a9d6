"""AutoBatch: what is merged, when a batch leaves, and that every sender learns its own outcome."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Callable

import pytest

from raptormq.client.accumulator import Accumulator, Lane
from raptormq.client.config import ProducerConfig
from raptormq.client.outgoing import Outgoing
from raptormq.client.queue_kinds import QueueKinds
from raptormq.client.results import SendResult, SendStatus
from raptormq.client.united_keys import MAX_KEYS_CHARS
from raptormq.errors import ClientClosed, MessageError, RequestTimeout, ServerError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.message import Delay, Message, MessageQueue
from raptormq.protocol.message_id import UniqueIdFactory, encode_host
from raptormq.protocol.properties import decode_properties

LONG_MS = 30_000.0
QUEUE = MessageQueue("t", "b", 3)


class Broker:
    """Stands in for `Delivery`: notes what is sent and answers as a SimpleCQ topic does."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.queues: list[MessageQueue | None] = []
        self.timeouts: list[float] = []
        self.on_send: Callable[[], None] = lambda: None
        self.error: Callable[[Outgoing], Exception | None] = lambda _outgoing: None
        self.whole = False
        self.silent = False
        self.kinds = QueueKinds()

    async def send(self, outgoing: Outgoing, queue: MessageQueue | None, key: str | None, timeout: float) -> SendResult:
        assert key is None
        self.timeouts.append(timeout)
        self.sent.append(outgoing)
        self.queues.append(queue)
        if self.silent:
            await asyncio.Event().wait()
        self.on_send()
        if (error := self.error(outgoing)) is not None:
            raise error
        single = self.whole or outgoing.code != RequestCode.SEND_BATCH_MESSAGE
        count = 1 if single else len(decode_batch(outgoing.body))
        ids = ",".join(f"offset-{number}" for number in range(count))
        return SendResult(SendStatus.SEND_OK, outgoing.message_id, ids, queue or QUEUE, 100)


def make_lane(broker: Broker, accumulator: Accumulator | None = None, **settings: float) -> Lane:
    values = {"batch_max_delay_ms": LONG_MS, **settings}
    config = ProducerConfig(auto_batch=True, **values)  # type: ignore[arg-type]
    ids = UniqueIdFactory(encode_host("127.0.0.1", 0)[:-4], 1, 2)
    return (accumulator or Accumulator()).join("g", config, ids, broker.send, broker.kinds)


def add(lane: Lane, message: Message, queue: MessageQueue | None = None) -> asyncio.Future[SendResult]:
    future = lane.add(message, queue)
    assert future is not None
    return future


async def test_messages_leave_together_and_each_sender_gets_its_own_place() -> None:
    broker = Broker()
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"%d" % n, "A", (f"k{n}",), {"n": str(n)}, flag=n)) for n in range(3)]
    lane.flush()
    results = await asyncio.gather(*futures)
    [outgoing] = broker.sent
    assert outgoing.code == RequestCode.SEND_BATCH_MESSAGE
    inner = decode_batch(outgoing.body)
    assert [(record.flag, record.body) for record in inner] == [(0, b"0"), (1, b"1"), (2, b"2")]
    own = [decode_properties(record.properties.decode()) for record in inner]
    assert [p["KEYS"] + p["n"] for p in own] == ["k00", "k11", "k22"]
    assert [result.message_id for result in results] == [p["UNIQ_KEY"] for p in own]
    assert [result.offset_message_id for result in results] == ["offset-0", "offset-1", "offset-2"]
    assert [result.queue_offset for result in results] == [100, 101, 102]
    common = decode_properties(outgoing.properties)
    batch_id = common.pop("UNIQ_KEY")
    assert batch_id == outgoing.message_id
    assert batch_id not in {p["UNIQ_KEY"] for p in own}
    assert common == {"TAGS": "A", "KEYS": "k0 k1 k2", "WAIT": "true"}


async def test_a_batch_that_is_stored_whole_has_one_id_for_all() -> None:
    broker = Broker()
    broker.whole = True
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"x")) for _ in range(3)]
    lane.flush()
    results = await asyncio.gather(*futures)
    assert [result.offset_message_id for result in results] == ["offset-0"] * 3
    assert [result.queue_offset for result in results] == [100, 101, 102]
    assert len({result.message_id for result in results}) == 3


async def test_topic_queue_tag_and_wait_flag_keep_batches_apart() -> None:
    broker = Broker()
    lane = make_lane(broker)
    other = MessageQueue("t", "b", 4)
    kinds: list[tuple[Message, MessageQueue | None]] = [
        (Message("t", b"x"), None),
        (Message("u", b"x"), None),
        (Message("t", b"x", "A"), None),
        (Message("t", b"x", wait_stored=False), None),
        (Message("t", b"x"), QUEUE),
        (Message("t", b"x"), other),
    ]
    futures = [add(lane, message, queue) for message, queue in kinds * 2]
    lane.flush()
    await asyncio.gather(*futures)
    assert len(broker.sent) == len(kinds)
    assert all(len(decode_batch(outgoing.body)) == 2 for outgoing in broker.sent)
    assert broker.queues == [None, None, None, None, QUEUE, other]


async def test_a_full_batch_leaves_at_once() -> None:
    broker = Broker()
    lane = make_lane(broker, batch_max_bytes=1000)
    futures = [add(lane, Message("t", b"x" * 300)) for _ in range(3)]
    await asyncio.gather(*futures)
    assert len(broker.sent) == 1


async def test_an_old_batch_leaves_and_a_message_without_company_is_sent_as_a_single_one() -> None:
    broker = Broker()
    lane = make_lane(broker, batch_max_delay_ms=1)
    result = await add(lane, Message("t", b"x", "A"))
    assert [outgoing.code for outgoing in broker.sent] == [RequestCode.SEND_MESSAGE_V2]
    assert decode_properties(broker.sent[0].properties)["UNIQ_KEY"] == result.message_id
    assert result.queue_offset == 100


async def test_what_may_not_be_merged_goes_by_itself() -> None:
    lane = make_lane(Broker(), batch_max_bytes=1000)
    assert lane.add(Message("%RETRY%g", b"x"), None) is None
    assert lane.add(Message("t", b"x", properties={"DELAY": "3"}), None) is None
    assert lane.add(Message("t", b"x", properties={"TIMER_DELAY_MS": "3000"}), None) is None
    assert lane.add(Message("t", b"x", delay=Delay.by(3)), None) is None
    assert lane.add(Message("t", b"x", properties={"__SHARDINGKEY": "k"}), None) is None
    assert lane.add(Message("t", b"x" * 1000), None) is None
    assert lane.add(Message("t", b"x" * 999), None) is not None
    assert lane.add(Message("t", b"x", properties={"__SHARDINGKEY": "k"}), QUEUE) is not None


async def test_a_message_that_breaks_a_rule_is_refused_and_leaves_nothing_behind() -> None:
    accumulator = Accumulator()
    lane = make_lane(Broker(), accumulator)
    with pytest.raises(MessageError):
        lane.add(Message("no topic", b"x"), None)
    with pytest.raises(MessageError):
        lane.add(Message("t", b"x", properties={"a": "\x01"}), None)
    assert (accumulator.held_bytes, accumulator.open_batches) == (0, 0)


async def test_the_limits_hold_over_all_producers_of_a_client() -> None:
    broker, accumulator = Broker(), Accumulator()
    first = make_lane(broker, accumulator, total_batch_max_bytes=500, max_open_batches=2)
    second = make_lane(broker, accumulator, total_batch_max_bytes=500, max_open_batches=2, retries=1)
    futures = [add(first, Message("t", b"x")), add(second, Message("t", b"x"))]
    assert second.add(Message("u", b"x"), None) is None
    assert second is not first
    futures.append(add(second, Message("t", b"x" * 400)))
    assert first.add(Message("t", b"x"), None) is None
    await first.leave(5)
    await second.leave(5)
    await asyncio.gather(*futures)
    assert (accumulator.held_bytes, accumulator.open_batches) == (0, 0)


async def test_united_keys_stay_within_the_properties_of_a_request() -> None:
    broker = Broker()
    lane = make_lane(broker, batch_max_bytes=2 * 1024 * 1024)
    futures = [add(lane, Message("t", b"x", keys=(f"{n:0500d}",))) for n in range(20)]
    lane.flush()
    await asyncio.gather(*futures)
    assert len(broker.sent) == 3
    for outgoing in broker.sent:
        assert len(decode_properties(outgoing.properties)["KEYS"]) <= MAX_KEYS_CHARS


async def test_a_failed_batch_fails_its_senders_and_no_others() -> None:
    broker = Broker()
    broker.error = lambda outgoing: RequestTimeout("silence") if outgoing.topic == "bad" else None
    lane = make_lane(broker)
    bad = [add(lane, Message("bad", b"x")) for _ in range(3)]
    alone = add(lane, Message("bad", b"x", "A"))
    good = [add(lane, Message("good", b"x")) for _ in range(3)]
    lane.flush()
    outcomes = await asyncio.gather(*bad, alone, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["silence"] * 4
    assert all(isinstance(outcome, RequestTimeout) for outcome in outcomes)
    assert [result.queue_offset for result in await asyncio.gather(*good)] == [100, 101, 102]


async def test_a_sender_that_gave_up_before_the_batch_left_is_not_sent() -> None:
    broker = Broker()
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"%d" % n)) for n in range(3)]
    futures[1].cancel()
    lane.flush()
    results = await asyncio.gather(futures[0], futures[2])
    assert [record.body for record in decode_batch(broker.sent[0].body)] == [b"0", b"2"]
    assert [result.queue_offset for result in results] == [100, 101]


async def test_a_broker_that_knows_no_batches_gets_single_messages() -> None:
    broker = Broker()
    unknown = ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")
    broker.error = lambda outgoing: unknown if outgoing.code == RequestCode.SEND_BATCH_MESSAGE else None
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"%d" % n, "A")) for n in range(2)]
    lane.flush()
    results = await asyncio.gather(*futures)
    singles = broker.sent[1:]
    assert [outgoing.body for outgoing in singles] == [b"0", b"1"]
    assert [outgoing.message_id for outgoing in singles] == [result.message_id for result in results]
    assert lane.add(Message("t", b"x"), None) is None


@pytest.mark.parametrize(("seconds", "timeouts"), [(1.0, [3.0, 2.0, 1.0]), (4.0, [3.0])])
async def test_one_time_limit_covers_a_batch_and_the_messages_that_it_is_broken_into(
    monkeypatch: pytest.MonkeyPatch, seconds: float, timeouts: list[float]
) -> None:
    broker, now = Broker(), [100.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    broker.on_send = lambda: now.append(now.pop() + seconds)
    unknown = ServerError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request", "b:1")
    broker.error = lambda outgoing: unknown if outgoing.code == RequestCode.SEND_BATCH_MESSAGE else None
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"%d" % n)) for n in range(2)]
    lane.flush()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {SendResult if timeouts[1:] else RequestTimeout}
    assert broker.timeouts == timeouts


async def test_callbacks_share_a_batch_with_futures_and_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    broker, told = Broker(), list[SendResult | BaseException]()

    def broken(outcome: SendResult | BaseException) -> None:
        told.append(outcome)
        raise ZeroDivisionError

    lane = make_lane(broker)
    assert lane.add(Message("t", b"0"), None, told.append) == told.append
    future, gave_up = add(lane, Message("t", b"1")), add(lane, Message("t", b"gave up"))
    gave_up.cancel()
    assert lane.add(Message("t", b"2"), None, broken) is broken
    assert lane.add(Message("t", b"3", keys=("k",)), None, told.append) == told.append
    await lane.leave(5)
    assert [record.body for record in decode_batch(broker.sent[0].body)] == [b"0", b"1", b"2", b"3"]
    results = [result for result in (told[0], future.result(), *told[1:]) if isinstance(result, SendResult)]
    assert [result.queue_offset for result in results] == [100, 101, 102, 103]
    assert len({result.message_id for result in results}) == 4
    assert "a callback of a send has failed" in caplog.text


@pytest.mark.parametrize("whole", [True, False])
async def test_callbacks_learn_why_a_batch_failed(whole: bool) -> None:
    """As a whole, or message by message where the broker knows no batches."""
    broker, told = Broker(), list[SendResult | BaseException]()
    refused, unknown = ServerError(17, "no topic", "b"), ServerError(3, "not supported", "b")
    is_batch = RequestCode.SEND_BATCH_MESSAGE
    broker.error = lambda outgoing: unknown if outgoing.code == is_batch and not whole else refused
    lane = make_lane(broker)
    for _ in range(3):
        lane.add(Message("t", b"x"), None, told.append)
    await lane.leave(5)
    assert told == [refused] * 3
    assert len(broker.sent) == (1 if whole else 4)


async def test_callbacks_of_what_has_no_answer_are_told_when_the_producer_closes() -> None:
    broker, told = Broker(), list[SendResult | BaseException]()
    broker.silent = True
    lane = make_lane(broker)
    for _ in range(2):
        lane.add(Message("t", b"x"), None, told.append)
    await lane.leave(0.01)
    assert [type(outcome) for outcome in told] == [ClientClosed] * 2


async def test_leaving_sends_what_waits() -> None:
    broker, accumulator = Broker(), Accumulator()
    lane = make_lane(broker, accumulator)
    assert make_lane(broker, accumulator) is lane  # the second producer of the same group
    future = add(lane, Message("t", b"x"))
    await lane.leave(5)
    assert future.done()
    await lane.leave(5)
    assert make_lane(broker, accumulator) is not lane


async def test_leaving_does_not_wait_for_ever_and_leaves_no_sender_behind() -> None:
    broker = Broker()
    broker.silent = True
    lane = make_lane(broker)
    futures = [add(lane, Message("t", b"x")) for _ in range(2)]
    await lane.leave(0.01)
    for future in futures:
        with pytest.raises(ClientClosed):
            await future


async def test_plain_and_special_messages_share_a_batch_in_their_order() -> None:
    broker = Broker()
    lane = make_lane(broker)
    sent = [
        Message("t", b"same"),
        Message("t", b"flagged", flag=7),
        Message("t", b"size"),
        Message("t", b"other length", keys=("k",)),
        Message("t", b"", properties={"UNIQ_KEY": "own id", "colour": "grün"}),
    ]
    futures = [add(lane, message) for message in sent]
    gave_up = add(lane, Message("t", b"gave up", keys=("gone",)))
    gave_up.cancel()
    await lane.leave(5)
    results = [future.result() for future in futures]
    [outgoing] = broker.sent
    records = decode_batch(outgoing.body)
    assert [(record.flag, record.body) for record in records] == [(message.flag, message.body) for message in sent]
    expected = [
        {**message.all_properties(), "UNIQ_KEY": result.message_id}
        for message, result in zip(sent, results, strict=True)
    ]
    assert [decode_properties(record.properties.decode()) for record in records] == expected
    assert results[4].message_id == "own id"
    assert len({result.message_id for result in results}) == 5
    assert [result.queue_offset for result in results] == [100, 101, 102, 103, 104]


async def test_properties_that_do_not_fit_are_refused_and_leave_nothing_behind() -> None:
    accumulator = Accumulator()
    lane = make_lane(Broker(), accumulator)
    for length in (32_730, 32_767):  # the unique id does not fit any more, and not even the property
        with pytest.raises(MessageError, match="longer than 32767 bytes"):
            lane.add(Message("t", b"x", properties={"a": "x" * length}), None)
    assert (accumulator.held_bytes, accumulator.open_batches) == (0, 0)


async def test_properties_that_hardly_fit_do_not_spoil_a_batch() -> None:
    lane = make_lane(Broker())
    neighbour = add(lane, Message("t", b"x"))
    assert lane.add(Message("t", b"x", keys=("k" * 32_000,)), None) is None
    lane.flush()
    assert (await neighbour).queue_offset == 100


LONG_TEXT = b"again and again " * 300


async def test_on_a_topic_of_single_messages_long_ones_are_compressed_one_by_one() -> None:
    broker = Broker()
    broker.kinds.answered("t", whole=False)
    lane = make_lane(broker, compress_batches=True)
    noise = os.urandom(len(LONG_TEXT))
    futures = [add(lane, Message("t", body)) for body in (LONG_TEXT, b"short", LONG_TEXT, noise)]
    await lane.leave(5)
    await asyncio.gather(*futures)
    found = {(outgoing.sys_flag, record.body) for outgoing in broker.sent for record in decode_batch(outgoing.body)}
    assert found == {(0x301, zlib.compress(LONG_TEXT, 5)), (0, b"short"), (0, noise)}


@pytest.mark.parametrize("whole", [None, True])
async def test_on_other_topics_they_are_left_to_the_compression_of_the_batch(whole: bool | None) -> None:
    broker = Broker()
    if whole is not None:
        broker.kinds.answered("t", whole=whole)
    lane = make_lane(broker, compress_batches=True)
    futures = [add(lane, Message("t", LONG_TEXT)) for _ in range(2)]
    await lane.leave(5)
    await asyncio.gather(*futures)
    [outgoing] = broker.sent
    assert outgoing.sys_flag == 0
    assert [record.body for record in decode_batch(outgoing.body)] == [LONG_TEXT] * 2


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "stored whole"])
async def test_compressed_messages_for_a_topic_that_changed_its_type_go_one_by_one(refuses: bool) -> None:
    broker = Broker()
    broker.kinds.answered("t", whole=False)

    def answer(outgoing: Outgoing) -> Exception | None:
        if outgoing.code != RequestCode.SEND_BATCH_MESSAGE:
            return None
        if refuses:
            return ServerError(ResponseCode.MESSAGE_ILLEGAL, "the batch is compressed, it says", "broker")
        broker.whole = True
        return None

    broker.error = answer
    lane = make_lane(broker, compress_batches=True)
    futures = [add(lane, Message("t", LONG_TEXT)) for _ in range(2)]
    await lane.leave(5)
    await asyncio.gather(*futures)
    singles = broker.sent[1:]
    assert [(outgoing.code, outgoing.sys_flag) for outgoing in singles] == [(RequestCode.SEND_MESSAGE_V2, 0x301)] * 2
    assert {zlib.decompress(outgoing.body) for outgoing in singles} == {LONG_TEXT}
    assert len({future.result().message_id for future in futures}) == 2
