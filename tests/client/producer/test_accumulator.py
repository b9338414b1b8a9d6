"""AutoBatch: which messages share a batch, and when a batch is sent."""

from __future__ import annotations

import asyncio
import os
import zlib

import pytest

from raptormq.client.config import ProducerConfig
from raptormq.client.message.send_request import MAX_KEYS_CHARS
from raptormq.client.producer.accumulator import Accumulator, BatchQueue
from raptormq.client.producer.send_room import InLine, SendRoom
from raptormq.client.results import SendResult
from raptormq.errors import ClientClosed, MessageError
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.message import Delay, Message, MessageQueue
from raptormq.protocol.properties import decode_properties
from tests.client.batch_queues import LONG_MS, LONG_TEXT, QUEUE, Broker, add, make_batch_queue
from tests.client.eventually import eventually


async def test_messages_leave_together_and_each_sender_gets_its_own_place() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"%d" % n, "A", (f"k{n}",), {"n": str(n)}, flag=n)) for n in range(3)]
    batch_queue.flush()
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
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"x")) for _ in range(3)]
    batch_queue.flush()
    results = await asyncio.gather(*futures)
    assert [result.offset_message_id for result in results] == ["offset-0"] * 3
    assert [result.queue_offset for result in results] == [100, 101, 102]
    assert len({result.message_id for result in results}) == 3


async def test_topic_queue_tag_and_wait_flag_keep_batches_apart() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker)
    other = MessageQueue("t", "b", 4)
    kinds: list[tuple[Message, MessageQueue | None]] = [
        (Message("t", b"x"), None),
        (Message("u", b"x"), None),
        (Message("t", b"x", "A"), None),
        (Message("t", b"x", wait_stored=False), None),
        (Message("t", b"x"), QUEUE),
        (Message("t", b"x"), other),
    ]
    futures = [add(batch_queue, message, queue) for message, queue in kinds * 2]
    batch_queue.flush()
    await asyncio.gather(*futures)
    assert len(broker.sent) == len(kinds)
    assert all(len(decode_batch(outgoing.body)) == 2 for outgoing in broker.sent)
    assert broker.queues == [None, None, None, None, QUEUE, other]


async def test_a_full_batch_leaves_at_once() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker, batch_max_bytes=1000)
    futures = [add(batch_queue, Message("t", b"x" * 300)) for _ in range(3)]
    await asyncio.gather(*futures)
    assert len(broker.sent) == 1


async def test_an_old_batch_leaves_and_a_message_without_company_is_sent_as_a_single_one() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker, batch_max_delay_ms=1)
    result = await add(batch_queue, Message("t", b"x", "A"))
    assert [outgoing.code for outgoing in broker.sent] == [RequestCode.SEND_MESSAGE_V2]
    assert decode_properties(broker.sent[0].properties)["UNIQ_KEY"] == result.message_id
    assert result.queue_offset == 100


async def test_batches_of_an_idle_queue_leave_long_before_their_delay() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker, batch_max_delay_ms=LONG_MS)
    futures = [add(batch_queue, Message("t", b"%d" % number, tag)) for tag in "AB" for number in range(2)]
    batch_queue._look_whether_idle()
    assert len(batch_queue._open) == 2  # messages were added since the last check
    batch_queue._look_whether_idle()
    await asyncio.gather(*futures)
    assert [[record.body for record in decode_batch(sent.body)] for sent in broker.sent] == [[b"0", b"1"]] * 2
    assert batch_queue._idle_look is None


async def test_an_open_batch_stays_while_another_one_has_no_answer() -> None:
    broker = Broker()
    broker.silent = True
    batch_queue = make_batch_queue(broker, batch_max_bytes=1000)
    full = [add(batch_queue, Message("t", b"x" * 600)) for _ in range(2)]
    await eventually(lambda: len(broker.sent) == 1)
    rest = add(batch_queue, Message("t", b"rest"))
    for _ in range(3):
        batch_queue._look_whether_idle()
    assert len(batch_queue._open) == 1
    broker.speaks.set()
    await asyncio.gather(*full)
    await eventually(lambda: not batch_queue._sends)
    for _ in range(2):
        batch_queue._look_whether_idle()
    await rest
    assert len(broker.sent) == 2


async def test_a_queue_that_becomes_idle_sends_by_its_own_timer() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker, batch_max_delay_ms=LONG_MS)
    async with asyncio.timeout(LONG_MS / 2000):  # before the delay of the batch
        await add(batch_queue, Message("t", b"x"))


async def test_what_may_not_be_merged_goes_by_itself() -> None:
    batch_queue = make_batch_queue(Broker(), batch_max_bytes=1000)
    assert batch_queue.add(Message("%RETRY%g", b"x"), None) is None
    assert batch_queue.add(Message("%DLQ%g", b"x"), None) is None
    assert batch_queue.add(Message("t", b"x", properties={"DELAY": "3"}), None) is None
    assert batch_queue.add(Message("t", b"x", properties={"TIMER_DELAY_MS": "3000"}), None) is None
    assert batch_queue.add(Message("t", b"x", delay=Delay.by(3)), None) is None
    assert batch_queue.add(Message("t", b"x", properties={"__SHARDINGKEY": "k"}), None) is None
    assert batch_queue.add(Message("t", b"x" * 1000), None) is None
    assert batch_queue.add(Message("t", b"x" * 999), None) is not None
    assert batch_queue.add(Message("t", b"x", properties={"__SHARDINGKEY": "k"}), QUEUE) is not None


async def test_a_message_that_breaks_a_rule_is_refused_and_leaves_nothing_behind() -> None:
    accumulator = Accumulator(SendRoom())
    batch_queue = make_batch_queue(Broker(), accumulator)
    with pytest.raises(MessageError):
        batch_queue.add(Message("no topic", b"x"), None)
    with pytest.raises(MessageError):
        batch_queue.add(Message("t", b"x", properties={"a": "\x01"}), None)
    assert (accumulator.held_bytes, accumulator.open_groups) == (0, 0)


async def test_the_limits_hold_over_all_producers_of_a_client() -> None:
    broker, accumulator = Broker(), Accumulator(SendRoom())
    first = make_batch_queue(broker, accumulator, total_batch_max_bytes=500, max_open_batches=2)
    second = make_batch_queue(broker, accumulator, total_batch_max_bytes=500, max_open_batches=2, retries=1)
    futures = [add(first, Message("t", b"x")), add(second, Message("t", b"x"))]
    assert second.add(Message("u", b"x"), None) is None
    assert second is not first
    futures.append(add(second, Message("t", b"x" * 400)))
    assert first.add(Message("t", b"x"), None) is None
    await first.release(5)
    await second.release(5)
    await asyncio.gather(*futures)
    assert (accumulator.held_bytes, accumulator.open_groups) == (0, 0)


class Waiting(InLine):
    """A sender in line."""

    __slots__ = ("ended",)
    size = 1

    def end(self, error: BaseException | None) -> None:
        self.ended = error


async def test_open_batches_that_reach_the_limits_are_sent_when_a_sender_waits_and_no_batch_is_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BatchQueue, "_look_whether_idle", lambda _self: None)
    broker, room = Broker(), SendRoom()
    accumulator = Accumulator(room)
    limits = ProducerConfig(max_in_flight_messages=2)
    batch_queue = make_batch_queue(broker, accumulator)
    first = [add(batch_queue, Message("t", b"x")) for _ in range(2)]
    broker.silent = True
    room.join(Waiting(limits, 60.0))
    await eventually(lambda: len(broker.sent) == 1)

    second = add(make_batch_queue(broker, accumulator, retries=7), Message("t", b"x"))  # another producer
    room.join(Waiting(limits, 60.0))
    await asyncio.sleep(0)  # the line is looked at in the next iteration of the event loop
    await asyncio.sleep(0)
    assert accumulator.open_groups == 1  # the response to the first batch makes room
    broker.speaks.set()
    await asyncio.gather(*first)
    room.enter(9, 0)  # single messages
    room.join(Waiting(limits, 60.0))
    await second
    assert len(broker.sent) == 2


async def test_united_keys_stay_within_the_properties_of_a_request() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker, batch_max_bytes=2 * 1024 * 1024)
    futures = [add(batch_queue, Message("t", b"x", keys=(f"{n:0500d}",))) for n in range(20)]
    batch_queue.flush()
    await asyncio.gather(*futures)
    assert len(broker.sent) == 3
    for outgoing in broker.sent:
        assert len(decode_properties(outgoing.properties)["KEYS"]) <= MAX_KEYS_CHARS


async def test_callbacks_of_what_has_no_answer_are_completed_when_the_producer_closes() -> None:
    broker, told = Broker(), list[SendResult | BaseException]()
    broker.silent = True
    batch_queue = make_batch_queue(broker)
    for _ in range(2):
        batch_queue.add(Message("t", b"x"), None, told.append)
    await batch_queue.release(0.01)
    assert [type(outcome) for outcome in told] == [ClientClosed] * 2
    assert all(isinstance(outcome, ClientClosed) and outcome.may_be_stored for outcome in told)


async def test_leaving_sends_what_waits() -> None:
    broker, accumulator = Broker(), Accumulator(SendRoom())
    batch_queue = make_batch_queue(broker, accumulator)
    assert make_batch_queue(broker, accumulator) is batch_queue  # the second producer of the same group
    future = add(batch_queue, Message("t", b"x"))
    await batch_queue.release(5)
    assert future.done()
    await batch_queue.release(5)
    assert make_batch_queue(broker, accumulator) is not batch_queue


async def test_leaving_does_not_wait_for_ever_and_leaves_no_sender_behind() -> None:
    broker = Broker()
    broker.silent = True
    batch_queue = make_batch_queue(broker)
    futures = [add(batch_queue, Message("t", b"x")) for _ in range(2)]
    await batch_queue.release(0.01)
    for future in futures:
        with pytest.raises(ClientClosed):
            await future


def shared_batch_queue() -> tuple[Broker, BatchQueue]:
    """An unresponsive broker, and the batch queue of two producers that send to it."""
    broker, accumulator = Broker(), Accumulator(SendRoom())
    broker.silent = True
    make_batch_queue(broker, accumulator)
    return broker, make_batch_queue(broker, accumulator)


async def test_who_closes_first_ends_nothing_of_one_who_closes_later_and_still_waits() -> None:
    broker, batch_queue = shared_batch_queue()
    of_first = add(batch_queue, Message("t", b"x"))
    first = asyncio.create_task(batch_queue.release(0.05))
    await eventually(lambda: len(broker.sent) == 1)
    of_second = add(batch_queue, Message("t", b"x"))
    second = asyncio.create_task(batch_queue.release(60))
    await first
    assert not of_second.done()
    assert not of_first.done()  # the second one may have messages in the same batch
    broker.speaks.set()
    await second
    assert [future.result().queue_offset for future in (of_first, of_second)] == [100, 100]


async def test_who_closes_last_ends_its_own_and_nothing_that_another_one_still_waits_for() -> None:
    broker, batch_queue = shared_batch_queue()
    of_first = add(batch_queue, Message("t", b"x"))
    first = asyncio.create_task(batch_queue.release(60))
    await eventually(lambda: len(broker.sent) == 1)
    of_second = add(batch_queue, Message("t", b"x"))
    await batch_queue.release(0.01)
    with pytest.raises(ClientClosed):
        await of_second
    assert not of_first.done()
    broker.speaks.set()
    await first
    assert of_first.result().queue_offset == 100


async def test_a_batch_that_an_open_producer_shares_outlives_the_close_of_the_other_one() -> None:
    broker, batch_queue = shared_batch_queue()
    futures = [add(batch_queue, Message("t", b"x")) for _ in range(2)]
    await batch_queue.release(0.01)
    assert len(broker.sent) == 1
    assert not any(future.done() for future in futures)
    await batch_queue.release(0.01)
    for future in futures:
        with pytest.raises(ClientClosed):
            await future


async def test_one_whose_close_is_given_up_waits_for_nothing_any_more() -> None:
    broker, batch_queue = shared_batch_queue()
    future = add(batch_queue, Message("t", b"x"))
    first = asyncio.create_task(batch_queue.release(60))
    await eventually(lambda: len(broker.sent) == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not future.done()  # the second one may have messages in the same batch
    await batch_queue.release(0.01)
    assert isinstance(future.exception(), ClientClosed)


async def test_when_the_close_of_the_last_one_is_given_up_nothing_stays_pending() -> None:
    broker, batch_queue = shared_batch_queue()
    futures = [add(batch_queue, Message("t", b"x", tag)) for tag in "AB"]
    both = [asyncio.create_task(batch_queue.release(60)) for _ in range(2)]
    await eventually(lambda: len(broker.sent) == 2)
    both[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await both[1]
    assert len(batch_queue._sends) == 2  # the first one still waits
    both[0].cancel()
    await eventually(lambda: not batch_queue._sends)
    assert all(isinstance(future.exception(), ClientClosed) for future in futures)
    assert batch_queue._shared.held_bytes == 0


async def test_a_batch_queue_released_by_its_last_producer_gets_no_other_one() -> None:
    broker, accumulator = Broker(), Accumulator(SendRoom())
    broker.silent = True
    batch_queue = make_batch_queue(broker, accumulator)
    future = add(batch_queue, Message("t", b"x"))
    leaving = asyncio.create_task(batch_queue.release(60))
    await eventually(lambda: len(broker.sent) == 1)
    assert make_batch_queue(broker, accumulator) is not batch_queue
    broker.speaks.set()
    await leaving
    assert future.done()


async def test_plain_and_special_messages_share_a_batch_in_their_order() -> None:
    broker = Broker()
    batch_queue = make_batch_queue(broker)
    sent = [
        Message("t", b"same"),
        Message("t", b"flagged", flag=7),
        Message("t", b"size"),
        Message("t", b"other length", keys=("k",)),
        Message("t", b"", properties={"UNIQ_KEY": "own id", "colour": "grün"}),
    ]
    futures = [add(batch_queue, message) for message in sent]
    gave_up = add(batch_queue, Message("t", b"gave up", keys=("gone",)))
    gave_up.cancel()
    await batch_queue.release(5)
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
    accumulator = Accumulator(SendRoom())
    batch_queue = make_batch_queue(Broker(), accumulator)
    for length in (32_730, 32_767):  # neither the unique id nor the property fits
        with pytest.raises(MessageError, match="longer than 32767 bytes"):
            batch_queue.add(Message("t", b"x", properties={"a": "x" * length}), None)
    assert (accumulator.held_bytes, accumulator.open_groups) == (0, 0)


async def test_properties_that_hardly_fit_do_not_spoil_a_batch() -> None:
    batch_queue = make_batch_queue(Broker())
    neighbour = add(batch_queue, Message("t", b"x"))
    assert batch_queue.add(Message("t", b"x", keys=("k" * 32_000,)), None) is None
    batch_queue.flush()
    assert (await neighbour).queue_offset == 100


async def test_a_tag_that_leaves_little_room_for_keys_makes_no_batch() -> None:
    """The batch has the common tag, and the keys of all its messages."""
    batch_queue = make_batch_queue(Broker())
    assert batch_queue.add(Message("t", b"x", tags="\u4e2d" * 2049), None) is None
    future = add(batch_queue, Message("t", b"x", tags="\u4e2d" * 2048, keys=("\U0001f600" * 4095,)))
    await batch_queue.release(5)
    assert (await future).queue_offset == 100


async def test_on_a_topic_of_single_messages_long_ones_are_compressed_one_by_one() -> None:
    broker = Broker()
    broker.kinds.note_answer("t", "b", whole=False)
    batch_queue = make_batch_queue(broker, compress_batches=True)
    noise = os.urandom(len(LONG_TEXT))
    futures = [add(batch_queue, Message("t", body)) for body in (LONG_TEXT, b"short", LONG_TEXT, noise)]
    await batch_queue.release(5)
    await asyncio.gather(*futures)
    found = {(outgoing.sys_flag, record.body) for outgoing in broker.sent for record in decode_batch(outgoing.body)}
    assert found == {(0x301, zlib.compress(LONG_TEXT, 5)), (0, b"short"), (0, noise)}


@pytest.mark.parametrize("whole", [None, True])
async def test_on_other_topics_they_are_left_to_the_compression_of_the_batch(whole: bool | None) -> None:
    broker = Broker()
    if whole is not None:
        broker.kinds.note_answer("t", "b", whole=whole)
    batch_queue = make_batch_queue(broker, compress_batches=True)
    futures = [add(batch_queue, Message("t", LONG_TEXT)) for _ in range(2)]
    await batch_queue.release(5)
    await asyncio.gather(*futures)
    [outgoing] = broker.sent
    assert outgoing.sys_flag == 0
    assert [record.body for record in decode_batch(outgoing.body)] == [LONG_TEXT] * 2
