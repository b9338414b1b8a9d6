"""Brokers list and inspect members that pop like other members."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptormq.client import AdminClient, ClientConfig, Message, PopConsumer, Producer, PushConsumer
from raptormq.errors import ClientError
from raptormq.protocol.bodies.tolerant_json import loads_object
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.transport.connection import Connection
from raptormq.transport.pool import ConnectionPool, RefuseRequests
from tests.client.embedded_cluster import Cluster


class _Admin(RefuseRequests):
    def closed(self, _: Connection) -> None:
        """Send a oneway request."""


@asynccontextmanager
async def pool() -> AsyncIterator[ConnectionPool]:
    connections = ConnectionPool(_Admin())
    yield connections
    await connections.close()


async def until_listed(connections: ConnectionPool, address: str, consumer: PopConsumer) -> None:
    """Wait for the first heartbeat of the only member."""
    while True:
        command = RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        answer = await connections.request(address, command, 10.0)
        if answer.code == ResponseCode.SUCCESS:
            assert json.loads(answer.body)["consumerIdList"] == [consumer.describe().client_id]
            return
        await asyncio.sleep(0.01)


async def send(cluster: Cluster, count: int) -> None:
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        for number in range(count):
            await producer.send(Message("t", b"%d" % number))


async def test_members_that_pop_are_listed_until_they_are_closed(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path, brokers=2) as cluster,
        AdminClient(name_servers=cluster.name_servers) as admin,
        pool() as connections,
    ):
        await cluster.create_topic("t", 1)
        addresses = [cluster.broker(number).address for number in range(2)]
        config = ClientConfig(name_servers=cluster.name_servers)
        async with PopConsumer("g", "t", "a || b", client_config=config) as consumer:
            assert await consumer.receive(timeout=0) == []
            for address in addresses:
                await until_listed(connections, address, consumer)
            members = await admin.group_connections("g")
            assert members is not None
            assert {member.client_id for member in members.members} == {consumer.describe().client_id}
            assert members.consume_type == "CONSUME_POP"
            assert members.subscriptions["t"].expression == "a || b"
        assert await admin.group_connections("g") is None


async def test_what_administrators_ask_a_member(tmp_path: Path) -> None:
    async with Cluster(tmp_path, useServerSideResetOffset="false") as cluster, pool() as connections:
        await cluster.create_topic("t", 1)
        await send(cluster, 3)
        address = cluster.broker().address

        async def ask(code: RequestCode, **fields: str) -> RemotingCommand:
            return await connections.request(address, RemotingCommand(code, fields), 10.0)

        async with PopConsumer("g", "t", name_servers=cluster.name_servers) as consumer:
            first, second, third = await consumer.receive(3)
            await third.ack()
            client_id = consumer.describe().client_id
            assert client_id is not None
            await until_listed(connections, address, consumer)
            who = {"consumerGroup": "g", "clientId": client_id}
            info = loads_object((await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, **who)).body)
            assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_POP"
            assert [each["topic"] for each in info["subscriptionSet"]] == ["t"]
            [(queue, popped)] = info["mqPopTable"].items()
            assert json.loads(queue) == {"brokerName": "broker-0", "queueId": 0, "topic": "t"}
            assert popped["waitAckCount"] == 2
            assert popped["lastPopTimestamp"] == first.invisible_until_ms - 60_000
            for message in (first, second):
                await message.ack()
            stored = {"topic": "t", "msgId": first.offset_message_id}
            directly = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, **who, **stored)
            assert json.loads(directly.body)["consumeResult"] == "CR_LATER"
            assert await consumer.receive(timeout=0) == []
            reset = {"topic": "t", "group": "g", "timestamp": "0", "isForce": "true"}
            assert (await ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **reset)).code == 0
            again = [message for _ in range(3) for message in await consumer.receive(1, timeout=60)]
            assert [message.body for message in again] == [b"0", b"1", b"2"]
            for message in again:
                await message.ack()


async def test_a_group_has_one_consumer_for_each_client_config(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        config = ClientConfig(name_servers=cluster.name_servers)
        async with PopConsumer("g", "t", client_config=config):
            for other in (PopConsumer("g", "t", client_config=config), PushConsumer("g", client_config=config)):
                with pytest.raises(ClientError, match="group g already has a consumer with this ClientConfig"):
                    await other.start()
        async with PopConsumer("g", "t", client_config=config) as consumer:  # the first one has left
            assert consumer.describe().is_started
