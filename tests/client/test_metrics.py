"""Prometheus metrics of producers and consumers: each outcome counts once, and every thread can read the lag."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from raptormq.client import (
    BlockingProducer,
    ConsumeContext,
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    ConsumerDescription,
    ConsumeStatus,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerInterceptor,
    PushConsumer,
    QueueDescription,
    ReadState,
    SendContext,
    SendResult,
    SendStatus,
)
from raptormq.client.metrics import ClientMetrics, consume_results, queue_lags, send_result
from raptormq.errors import ConfigError, MessageError, RequestTimeout
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5)
QUEUE = MessageQueue("t", "broker-0", 0)


class Metrics:
    """Metrics in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.interceptor = ClientMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"raptormq_client_{name}", labels)


def test_the_result_of_a_send() -> None:
    context = SendContext("p", Message("t", b""), None)
    assert send_result(context) == "oneway"
    context.result = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "id", "offset id", QUEUE, 0)
    assert send_result(context) == "FLUSH_DISK_TIMEOUT"
    context.error = RequestTimeout("late")
    assert send_result(context) == "RequestTimeout"
    context.error = asyncio.CancelledError()
    assert send_result(context) == "cancelled"


@pytest.mark.parametrize(
    ("status", "failed", "results"),
    [
        (ConsumeStatus.CONSUMED, 0, {"consumed": 3}),
        (ConsumeStatus.RETRIED, 3, {"retried": 3}),
        (ConsumeStatus.RETRIED, 1, {"consumed": 2, "retried": 1}),
        (ConsumeStatus.DEAD_LETTER, 0, {"dead_letter": 3}),
        (ConsumeStatus.ABANDONED, 3, {"abandoned": 3}),
        (None, 0, {}),
    ],
)
def test_the_results_of_a_consumption(status: ConsumeStatus | None, failed: int, results: dict[str, int]) -> None:
    messages = [MessageExt("t", b"", {}, QUEUE, offset, offset, "id", "", 0, 0) for offset in range(3)]
    context = ConsumeContext("g", "t", messages, status=status, failed=messages[:failed])
    assert consume_results(context) == results


def test_the_lags_of_several_members() -> None:
    def member(*lags: int | None) -> ConsumerDescription:
        queues = tuple(
            QueueDescription(
                MessageQueue("t", "b", number), ReadState.READING, 0, 0, lag, unfinished_messages=0,
                unfinished_bytes=0, running_calls=0, error=None,
            )
            for number, lag in enumerate(lags)
        )  # fmt: skip
        return ConsumerDescription("g", "id", {}, queues, ())

    lags = queue_lags([member(5, None), member(3, 7)])
    assert lags == {("g", "t", "b", "0"): 5, ("g", "t", "b", "1"): 7}


async def test_sends_are_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    of_topic = {"group": "p", "topic": "t"}
    in_flight: list[tuple[float | None, float | None]] = []

    class Observing(ProducerInterceptor):
        def before_send(self, context: SendContext) -> None:
            values = [metrics.value(f"in_flight_{name}", **of_topic) for name in ("messages", "bytes")]
            in_flight.append((values[0], values[1]))

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        interceptors = [metrics.interceptor, Observing()]
        async with Producer("p", name_servers=cluster.name_servers, interceptors=interceptors) as producer:
            await producer.send(Message("t", b"12345"))
            assert in_flight == [(1, 5)]
            await producer.send_batch([Message("t", b"1"), Message("t", b"2")])
            await producer.send_oneway(Message("t", b"3"))
            with pytest.raises(MessageError):
                await producer.send(Message("t", "no bytes"))  # type: ignore[arg-type]
            with pytest.raises(MessageError):
                await producer.send(Message("t", b"12345", tags="a||b"))
    assert metrics.value("sends_total", result="SEND_OK", **of_topic) == 3
    assert metrics.value("sends_total", result="oneway", **of_topic) == 1
    assert metrics.value("sends_total", result="MessageError", **of_topic) == 2
    assert metrics.value("send_seconds_count", **of_topic) == 6
    assert metrics.value("in_flight_messages", **of_topic) == 0
    assert metrics.value("in_flight_bytes", **of_topic) == 0
    assert metrics.value("backpressure_waits_total", **of_topic) is None


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_waits_for_the_limits_are_counted(tmp_path: Path, auto_batch: bool) -> None:
    metrics = Metrics()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer(
            "p",
            name_servers=cluster.name_servers,
            auto_batch=auto_batch,
            interceptors=[metrics.interceptor],
            max_in_flight_messages=1,
        ) as producer:
            first = producer.submit(Message("t", b"0"))
            second = producer.submit(Message("t", b"1"))
            third = asyncio.ensure_future(producer.send(Message("t", b"2")))
            fourth = asyncio.ensure_future(producer.send_batch([Message("t", b"3")]))
            await asyncio.gather(first, second, third, fourth)
    assert metrics.value("backpressure_waits_total", group="p", topic="t") == 3


async def test_consumption_is_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send_batch([Message("t", b"%d" % number) for number in range(4)])

        async def second_fails(batch: MessageBatch) -> list[int]:
            return [1] if len(batch) > 1 else [0]

        config = replace(FAST, max_reconsume_times=0, interceptors=[metrics.interceptor])
        async with PushConsumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe_batches("t", "*", second_fails)
            await eventually(lambda: metrics.value("dead_letters_total", group="g", topic="t") == 1)
            queue = {"group": "g", "topic": "t", "broker": "broker-0", "queue": "0"}
            await eventually(lambda: metrics.value("queue_lag_messages", **queue) == 0)
        assert metrics.value("queue_lag_messages", **queue) is None
    assert metrics.value("consumed_total", group="g", topic="t", result="consumed") == 3
    assert metrics.value("consumed_total", group="g", topic="t", result="retried") == 1
    assert metrics.value("consume_seconds_count", group="g", topic="t") == 1
    assert metrics.value("rebalances_total", group="g", change="assigned") == 1
    assert metrics.value("rebalances_total", group="g", change="revoked") == 1


async def test_a_scrape_of_another_thread_reads_the_lag(tmp_path: Path) -> None:
    metrics = Metrics()
    lag = 'raptormq_client_queue_lag_messages{broker="broker-0",group="g",queue="0",topic="t"} 3.0'
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send_batch([Message("t", b"%d" % number) for number in range(3)])
        config = replace(FAST, interceptors=[metrics.interceptor])
        async with Consumer("g", name_servers=cluster.name_servers, config=config) as consumer:
            consumer.subscribe("t")
            await anext(consumer)
            assert lag in (await asyncio.to_thread(generate_latest, metrics.registry)).decode()
            assert lag in generate_latest(metrics.registry).decode()


async def test_a_blocked_loop_is_left_out_of_a_scrape(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    scraped: list[bytes] = []

    class Member:
        def describe(self) -> ConsumerDescription:
            raise AssertionError("the loop is blocked")

    member = Member()
    metrics.interceptor.on_start(member)
    scrape = threading.Thread(target=lambda: scraped.append(generate_latest(metrics.registry)))
    scrape.start()
    scrape.join()  # blocks the event loop
    metrics.interceptor.on_close(member)
    assert b"queue_lag_messages{" not in scraped[0]
    assert [record.getMessage() for record in caplog.records] == [
        "a scrape omits the metrics of Member: its event loop has not responded for 1 s"
    ]


def test_clients_of_an_ended_loop_are_left_out() -> None:
    metrics = Metrics()

    class Member:
        def describe(self) -> ConsumerDescription:
            raise AssertionError("the loop has ended")

    member = Member()

    async def start() -> None:
        metrics.interceptor.on_start(member)

    asyncio.run(start())
    assert b"queue_lag_messages{" not in generate_latest(metrics.registry)


async def test_metrics_do_not_keep_clients() -> None:
    metrics = Metrics()

    class Member:
        def describe(self) -> ConsumerDescription:
            raise AssertionError("it does not exist any more")

    metrics.interceptor.on_start(Member())
    gc.collect()
    generate_latest(metrics.registry)


async def test_clients_without_asyncio(tmp_path: Path) -> None:
    metrics = Metrics()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)

        def send() -> None:
            with BlockingProducer(
                "p", name_servers=cluster.name_servers, interceptors=[metrics.interceptor]
            ) as producer:
                producer.send(Message("t", b"x"))

        await asyncio.to_thread(send)
    assert metrics.value("sends_total", group="p", topic="t", result="SEND_OK") == 1


def test_a_registry_has_one_object() -> None:
    registry = CollectorRegistry()
    ClientMetrics(registry)
    with pytest.raises(ConfigError, match="pass the same object to all clients"):
        ClientMetrics(registry)
