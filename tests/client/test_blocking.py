"""The blocking client: the same results from threads, limited waits, and clean ends."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raptormq.client import (
    AdminClient,
    BlockingAdminClient,
    BlockingProducer,
    BlockingPullConsumer,
    ClientConfig,
    ClientTls,
    Message,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullStatus,
    SendResult,
    SendStatus,
)
from raptormq.client.blocking import LoopThread
from raptormq.client.cluster import ClientInstance
from raptormq.errors import ClientClosed, ClientError, ConfigError, NoRoute, RequestTimeout, TransportError
from tests.certificates import Authority
from tests.client.consumer.test_starting import drop
from tests.client.embedded_cluster import Cluster


@pytest.fixture
def name_servers(tmp_path: Path) -> Iterator[str]:
    """A cluster that runs in a thread."""
    thread = LoopThread("cluster")
    cluster = Cluster(tmp_path)
    thread.run(cluster.__aenter__(), 30)
    try:
        yield cluster.name_servers
    finally:
        thread.run(cluster.__aexit__(None, None, None), 30)
        thread.stop()


def test_a_submitted_message_may_be_changed(name_servers: str) -> None:
    with BlockingProducer("p", name_servers=name_servers) as producer:
        assert producer._thread is not None
        go_on = threading.Event()

        async def occupy() -> None:
            go_on.wait()

        occupied = producer._thread.submit(occupy())
        message = Message("t", b"old")
        submitted = producer.submit(message)
        message.body = b"new"
        go_on.set()
        result = submitted.result(10)
        occupied.result(10)
    with BlockingPullConsumer(name_servers=name_servers) as consumer:
        pulled = consumer.pull(result.queue, result.queue_offset, 1, suspend_ms=5000)
        assert [message.body for message in pulled.messages()] == [b"old"]


def test_from_topic_to_commit(name_servers: str) -> None:
    with BlockingAdminClient(name_servers=name_servers) as admin:
        admin.create_topic("t", 2, 2)
        assert "t" in admin.topics()
        route = admin.route("t")
        assert route is not None
        address = route.brokers[0].broker_addrs[0]
        config = admin.topic_config(address, "t")
        assert config is not None
        assert config.read_queue_nums == 2
        assert list(admin.cluster_info().brokers) == ["broker-0"]
        assert admin.runtime_info(address)["brokerVersionDesc"] == "V5_3_3"
    with BlockingProducer("p", name_servers=name_servers) as producer:
        queues = producer.queues("t")
        assert queues == [MessageQueue("t", "broker-0", 0), MessageQueue("t", "broker-0", 1)]
        assert producer.send(Message("t", b"one"), queue=queues[0]).status is SendStatus.SEND_OK
        assert producer.send_batch([Message("t", b"two"), Message("t", b"three")], queue=queues[0]).queue_offset == 1
        producer.send_oneway(Message("t", b"four"), queue=queues[0])
        assert producer.submit(Message("t", b"five"), queue=queues[1]).result(10).queue_offset == 0
        with pytest.raises(RequestTimeout):
            producer.request(Message("t", b"anybody?"), queue=queues[1], timeout=0.2)
    with pytest.raises(ClientClosed):
        producer.submit(Message("t", b"six"))
    with BlockingPullConsumer(name_servers=name_servers, group="g") as consumer:
        assert consumer.queues("t") == queues
        consumer.assign(queues[:1])
        bodies: list[bytes] = []
        while len(bodies) < 4:
            bodies += [message.body for message in consumer.poll(10)]
        assert bodies == [b"one", b"two", b"three", b"four"]
        assert consumer.position(queues[0]) == 4
        consumer.commit()
        assert consumer.committed(queues[0]) == 4
        assert (consumer.min_offset(queues[0]), consumer.max_offset(queues[0])) == (0, 4)
        assert consumer.offset_by_time(queues[0], int(time.time() * 1000) + 60_000) == 4
        consumer.seek(queues[0], 3)
        assert [message.body for message in consumer.poll(10)] == [b"four"]
        pulled = consumer.pull(queues[0], 1, 2)
        assert pulled.status is PullStatus.FOUND
        assert [message.body for message in pulled.messages()] == [b"two", b"three"]
    with BlockingAdminClient(name_servers=name_servers) as admin:
        assert admin.topic_stats("t")[queues[0]].max_offset == 4
        admin.delete_topic("t")
        assert admin.route("t") is None


def test_many_threads_may_use_one_producer(name_servers: str) -> None:
    with BlockingProducer("p", name_servers=name_servers) as producer, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda n: producer.send(Message("t", b"%d" % n), timeout=20), range(200)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 200


def test_single_sends_leave_as_batches_where_that_is_asked_for(name_servers: str) -> None:
    with BlockingAdminClient(name_servers=name_servers) as admin:
        admin.create_topic("t", 1, 1)
    with BlockingProducer("p", name_servers=name_servers, auto_batch=True, batch_max_delay_ms=30_000) as producer:
        waiting = [producer.submit(Message("t", b"x")) for _ in range(2)]
        assert not any(each.done() for each in waiting)
    assert [each.result(10).queue_offset for each in waiting] == [0, 1]


def test_errors_are_the_same_as_with_await(name_servers: str, free_port: int) -> None:
    with BlockingPullConsumer(name_servers=name_servers) as consumer:
        with pytest.raises(NoRoute):
            consumer.queues("nope")
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(MessageQueue("t", "b", 0), 0)
    with (
        BlockingProducer("p", name_servers=f"127.0.0.1:{free_port}") as producer,
        pytest.raises(TransportError),
    ):
        producer.send(Message("t", b"x"), timeout=0.3)


def test_not_started_or_closed_says_so(free_port: int) -> None:
    producer = BlockingProducer("p", name_servers=f"127.0.0.1:{free_port}")
    with pytest.raises(ClientClosed, match="BlockingProducer"):
        producer.send(Message("t", b"x"))
    with producer:
        producer.start()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.queues("t")


def test_its_threads_end_with_it(free_port: int) -> None:
    before = set(threading.enumerate())  # threads of other tests may end meanwhile
    with BlockingProducer("p", name_servers=f"127.0.0.1:{free_port}"):
        [watch, own] = sorted(set(threading.enumerate()) - before, key=lambda each: each.name != "raptormq-loop-watch")
    assert not own.is_alive()
    watch.join(10)
    assert not watch.is_alive()


def test_one_that_is_never_closed_is_reported_by_its_own_name(name_servers: str) -> None:
    producers = [BlockingProducer(name_servers=name_servers).start()]
    thread, instance = producers[0]._thread, producers[0]._wrapped._instance
    assert thread is not None
    assert isinstance(instance, ClientInstance)
    with pytest.warns(ResourceWarning, match=r"unclosed BlockingProducer: call its close\(\), or use with"):
        drop(producers)
    thread.run(instance.release(), 5)
    thread.stop()


def test_after_a_start_that_failed_it_can_be_started_again(tmp_path: Path, free_port: int) -> None:
    before = set(threading.enumerate())
    trust = tmp_path / "ca.pem"
    tls = ClientTls(auth_server=True, trust_cert_path=str(trust))
    producer = BlockingProducer("p", client_config=ClientConfig(f"127.0.0.1:{free_port}", tls=tls))
    for _ in range(2):
        with pytest.raises(ConfigError, match="cannot read"):
            producer.start()
        assert set(threading.enumerate()) <= before
    with pytest.raises(ClientClosed, match="not started"):
        producer.send(Message("t", b"x"))
    assert Authority(tmp_path, "ca").cert == trust
    with producer:
        assert set(threading.enumerate()) - before


def test_a_call_may_take_as_long_as_its_settings_say(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    run = LoopThread.run

    def noted(self: LoopThread, work: Coroutine[Any, Any, object], timeout: float) -> object:
        waits.append(timeout)
        return run(self, work, timeout)

    monkeypatch.setattr(LoopThread, "run", noted)
    config = ProducerConfig(send_timeout=0.1, auto_batch=True, batch_max_delay_ms=30_000)
    client = ClientConfig(f"127.0.0.1:{free_port}", request_timeout=0.2, close_timeout=60.0)
    with BlockingProducer("p", config=config, client_config=client) as producer, pytest.raises(TransportError):
        producer.send(Message("t", b"x"), key="k")
    _, send, close = waits
    assert send > 0.1 + 30
    assert close > 60
    slow = ClientConfig(f"127.0.0.1:{free_port}", request_timeout=2_000_000_000.0)
    for each in (BlockingPullConsumer(client_config=slow), BlockingAdminClient(client_config=slow)):
        waits.clear()
        with each:
            assert waits[0] > 2_000_000_000


def test_a_wait_is_bounded_and_the_work_is_cancelled() -> None:
    thread = LoopThread("test")
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def fails() -> None:
        raise TimeoutError("its own")

    with pytest.raises(RequestTimeout, match=r"0\.05 s"):
        thread.run(forever(), 0.05)
    assert cancelled.wait(5)
    with pytest.raises(TimeoutError, match="its own"):
        thread.run(fails(), 5)
    thread.stop()
    thread.stop()
    with pytest.raises(ClientClosed):
        thread.run(forever(), 1)


def test_messages_are_found(name_servers: str) -> None:
    with BlockingProducer("p", name_servers=name_servers) as producer:
        sent = producer.send(Message("found", b"17 books", keys=("17",)))
    with BlockingAdminClient(name_servers=name_servers) as admin:
        [found] = admin.find_messages("found", "17", count=1)
        assert (found.body, found.message_id) == (b"17 books", sent.message_id)
        assert admin.message(sent.offset_message_id) == found


@pytest.mark.parametrize("call", ["send", "describe", "close"])
def test_a_callback_that_would_wait_for_its_own_thread_gets_an_error(name_servers: str, call: str) -> None:
    with BlockingProducer("p", name_servers=name_servers) as producer:
        errors: queue.SimpleQueue[object] = queue.SimpleQueue()
        message = Message("t", b"x")
        calls = {"send": lambda: producer.send(message), "describe": producer.describe, "close": producer.close}

        def callback(_: object) -> None:
            try:
                errors.put(calls[call]())
            except ClientError as error:
                errors.put(error)

        producer.submit(message).add_done_callback(callback)
        error = errors.get(timeout=20)
        assert isinstance(error, ClientError)
        assert "use submit, or another thread" in str(error)
        assert producer.send(message).status is SendStatus.SEND_OK


def test_a_callback_may_submit(name_servers: str) -> None:
    with BlockingProducer("p", name_servers=name_servers) as producer:
        sent: queue.SimpleQueue[Future[SendResult]] = queue.SimpleQueue()
        first = producer.submit(Message("t", b"x"))
        first.add_done_callback(lambda _: sent.put(producer.submit(Message("t", b"y"))))
        assert sent.get(timeout=20).result(20).status is SendStatus.SEND_OK


def test_a_thread_that_has_ended_is_not_waited_for() -> None:
    """A child has neither the threads of its parent after a fork, nor a chance to take the locks that they held."""
    thread = LoopThread("ended")
    thread._loop.call_soon_threadsafe(thread._loop.stop)
    thread._thread.join(20)
    locked, may_unlock = threading.Event(), threading.Event()

    def lock() -> None:
        with thread._submitting:
            locked.set()
            may_unlock.wait()

    async def work() -> None:
        pass

    with ThreadPoolExecutor(2) as threads:
        threads.submit(lock)
        locked.wait()
        try:
            with pytest.raises(ClientClosed):
                threads.submit(thread.run, work(), 60.0).result(20)
            threads.submit(thread.stop).result(20)
        finally:
            may_unlock.set()
    thread._loop.close()


def test_a_task_that_ignores_its_cancellation_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(stubborn(), name="a stubborn task")

    thread = LoopThread("loop")
    task = thread.run(start(), 5)
    thread.stop()
    assert not task.done()
    assert not thread._thread.is_alive()
    assert "a stubborn task ignores its cancellation" in caplog.text


@pytest.mark.parametrize(
    ("blocking", "awaited"),
    [(BlockingProducer, Producer), (BlockingPullConsumer, PullConsumer), (BlockingAdminClient, AdminClient)],
)
def test_all_that_is_awaited_is_there_with_the_same_arguments(blocking: type, awaited: type) -> None:
    for name, call in inspect.getmembers(awaited, asyncio.iscoroutinefunction):
        if not name.startswith("_"):
            own = getattr(blocking, name)
            assert not asyncio.iscoroutinefunction(own), name
            assert inspect.signature(own).parameters.keys() == inspect.signature(call).parameters.keys(), name
