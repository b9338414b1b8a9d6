"""The message trace of producers and consumers in its topic."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import (
    ConsumeFromWhere,
    Consumer,
    ConsumerConfig,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from raptormq.errors import ConfigError
from tests.client.embedded_cluster import Cluster

TRACED = ConsumerConfig(
    consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=0.5, message_trace=True
)
TOPIC = "RMQ_SYS_TRACE_TOPIC"


async def traces(cluster: Cluster, topic: str = TOPIC) -> list[list[str]]:
    """Return the lines of the trace topic as fields."""
    async with PullConsumer(name_servers=cluster.name_servers) as consumer:
        pulled = await consumer.pull(MessageQueue(topic, "broker-0", 0), 0, 32, suspend_ms=0)
    text = "".join(message.body.decode() for message in pulled.messages())
    return [line.split("\x01") for line in text.split("\x02") if line]


async def test_a_message_from_its_send_to_its_consumption(tmp_path: Path) -> None:
    done = asyncio.Event()

    async def consume(_: list[MessageExt]) -> None:
        done.set()

    async with Cluster(tmp_path, traceTopicEnable="true") as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, message_trace=True) as producer:
            sent = await producer.send(Message("t", b"x", keys=("17",)))
            await producer.send_oneway(Message("t", b"x"))
        async with PushConsumer("g", name_servers=cluster.name_servers, config=TRACED) as consumer:
            consumer.subscribe("t", "*", consume)
            await done.wait()
        lines = [line for line in await traces(cluster) if sent.message_id in line]
    [pub, before, after] = lines
    assert (pub[0], pub[3:6], pub[7]) == ("Pub", ["p", "t", sent.message_id], "17")
    assert pub[8] == cluster_address(sent.offset_message_id)
    assert (before[0], before[3], before[5:]) == ("SubBefore", "g", [sent.message_id, "0", "17"])
    assert (after[0], after[1], after[4:7], after[8]) == ("SubAfter", before[4], ["true", "17", "0"], "g")


def cluster_address(offset_id: str) -> str:
    return f"127.0.0.1:{int(offset_id[8:16], 16)}"


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_messages_that_were_sent_together_have_their_own_lines(tmp_path: Path, auto_batch: bool) -> None:
    async with Cluster(tmp_path, traceTopicEnable="true") as cluster:
        await cluster.create_topic("t", 1)
        config = ProducerConfig(auto_batch=auto_batch, message_trace=True)
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            merged = await asyncio.gather(*(producer.send(Message("t", b"x")) for _ in range(3)))
            listed = await producer.send_batch([Message("t", b"x"), Message("t", b"x")])
        lines = await traces(cluster)
    ids = [result.message_id for result in merged] + listed.message_id.split(",")
    assert sorted(line[5] for line in lines) == sorted(ids)
    assert {line[0] for line in lines} == {"Pub"}


async def test_messages_of_a_loop(tmp_path: Path) -> None:
    async with Cluster(tmp_path, traceTopicEnable="true") as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            ids = [(await producer.send(Message("t", b"x"))).message_id for _ in range(2)]
        async with Consumer("g", name_servers=cluster.name_servers, config=TRACED) as consumer:
            consumer.subscribe("t")
            await (await anext(consumer)).ack()
            await anext(consumer)
        lines = await traces(cluster)
    assert [line[4] for line in lines if line[0] == "SubAfter" and line[2] == ids[0]] == ["true"]
    assert [line[4] for line in lines if line[0] == "SubAfter" and line[2] == ids[1]] == ["false"]


async def test_ends_of_transactions(tmp_path: Path) -> None:
    async def committed(_: MessageExt) -> TransactionState:
        checked.set()
        return TransactionState.COMMIT

    async def unknown(_: Message) -> TransactionState:
        return TransactionState.UNKNOWN

    async def rolled_back(_: Message) -> TransactionState:
        return TransactionState.ROLLBACK

    checked = asyncio.Event()
    settings = {"traceTopicEnable": "true", "transactionTimeOut": "100", "transactionCheckInterval": "100"}
    async with Cluster(tmp_path, 1, 1, **settings) as cluster:
        await cluster.create_topic("t", 1)
        async with TransactionProducer(
            "p", committed, name_servers=cluster.name_servers, message_trace=True
        ) as producer:
            first = await producer.send_in_transaction(Message("t", b"x", tags="A"), rolled_back)
            second = await producer.send_in_transaction(Message("t", b"x"), unknown)
            await checked.wait()
        lines = await traces(cluster)
    assert [(line[5], line[11]) for line in lines if line[0] == "Pub"] == [
        (first.sent.message_id, "1"),
        (second.sent.message_id, "1"),
    ]
    ends = [line for line in lines if line[0] == "EndTransaction"]
    assert [(line[5], *line[10:]) for line in ends][:3] == [
        (first.sent.message_id, first.sent.message_id, "ROLLBACK_MESSAGE", "false"),
        (second.sent.message_id, second.sent.message_id, "UNKNOW", "false"),
        (second.sent.message_id, second.sent.message_id, "COMMIT_MESSAGE", "true"),
    ]
    assert {line[8] for line in ends} == {cluster_address(first.sent.offset_message_id)}


async def test_nothing_is_traced_by_default_and_traces_are_not_traced(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def consume(_: list[MessageExt]) -> None:
        seen.set()

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("traces", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("traces", b"x\x02"))
        config = ProducerConfig(message_trace=True, trace_topic="traces")
        async with Producer("p", name_servers=cluster.name_servers, config=config) as producer:
            await producer.send(Message("traces", b"x\x02"))
        watching = replace(TRACED, trace_topic="traces")
        async with PushConsumer("g", name_servers=cluster.name_servers, config=watching) as consumer:
            consumer.subscribe("traces", "*", consume)
            await seen.wait()
        async with PullConsumer(name_servers=cluster.name_servers) as reader:
            pulled = await reader.pull(MessageQueue("traces", "broker-0", 0), 0, 32, suspend_ms=0)
        assert [message.body for message in pulled.messages()] == [b"x\x02"] * 2


@pytest.mark.parametrize("trace_on", [True, False])
async def test_a_broker_decides_whether_its_messages_are_traced(tmp_path: Path, trace_on: bool) -> None:
    consumed = set[str]()
    done = asyncio.Event()

    async def consume(messages: list[MessageExt]) -> None:
        consumed.update(message.body.decode() for message in messages)
        if len(consumed) == len(sends):
            done.set()

    settings = {"traceTopicEnable": "true", "traceOn": str(trace_on).lower(), "regionId": "north"}
    async with Cluster(tmp_path, 1, 1, **settings) as cluster:
        await cluster.create_topic("t", 4)
        sends = [Message("t", str(number).encode()) for number in range(9)]
        async with Producer("p", name_servers=cluster.name_servers, message_trace=True) as producer:
            results = [await producer.send(sends[0])]
            results.append(await producer.send_batch(sends[1:3]))
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=True, message_trace=True) as producer:
            # one batch, then several for different queues in one request
            results += await asyncio.gather(*map(producer.send, sends[3:5]))
            keyed = [producer.send(message, key=message.body.decode()) for message in sends[5:]]
            results += await asyncio.gather(*keyed)
        assert {(result.region_id, result.trace_on) for result in results} == {("north", trace_on)}
        async with PushConsumer("g", name_servers=cluster.name_servers, config=TRACED) as consumer:
            consumer.subscribe("t", "*", consume)
            await done.wait()
        lines = await traces(cluster)
    ids = [message_id for result in results for message_id in result.message_id.split(",")]
    for kind, place in (("Pub", 5), ("SubBefore", 5), ("SubAfter", 2)):
        assert sorted(line[place] for line in lines if line[0] == kind) == (sorted(ids) if trace_on else [])
    assert {line[2] for line in lines if line[0] in {"Pub", "SubBefore"}} == ({"north"} if trace_on else set())


async def test_a_missing_topic_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(tmp_path, autoCreateTopicEnable="false") as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers, message_trace=True) as producer:
            await producer.send(Message("t", b"x"))
    [logged] = [record.getMessage() for record in caplog.records if "message trace" in record.getMessage()]
    assert logged.startswith("dropped 1 message trace records of group p: no route for topic RMQ_SYS_TRACE")


@pytest.mark.parametrize("config", [ProducerConfig, ConsumerConfig])
def test_a_topic_that_cannot_be_is_refused(config: type[ProducerConfig | ConsumerConfig]) -> None:
    with pytest.raises(ConfigError, match="trace_topic: "):
        config(trace_topic="no topic")
