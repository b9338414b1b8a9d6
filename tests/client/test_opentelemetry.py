"""Traces of sends and consumption: one trace for producer and consumer, in every case."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from raptormq.client import (
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageBatch,
    MessageExt,
    Producer,
    PushConsumer,
)
from raptormq.client import opentelemetry as module
from raptormq.client.opentelemetry import OpenTelemetryTraces
from raptormq.errors import MessageError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5)


class Traced:
    """Traces in memory, and a cluster with the topic t."""

    def __init__(self, cluster: Cluster) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")
        self.interceptor = OpenTelemetryTraces(self.provider)
        self.servers = cluster.name_servers
        self.config = replace(FAST, interceptors=[self.interceptor])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def producer(self, *, auto_batch: bool = False) -> Producer:
        return Producer("p", name_servers=self.servers, auto_batch=auto_batch, interceptors=[self.interceptor])

    async def consume(self, listener: Callable[[list[MessageExt]], Awaitable[ConsumeResult | None]]) -> None:
        """Run a listener until one of its calls has ended."""
        async with PushConsumer("g", name_servers=self.servers, config=self.config) as consumer:
            consumer.subscribe("t", "*", listener)
            await eventually(lambda: bool(self.spans("process t")))


@asynccontextmanager
async def traced(folder: Path) -> AsyncIterator[Traced]:
    async with Cluster(folder) as cluster:
        await cluster.create_topic("t", 1)
        yield Traced(cluster)


def id_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def test_attributes_are_those_of_the_conventions() -> None:
    known = {value for value in vars(messaging_attributes).values() if isinstance(value, str)}
    ours = {value for value in vars(module).values() if isinstance(value, str) and value.startswith("messaging.")}
    assert len(ours) == 11
    assert ours - known == set()
    assert module.ERROR_TYPE == error_attributes.ERROR_TYPE


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_one_message_is_one_trace(tmp_path: Path, auto_batch: bool) -> None:
    current: list[tuple[int, int]] = []
    async with traced(tmp_path) as here:
        async with here.producer(auto_batch=auto_batch) as producer:
            with here.tracer.start_as_current_span("order"):
                sent = await producer.send(Message("t", b"12345", tags="paid", keys=("17", "18")))

        async def listener(_: list[MessageExt]) -> None:
            with here.tracer.start_as_current_span("book"):
                await asyncio.sleep(0)
            context = trace.get_current_span().get_span_context()
            current.append((context.trace_id, context.span_id))

        await here.consume(listener)
    [order], [send], [process], [book] = (here.spans(name) for name in ("order", "send t", "process t", "book"))
    assert [parent_of(span) for span in (order, send, process, book)] == [
        None,
        id_of(order),
        id_of(send),
        id_of(process),
    ]
    assert current == [id_of(process)]
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("17", "18"),
    }
    assert dict(send.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(process.attributes or {}) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "g",
    }
    assert {send.status.status_code, process.status.status_code} == {StatusCode.UNSET}


async def test_a_call_with_several_messages_is_linked_to_each(tmp_path: Path) -> None:
    async with traced(tmp_path) as here:
        async with Producer("p", name_servers=here.servers) as untraced:
            await untraced.send(Message("t", b"0"))
        async with here.producer() as producer:
            listed = await producer.send_batch([Message("t", b"1"), Message("t", b"2")])

        async def listener(batch: MessageBatch) -> None:
            assert len(batch) == 3

        async with PushConsumer("g", name_servers=here.servers, config=here.config) as consumer:
            consumer.subscribe_batches("t", "*", listener)
            await eventually(lambda: bool(here.spans("process t")))
    [process], sends = here.spans("process t"), here.spans("send t")
    assert process.parent is None
    linked = [(link.context.trace_id, link.context.span_id) for link in process.links]
    assert sorted(linked) == sorted(map(id_of, sends))
    assert len(linked) == 2
    attributes = process.attributes or {}
    assert attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes
    assert [(span.attributes or {})["messaging.message.id"] for span in sends] == listed.message_id.split(",")


async def test_messages_of_one_worker_are_separate_traces(tmp_path: Path) -> None:
    async with traced(tmp_path) as here:
        async with here.producer() as producer:
            for _ in range(2):
                await producer.send(Message("t", b"x"))

        async def listener(_: list[MessageExt]) -> None:
            """Consume the messages."""

        one = replace(here.config, concurrency=1)
        async with PushConsumer("g", name_servers=here.servers, config=one) as consumer:
            consumer.subscribe("t", "*", listener)
            await eventually(lambda: len(here.spans("process t")) == 2)
    assert sorted(id_of(span) for span in here.spans("send t")) == sorted(
        parent_of(span) or (0, 0) for span in here.spans("process t")
    )


async def test_failures_are_errors_of_their_spans(tmp_path: Path) -> None:
    async with traced(tmp_path) as here:
        async with here.producer() as producer:
            with pytest.raises(MessageError):
                await producer.send(Message("t", b"x", tags="a||b"))
            await producer.send(Message("t", b"x"))

        async def raises(_: list[MessageExt]) -> None:
            raise KeyError("17")

        await here.consume(raises)
    refused, _ = here.spans("send t")
    process = here.spans("process t")[0]
    for span, name in ((refused, "MessageError"), (process, "KeyError")):
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == name
        assert [event.name for event in span.events] == ["exception"]


async def test_a_listener_that_asks_for_messages_again(tmp_path: Path) -> None:
    async with traced(tmp_path) as here:
        async with here.producer() as producer:
            await producer.send(Message("t", b"x"))

        async def later(_: list[MessageExt]) -> ConsumeResult:
            return ConsumeResult.RECONSUME_LATER

        await here.consume(later)
    process = here.spans("process t")[0]
    assert (process.status.status_code, process.status.description) == (StatusCode.ERROR, "retried (1 of 1 messages)")


async def test_messages_of_a_loop(tmp_path: Path) -> None:
    async with traced(tmp_path) as here:
        async with here.producer() as producer:
            for number in range(2):
                await producer.send(Message("t", b"%d" % number))
        async with Consumer("g", name_servers=here.servers, config=here.config) as consumer:
            consumer.subscribe("t")
            with here.tracer.start_as_current_span("loop") as loop:
                first, _ = await anext(consumer), await anext(consumer)
                assert trace.get_current_span() is loop
                with here.tracer.start_as_current_span("book", here.interceptor.context_of(first)):
                    await first.ack()
    [book], sends = here.spans("book"), here.spans("send t")
    consumed, abandoned = here.spans("process t")
    assert parent_of(book) == parent_of(consumed) == id_of(sends[0])
    assert parent_of(abandoned) == id_of(sends[1])
    assert (consumed.status.status_code, abandoned.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "raptormq.client.opentelemetry")
    with pytest.raises(ImportError, match=r"pip install 'raptormq\[opentelemetry\]'"):
        importlib.import_module("raptormq.client.opentelemetry")
