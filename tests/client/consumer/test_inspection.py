"""A push consumer answers inspection requests that a broker forwards, and resets its offsets on request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from raptormq.client import ConsumeFromWhere, ConsumerConfig, Message, Producer, PushConsumer
from raptormq.client.config import Order
from raptormq.client.consumer.process_queue import now_ms
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool, RefuseRequests
from tests.client.embedded_cluster import Cluster
from tests.client.recording_listener import Listener
from tests.group_progress import decode_group_progress

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, rebalance_interval=1.0)


class _Admin(RefuseRequests):
    def closed(self, _: Connection) -> None:
        """Send a oneway request."""


async def test_a_consumer_is_looked_into_and_sent_back(tmp_path: Path) -> None:
    listener = Listener()
    async with Cluster(tmp_path, useServerSideResetOffset="false") as cluster:
        await cluster.create_topic("t", 1)
        pool = ConnectionPool(_Admin())
        address = cluster.broker().address

        async def ask(code: RequestCode, **fields: str) -> RemotingCommand:
            return await pool.request(address, RemotingCommand(code, fields), 10.0)

        async with Producer("p", name_servers=cluster.name_servers) as producer:
            stored = [await producer.send(Message("t", b"%d" % number)) for number in range(3)]
            refused = await producer.send(Message("other", b"no"))
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            consumer.subscribe("t", "*", listener)
            await listener.until(3)
            members = await ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
            (client_id,) = json.loads(members.body)["consumerIdList"]
            who = {"consumerGroup": "g", "clientId": client_id}
            info = loads_object((await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **who)).body)
            asked = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **who, jstackEnable="true")
            stacks = loads_object(asked.body)["jstack"]
            directly = await ask(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, **who, topic="t", msgId=stored[1].offset_message_id
            )
            unheard = await ask(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, **who, topic="other", msgId=refused.offset_message_id
            )
            assert listener.bodies == [b"0", b"1", b"2", b"1"]
            asked = await ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="t", group="g")
            (queue,) = consumer.assignment[-1:]
            progress = decode_group_progress(asked.body)[client_id]
            reset = {"topic": "t", "group": "g", "timestamp": "0", "isForce": "true"}
            while (await ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)).code != ResponseCode.SUCCESS:
                await asyncio.sleep(0.05)  # the group has an offset only after the first commit
            await listener.until(7)
        await pool.close()
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert "jstack" not in info
    assert "dump_stacks" in stacks
    assert {each["topic"] for each in info["subscriptionSet"]} == {"t", "%RETRY%g"}
    assert json.loads(directly.body)["consumeResult"] == "CR_SUCCESS"
    assert json.loads(unheard.body)["consumeResult"] == "CR_LATER"
    assert (queue.topic, sum(progress.values())) == ("t", 3)
    assert listener.bodies[4:7] == [b"0", b"1", b"2"]


async def test_running_information_has_the_lock_and_the_times_of_each_queue(tmp_path: Path) -> None:
    before, started = now_ms(), Listener()
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 2)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"0"))
        for order in (Order.NONE, Order.BY_QUEUE):
            config = replace(FAST, order=order)
            async with PushConsumer(f"g-{order.value}", name_servers=cluster.name_servers, config=config) as consumer:
                consumer.subscribe("t", "*", started)
                await started.until(1 if order is Order.NONE else 2)
                assert consumer._running is not None
                info = consumer._running.running_info()
            assert len(info.queues) >= 2
            for state in info.queues.values():
                assert state.is_locked == (order is not Order.NONE)
                for at_ms in (state.last_lock_ms, state.last_pull_ms, state.last_consume_ms):
                    assert before <= at_ms <= now_ms()
