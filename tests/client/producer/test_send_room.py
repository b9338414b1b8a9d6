"""Back-pressure of producers by the limits of messages and bytes in flight, in the configured way."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from raptormq.client import ClientConfig, Message, Producer, ProducerConfig, SendResult, WhenFull
from raptormq.client.producer.send_room import GRANTED_PER_TURN, InLine, SendRoom
from raptormq.errors import Backpressure, ClientClosed, MessageError, RequestTimeout
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

SMALL = ProducerConfig(max_in_flight_messages=4, max_in_flight_bytes=100)


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
async def test_no_more_is_in_flight_than_may_be_and_everything_arrives(tmp_path: Path, auto_batch: bool) -> None:
    most, told = 0, list[SendResult | BaseException]()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        settings = ProducerConfig(max_in_flight_messages=4, auto_batch=auto_batch)
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, producer._room.messages)
                    await asyncio.sleep(0)

            watching = asyncio.create_task(watch())
            for number in range(20):
                producer.send_with_callback(Message("t", b"c%d" % number), told.append)
            submitted = [producer.submit(Message("t", b"s%d" % number)) for number in range(20)]
            sent = await asyncio.gather(*(producer.send(Message("t", b"a%d" % number)) for number in range(20)))
            results = [*sent, *await asyncio.gather(*submitted)]
            await eventually(lambda: len(told) == 20)
            watching.cancel()
            places = {
                (result.queue, result.queue_offset) for result in [*results, *told] if isinstance(result, SendResult)
            }
            assert len(places) == 60
            assert 0 < most <= 4
            assert (producer._room.messages, producer._room.bytes) == (0, 0)


async def test_who_does_not_want_to_wait_is_told_at_once(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(max_in_flight_messages=2, when_full=WhenFull.RAISE)
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            submitted = [producer.submit(Message("t", b"x")) for _ in range(2)]
            with pytest.raises(Backpressure, match="2 messages with 2 bytes are in flight") as caught:
                producer.submit(Message("t", b"x"))
            assert caught.value.retriable
            with pytest.raises(Backpressure):
                producer.send_with_callback(Message("t", b"x"), print)
            with pytest.raises(MessageError):
                producer.submit(Message("not a topic!", b"x"))
            await producer.send(Message("t", b"waits"))
            await asyncio.gather(*submitted)
            await producer.submit(Message("t", b"x"))


@pytest.mark.parametrize(
    ("auto_batch", "delay_ms"), [(False, 10), (True, 10), (True, 30_000)], ids=["single", "auto batch", "slow batch"]
)
async def test_what_waits_for_room_is_sent_before_the_producer_closes(
    tmp_path: Path, auto_batch: bool, delay_ms: float
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(
            max_in_flight_messages=2, auto_batch=auto_batch, batch_max_delay_ms=delay_ms, send_timeout=60
        )
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            submitted = [producer.submit(Message("t", b"x")) for _ in range(10)]
        assert sorted([done.result().queue_offset for done in submitted]) == list(range(10))


async def test_a_message_that_finds_no_room_in_time_was_not_sent(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        clients = ClientConfig(cluster.name_servers)
        settings = ProducerConfig(max_in_flight_messages=1, send_timeout=0.2)
        async with (
            Producer("p", client_config=clients, config=settings) as producer,
            Producer("other", client_config=clients) as other,
        ):
            await other.send(Message("t", b"first"), timeout=60)
            assert other._room is producer._room
            producer._room.enter(1, 1)  # another producer of the client, whose broker does not respond
            submitted = producer.submit(Message("t", b"x"))
            for waiting in (submitted, producer.send(Message("t", b"x")), producer.send_batch([Message("t", b"x")])):
                with pytest.raises(RequestTimeout, match=r"not sent: it waited 0\.2 s behind others in flight"):
                    await waiting
            late = producer.submit(Message("t", b"late"))
            late.cancel()
            producer._room.leave(1, 1)
            assert (await other.send(Message("t", b"second"), timeout=60)).queue_offset == 1


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_is_cancelled_or_late_the_room_holds(seed: int) -> None:
    dice = random.Random(seed)
    room, most, timed_out = SendRoom(), 0, 0
    waiting = set[asyncio.Future[None]]()

    async def use() -> None:
        nonlocal most, timed_out
        size = dice.randint(1, 60)
        if room.is_full(SMALL, size):
            try:
                await room.wait(SMALL, size, dice.choice([0.0, 60.0]), waiting)
            except RequestTimeout:
                timed_out += 1
                return
        room.enter(1, size)
        try:
            most = max(most, room.messages)
            assert room.bytes <= 100
            for _ in range(dice.randint(0, 3)):
                await asyncio.sleep(0)
        finally:
            room.leave(1, size)

    tasks = [asyncio.create_task(use()) for _ in range(200)]
    while any(not task.done() for task in tasks):
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [each for each in results if isinstance(each, Exception)]
    assert (room.messages, room.bytes, len(room.line), len(waiting)) == (0, 0, 0, 0)
    assert 1 < most <= 4


async def test_those_inline_enter_in_turns() -> None:
    room, entered = SendRoom(), list[int]()
    config = ProducerConfig(max_in_flight_messages=10 * GRANTED_PER_TURN)
    room.enter(config.max_in_flight_messages, 0)

    class Numbered(InLine):
        size = 1

        def __init__(self, number: int) -> None:
            super().__init__(config, 60.0)
            self.number = number

        def end(self, _: BaseException | None) -> None:
            entered.append(self.number)

    for number in range(3 * GRANTED_PER_TURN):
        room.join(Numbered(number))
    room.leave(config.max_in_flight_messages, 0)
    before = 0
    while before < 3 * GRANTED_PER_TURN:
        await asyncio.sleep(0)
        assert len(entered) - before <= GRANTED_PER_TURN
        before = len(entered)
    assert entered == list(range(3 * GRANTED_PER_TURN))


def with_callback(producer: Producer, message: Message) -> None:
    producer.send_with_callback(message, ignore)


def ignore(_: SendResult | BaseException) -> None:
    pass


@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])
@pytest.mark.parametrize("send", [with_callback, Producer.submit, Producer.send], ids=["callback", "submit", "send"])
async def test_what_waits_takes_little_more_memory_than_its_bodies(
    tmp_path: Path, send: Callable[[Producer, Message], object], auto_batch: bool
) -> None:
    count = 5_000
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(max_in_flight_messages=1, auto_batch=auto_batch, send_timeout=60)
        producer = Producer("p", name_servers=cluster.name_servers, config=settings)
        async with producer:
            producer._room.enter(1, 1)  # another producer of the client, whose broker does not respond
            with_callback(producer, Message("t", b"x"))
            tracemalloc.start()
            waiting = [send(producer, Message("t", b"%d" % number)) for number in range(count)]
            taken, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert producer.describe().waiting_messages == count + 1
            for each in waiting:
                if isinstance(each, asyncio.Future):
                    each.cancel()
            producer._room.leave(1, 1)
    # 100,000 messages of 1 KiB may take half of their bodies and 50 MB besides these, which is 1,012 bytes each.
    assert taken / count < 800


async def test_who_is_late_does_not_enter_after_a_pause_of_the_loop() -> None:
    room, ends = SendRoom(), list[BaseException | None]()

    class Late(InLine):
        size = 1

        def end(self, error: BaseException | None) -> None:
            ends.append(error)

    room.enter(4, 0)
    for timeout in (0.0, 60.0):
        room.join(Late(SMALL, timeout))
    now = asyncio.get_running_loop().time()
    loop = Mock(wraps=asyncio.get_running_loop())
    loop.time.side_effect = lambda: now + 1.0
    room._loop = loop
    room.leave(4, 0)
    room._grant()
    late, in_time = ends
    assert isinstance(late, RequestTimeout)
    assert in_time is None


async def test_a_closed_producer_refuses() -> None:
    producer = Producer("p", name_servers="127.0.0.1:1")
    for call in (
        lambda: producer.submit(Message("t", b"x")),
        lambda: producer.send_with_callback(Message("t", b"x"), print),
    ):
        with pytest.raises(ClientClosed):
            call()
