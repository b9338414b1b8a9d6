"""Message traces of Python clients, printed by the official tool of RocketMQ 5.5.0."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumerConfig,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from tests.interop.mqadmin import SETTINGS, Place, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import Release, build, java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

JAVA_PRODUCER = "io.raptormq.interop.produce.SendTraced"
MESSAGE_ID = re.compile("[0-9A-F]{32,}")
CONFIG = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, message_trace=True)


async def test_mqadmin_shows_what_our_clients_did(tmp_path: Path) -> None:
    consumed = asyncio.Event()

    async def check(_: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    async def execute(_: Message) -> None:
        """A successful local transaction."""

    async def consume(messages: list[MessageExt]) -> ConsumeResult:
        if messages[0].tags == "last":
            consumed.set()
        return ConsumeResult.RECONSUME_LATER if messages[0].tags == "fails" else ConsumeResult.SUCCESS

    with RaptorMQDev(tmp_path / "servers", settings=SETTINGS) as servers:
        async with AdminClient(name_servers=servers.name_servers) as admin:
            await admin.create_topic("orders", 1, 1)
        async with TransactionProducer(
            "shop", check, name_servers=servers.name_servers, message_trace=True
        ) as producer:
            sent = await producer.send(Message("orders", b"1", keys=("17", "18")))
            failing = await producer.send(Message("orders", b"2", tags="fails"))
            listed = await producer.send_batch([Message("orders", b"3"), Message("orders", b"4")])
            half = await producer.send_in_transaction(Message("orders", b"5", tags="last"), execute)
        consumer = PushConsumer("billing", name_servers=servers.name_servers, config=CONFIG)
        consumer.subscribe("orders", "*", consume)
        async with consumer:
            await asyncio.wait_for(consumed.wait(), 60)
        ids = [sent.message_id, failing.message_id, *listed.message_id.split(","), half.sent.message_id]
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", tmp_path)
        commands = [["queryMsgTraceById", "-i", each] for each in ids]
        commands.append(["queryMsgByKey", "-t", "RMQ_SYS_TRACE_TOPIC", "-k", "18"])
        *outputs, by_key = await asyncio.to_thread(run, build(), place, commands, release=Release.NEWEST)
    shown = [re.findall(r"^(Pub|Sub) +(\w+) +127\.0\.0\.1 .* \d+ms +(\w+)", each, re.MULTILINE) for each in outputs]
    sent_well, read_well = ("Pub", "shop", "success"), ("Sub", "billing", "success")
    assert shown == [
        [sent_well, read_well],
        [sent_well, ("Sub", "billing", "failed")],
        [sent_well, read_well],
        [sent_well, read_well],
        [sent_well, read_well],
    ]
    assert len(re.findall(r"^[0-9A-F]{32}\b", by_key, re.MULTILINE)) == 2  # traces of the producer and the consumer


@pytest.mark.parametrize("trace_on", [True, False])
async def test_our_producer_and_that_of_java_trace_what_the_broker_permits(tmp_path: Path, trace_on: bool) -> None:
    settings = SETTINGS | {"traceOn": str(trace_on).lower()}
    with RaptorMQDev(tmp_path / "servers", settings=settings) as servers:
        async with AdminClient(name_servers=servers.name_servers) as admin:
            await admin.create_topic("orders", 1, 1)
        arguments = (servers.name_servers, "orders", "2")
        class_path = build().client_class_path(Release.NEWEST)
        sending = java(JAVA_PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        printed = await asyncio.to_thread(sending.finish, 90)
        java_ids = [line.strip() for line in printed if MESSAGE_ID.fullmatch(line.strip())]
        assert len(java_ids) == 2
        async with Producer("shop", name_servers=servers.name_servers, message_trace=True) as producer:
            our_ids = [(await producer.send(Message("orders", b"x"))).message_id for _ in range(2)]
        async with AdminClient(name_servers=servers.name_servers) as admin:
            found = {each: await admin.find_messages("RMQ_SYS_TRACE_TOPIC", each) for each in java_ids + our_ids}
    lines = {each: [line for trace in found[each] for line in trace.body.decode().split("\x02") if each in line]
             for each in found}  # fmt: skip
    kinds = {each: [line.split("\x01")[0] for line in lines[each]] for each in lines}
    assert kinds == {each: ["Pub"] if trace_on else [] for each in java_ids + our_ids}
