"""Sends that wait for the limits: one deadline, cancellation, errors, and the end of the producer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from raptormq.client import ClientConfig, Message, Producer, ProducerConfig, ProducerInterceptor, SendResult
from raptormq.client.producer import producer as producer_module
from raptormq.client.producer.accumulator import Accumulator, BatchQueue
from raptormq.client.producer.send_room import InLine, SendRoom
from raptormq.errors import ClientClosed, MessageError, RequestTimeout
from raptormq.protocol.batch import decode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.compression import Compression, compress
from tests.client.batch_queues import Broker, make_batch_queue
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.scripted_peer import ScriptedPeer, route, silence

MESSAGE = Message("t", b"x")
NO_MESSAGE = cast("Message", None)
MODES = pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto batch"])


class Told:
    """A callback that notes its outcome."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.outcome: asyncio.Future[SendResult | BaseException] = asyncio.get_running_loop().create_future()
        self._then = then

    def __call__(self, outcome: SendResult | BaseException) -> None:
        self.outcome.set_result(outcome)
        self._then()


async def result_of(outcome: asyncio.Future[SendResult | BaseException]) -> object:
    found = await outcome
    if isinstance(found, BaseException):
        raise found
    return found


def with_callback(producer: Producer, message: Message) -> Coroutine[Any, Any, object]:
    told = Told()
    producer.send_with_callback(message, told)
    return result_of(told.outcome)


async def submitted(producer: Producer, message: Message) -> object:
    return await producer.submit(message)


WAYS: dict[str, Callable[[Producer, Message], Coroutine[Any, Any, object]]] = {
    "send": lambda producer, message: producer.send(message),
    "send with a key": lambda producer, message: producer.send(message, key="k"),
    "send with a timeout": lambda producer, message: producer.send(message, timeout=4.0),
    "send_batch": lambda producer, message: producer.send_batch([message]),
    "send_batch with a key": lambda producer, message: producer.send_batch([message], key="k"),
    "submit": submitted,
    "callback": with_callback,
}


@MODES
@pytest.mark.parametrize("interceptors", [[], [ProducerInterceptor()]], ids=["", "intercepted"])
async def test_one_deadline_covers_the_wait_and_the_send(
    auto_batch: bool, interceptors: list[ProducerInterceptor]
) -> None:
    async with ScriptedPeer() as peer:
        peer.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route(1, peer))
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_QUEUE_BATCHES):
            peer.on(code, silence)
        settings = ProducerConfig(
            auto_batch=auto_batch, max_in_flight_messages=100, send_timeout=4.0, interceptors=interceptors
        )
        async with Producer("p", name_servers=peer.address, config=settings) as producer:
            await producer.queues("t")
            clock, room = asyncio.get_running_loop().time, producer._room
            room.enter(100, 0)  # another producer of the client
            began, took = clock(), dict[str, float]()

            async def fail(name: str, way: str) -> None:
                with pytest.raises(RequestTimeout) as caught:
                    await WAYS[way](producer, MESSAGE)
                assert caught.value.may_be_stored
                took[name] = clock() - began

            sends = [asyncio.create_task(fail(way, way)) for way in WAYS]
            await eventually(lambda: len(room.line) == len(WAYS))
            await eventually(lambda: clock() - began >= 2.0)
            # A send with the whole timeout from now on ends last, however slow the machine is.
            fresh = asyncio.create_task(fail("fresh", "send"))
            await eventually(lambda: len(room.line) == len(WAYS) + 1)
            room.leave(100, 0)
            await asyncio.gather(*sends)
            assert {way: seconds for way, seconds in took.items() if seconds < 3.9} == {}
            assert "fresh" not in took
            fresh.cancel()
            await asyncio.wait([fresh])
    assert (room.messages, room.bytes, len(room.line)) == (0, 0, 0)


@pytest.mark.parametrize("limit", [{"max_in_flight_messages": 2}, {"max_in_flight_bytes": 500}], ids=["count", "bytes"])
@pytest.mark.parametrize("way", ["send", "send with a timeout", "send_batch", "submit", "callback"])
async def test_a_batch_that_has_reached_the_limits_alone_does_not_wait_for_its_delay(
    tmp_path: Path, limit: dict[str, int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchQueue, "_look_whether_idle", lambda _self: None)
    began = asyncio.get_running_loop().time()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(auto_batch=True, batch_max_delay_ms=30_000, send_timeout=60.0, **cast("Any", limit))
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            merged = [producer.submit(Message("t", bytes(200))) for _ in range(2)]
            waiting = asyncio.create_task(WAYS[way](producer, Message("t", bytes(200))))
            await asyncio.gather(*merged)
            waiting.cancel()
    assert asyncio.get_running_loop().time() - began < 30


class CountedTimers:
    """The event loop; it counts the timers that are set with `call_at`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: set[asyncio.TimerHandle] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_at(self, when: float, call: Callable[..., object], *values: object) -> asyncio.TimerHandle:
        def run() -> None:
            self._pending.discard(handle)
            call(*values)

        handle = self._loop.call_at(when, run)
        self._pending.add(handle)
        return handle

    def count(self) -> int:
        return sum(not handle.cancelled() for handle in self._pending)


def make_shared_queue(broker: Broker) -> tuple[Accumulator, BatchQueue]:
    accumulator = Accumulator(SendRoom())
    return accumulator, make_batch_queue(broker, accumulator)


async def test_a_late_message_of_a_sent_batch_fails_alone() -> None:
    broker = Broker()
    broker.silent = True
    accumulator, batch_queue = make_shared_queue(broker)
    clock = asyncio.get_running_loop().time
    late = asyncio.get_running_loop().create_future()
    fresh = batch_queue.add(Message("t", b"fresh"), None)
    batch_queue.add(Message("t", b"late"), None, late, clock() + 0.2)
    after = batch_queue.add(Message("t", b"after"), None)
    batch_queue.flush()
    with pytest.raises(RequestTimeout, match="may have been stored") as caught:
        await late
    assert caught.value.may_be_stored
    assert broker.timeouts == [pytest.approx(ProducerConfig().send_timeout, abs=0.1)]
    broker.speaks.set()
    assert fresh is not None
    assert after is not None
    assert [(await fresh).queue_offset, (await after).queue_offset] == [100, 102]
    await eventually(lambda: accumulator.held_bytes == 0)
    assert (accumulator.room.messages, accumulator.room.bytes) == (0, 0)


async def test_late_messages_of_an_open_batch_are_not_sent() -> None:
    broker = Broker()
    accumulator, batch_queue = make_shared_queue(broker)
    timers: Any = CountedTimers()
    batch_queue.loop = timers
    clock = asyncio.get_running_loop().time
    again = list[asyncio.Future[SendResult] | None]()

    def add_again() -> None:
        again.append(batch_queue.add(Message("t", b"again"), None))

    lates = [Told(add_again) for _ in range(3)]
    later = Told()
    batch_queue.add(Message("t", b"later"), None, later, clock() + 3600)
    for late in lates:
        batch_queue.add(Message("t", b"late"), None, late, clock() + 0.1)
    assert timers.count() == 1
    for late in lates:
        with pytest.raises(RequestTimeout, match="was not sent") as caught:
            await result_of(late.outcome)
        assert not caught.value.may_be_stored
    assert len(again) == 3
    batch_queue.flush()
    for added in again:
        assert added is not None
        await added
    assert isinstance(await later.outcome, SendResult)
    [outgoing] = broker.sent
    assert [record.body for record in decode_batch(outgoing.body)] == [b"later", b"again", b"again", b"again"]
    await eventually(lambda: accumulator.held_bytes == 0)
    assert (accumulator.room.messages, accumulator.room.bytes) == (0, 0)
    assert timers.count() == 0


async def test_senders_that_wait_again_have_one_timer() -> None:
    room, config, ended = SendRoom(), ProducerConfig(max_in_flight_messages=1), asyncio.Event()
    timers: Any = CountedTimers()
    room._loop = timers
    room.enter(1, 1)
    most = refused = 0

    class Again(InLine):
        size = 1

        def __init__(self, rounds: int, timeout: float) -> None:
            super().__init__(config, timeout)
            self.rounds = rounds

        def end(self, error: BaseException | None) -> None:
            nonlocal most, refused
            assert isinstance(error, RequestTimeout)
            refused += 1
            if self.rounds:
                room.join(Again(self.rounds - 1, self.timeout))
            elif refused == 1200:
                ended.set()
            most = max(most, timers.count())

    for number in range(300):
        room.join(Again(3, 0.02 * (number % 7)))
    await ended.wait()
    assert refused == 1200
    assert most == 1


@MODES
@pytest.mark.parametrize("way", ["submit", "callback"])
async def test_an_unexpected_error_after_the_wait_is_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto_batch: bool, way: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(auto_batch=auto_batch, max_in_flight_messages=1)
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            await producer.send(MESSAGE)
            producer._room.enter(1, 1)  # another producer of the client
            sending = [asyncio.create_task(WAYS[way](producer, MESSAGE)) for _ in range(3)]
            await eventually(lambda: len(producer._room.line) == 3)
            with monkeypatch.context() as patched:
                patched.setattr(BatchQueue, "add", fail)
                patched.setattr(producer_module, "prepare_message", fail)
                producer._room.leave(1, 1)
                assert [type(each) for each in await asyncio.gather(*sending, return_exceptions=True)] == [
                    MemoryError
                ] * 3
            assert (producer._room.messages, producer._room.bytes, producer.describe().waiting_messages) == (0, 0, 0)
            await producer.send(MESSAGE)


class Tracked(Message):
    """A message that can be found in memory."""


def tracked_messages() -> int:
    gc.collect()
    return sum(type(each) is Tracked for each in gc.get_objects())


@MODES
@pytest.mark.parametrize("way", ["send", "send with a key", "submit"])
async def test_a_cancelled_send_frees_its_message_and_its_place(tmp_path: Path, auto_batch: bool, way: str) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=60)
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            producer._room.enter(1, 1)  # another producer of the client
            first = asyncio.create_task(producer.send(Message("t", b"first")))
            await asyncio.sleep(0)
            cancelled = [asyncio.create_task(WAYS[way](producer, Tracked("t", b"cancelled"))) for _ in range(5)]
            await asyncio.sleep(0)
            last = producer.submit(Message("t", b"last"))
            assert len(producer._room.line) == 7
            assert tracked_messages() >= 5
            for each in cancelled:
                each.cancel()
            await asyncio.wait(cancelled)
            await eventually(lambda: len(producer._room.line) == 2)  # the limits are still reached
            cancelled.clear()
            del each
            assert tracked_messages() == 0
            assert producer.describe().waiting_messages == 2
            producer._room.leave(1, 1)
            assert [(await first).queue_offset, (await last).queue_offset] == [0, 1]
            await eventually(lambda: (producer._room.messages, producer._room.bytes) == (0, 0))


@MODES
@pytest.mark.parametrize("way", [way for way in WAYS if "batch" not in way])
async def test_what_is_no_message_is_refused_while_the_line_is_full(tmp_path: Path, auto_batch: bool, way: str) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=60)
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            producer._room.enter(1, 1)  # another producer of the client
            waiting = producer.submit(MESSAGE)
            with pytest.raises(MessageError, match="expected a Message, not NoneType"):
                await WAYS[way](producer, NO_MESSAGE)
            assert len(producer._room.line) == 1
            producer._room.leave(1, 1)
            assert (await waiting).queue_offset == 0


@MODES
@pytest.mark.parametrize("way", [way for way in WAYS if "batch" not in way])
@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        (Message("no topic!", b"x"), "illegal characters"),
        (Message("t", bytes(40_001)), "larger than"),
        (Message("t", b"x", properties={"a": "\x01"}), "separators"),
        (Message("t", b"x", properties={"UNIQ_KEY": "\x01"}), "separators"),
        (Message("t", b"x", wait_stored=cast("bool", "yes")), "wait_stored"),
    ],
    ids=["topic", "size", "property", "id", "field"],
)
async def test_an_invalid_message_is_refused_before_it_waits(
    tmp_path: Path, auto_batch: bool, way: str, invalid: Message, reason: str
) -> None:
    settings = ProducerConfig(
        auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=0.2, max_message_bytes=40_000
    )
    async with Producer("p", config=settings) as producer:
        producer._room.enter(1, 1)  # another producer of the client
        with pytest.raises(MessageError, match=reason):
            await WAYS[way](producer, invalid)
        assert not producer._room.line
        producer._room.leave(1, 1)


@MODES
@pytest.mark.parametrize("way", [way for way in WAYS if "batch" not in way])
async def test_a_message_that_waits_is_compressed_once(
    tmp_path: Path, auto_batch: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed: list[int] = []

    def counted(body: bytes, kind: Compression) -> tuple[bytes, int]:
        compressed.append(len(body))
        return compress(body, kind)

    monkeypatch.setattr("raptormq.client.message.send_request.compress", counted)
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        settings = ProducerConfig(
            auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=60, compress_over_bytes=1000
        )
        async with Producer("p", name_servers=cluster.name_servers, config=settings) as producer:
            producer._room.enter(1, 1)  # another producer of the client
            sending = asyncio.create_task(WAYS[way](producer, Message("t", bytes(100_000))))
            await eventually(lambda: len(producer._room.line) == 1)
            producer._room.leave(1, 1)
            await sending
    assert compressed == [100_000]


@MODES
async def test_submitted_messages_that_wait_can_be_awaited_together(tmp_path: Path, auto_batch: bool) -> None:
    """`asyncio.wait` refuses coroutines, whether or not the limits are reached."""
    async with (
        Cluster(tmp_path) as cluster,
        Producer("g", name_servers=cluster.name_servers, auto_batch=auto_batch, max_in_flight_messages=1) as producer,
    ):
        done, _ = await asyncio.wait([producer.submit(MESSAGE) for _ in range(3)])
        assert [type(outcome.result()) for outcome in done] == [SendResult] * 3


@MODES
async def test_calls_that_wait_end_when_their_producer_is_closed(tmp_path: Path, auto_batch: bool) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        clients = ClientConfig(name_servers=cluster.name_servers)
        settings = ProducerConfig(auto_batch=auto_batch, max_in_flight_messages=1, send_timeout=3600)
        async with Producer("other", client_config=clients) as other:
            await other.send(MESSAGE)
            room = other._room
            room.enter(1, 1)
            async with Producer("p", client_config=clients, config=settings) as producer:
                ways = ("send", "send with a key", "send_batch", "send_batch with a key")
                calls = [asyncio.create_task(WAYS[way](producer, MESSAGE)) for way in ways for _ in range(200)]
                await eventually(lambda: len(room.line) == len(calls))
                assert producer.describe().waiting_messages == len(calls)
            assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {ClientClosed}
            assert (room.messages, len(room.line)) == (1, 0)
            room.leave(1, 1)
            await other.send(MESSAGE)
