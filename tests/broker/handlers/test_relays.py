"""Requests that the broker forwards to clients: progress, running info, consumption of one message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.clients.registry import ClientRegistry, HeartbeatSender
from raptormq.broker.config.config import Identity
from raptormq.broker.handlers.relays import RelayHandlers
from raptormq.broker.security.authorized_records import AuthorizedRecords
from raptormq.broker.tables.groups import GroupTable
from raptormq.broker.tables.topics import TopicTable
from raptormq.errors import RequestTimeout
from raptormq.protocol.bodies.heartbeat import ConsumerData
from raptormq.protocol.bodies.queue_offsets import encode_progress
from raptormq.protocol.bodies.topic_config import TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.relay import ConsumerRunningInfoRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.record import iter_records
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused
from tests.broker.harness import Peer, connected, running
from tests.group_progress import decode_group_progress
from tests.storage.stores import open_store

QUEUE = MessageQueue("t", "broker-a", 0)


async def question(peer: Peer, code: int) -> RemotingCommand:
    """Return the broker's next request to this client, except notifications about its group."""
    while True:
        notice = await peer.notices.get()
        if notice.code == code:
            return notice


async def test_running_info_goes_to_the_member_and_back(tmp_path: Path) -> None:
    fields = {"consumerGroup": "consumers", "clientId": "me", "jstackEnable": "false", "AccessKey": "secret"}
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as admin:
        await client.heartbeat("me", "consumers", "t")
        asking = asyncio.ensure_future(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        asked = await question(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        client.connection.send(response_to(asked, body=b'{"properties":{}}'))
        answer = await asking
    assert asked.ext_fields == {"consumerGroup": "consumers", "clientId": "me", "jstackEnable": "false"}
    assert (answer.code, answer.body) == (0, b'{"properties":{}}')


async def test_what_a_client_refuses_is_refused(tmp_path: Path) -> None:
    fields = {"consumerGroup": "consumers", "clientId": "me"}
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as admin:
        await client.heartbeat("me", "consumers", "t")
        asking = asyncio.ensure_future(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
        asked = await question(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        client.connection.send(response_to(asked, 1, "not now"))
        answer = await asking
    assert (answer.code, answer.remark) == (1, "not now")


@pytest.mark.parametrize("client_id", ["nobody", ""])
async def test_who_is_not_there_is_not_asked(tmp_path: Path, client_id: str) -> None:
    fields = {"consumerGroup": "consumers", "clientId": client_id}
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.heartbeat("me", "consumers", "t")
        answer = await client.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    assert (answer.code, answer.remark) == (1, f"The Consumer <consumers> <{client_id}> not online")


async def test_a_client_that_leaves_while_it_is_asked(tmp_path: Path) -> None:
    fields = {"consumerGroup": "consumers", "clientId": "me"}
    async with running(tmp_path) as broker, connected(broker) as admin:
        async with connected(broker) as client:
            await client.heartbeat("me", "consumers", "t")
            asking = asyncio.ensure_future(admin.call(RequestCode.GET_CONSUMER_RUNNING_INFO, fields))
            await question(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        answer = await asking
    assert (answer.code, "invoke consumer <consumers> <me> Exception" in (answer.remark or "")) == (1, True)


async def test_a_client_that_thinks_for_too_long() -> None:
    class Slow:
        async def request(self, _: RemotingCommand, timeout: float) -> RemotingCommand:
            raise RequestTimeout(f"no response within {timeout:g} s")

    registry: ClientRegistry[Connection] = ClientRegistry()
    presence = HeartbeatSender("me", Slow(), 0, 0, 0)
    registry.heartbeat_consumer(ConsumerData("consumers"), presence)  # type: ignore[arg-type]  # all that is asked of it
    handlers = _handlers(open_store(), registry)
    header = ConsumerRunningInfoRequestHeader("consumers", "me")
    with pytest.raises(Refused, match="Timeout: no response within") as refusal:
        await handlers.running_info(Connection(handlers), RemotingCommand(307), header)  # type: ignore[arg-type]
    assert refusal.value.code == ResponseCode.CONSUME_MSG_TIMEOUT


def _handlers(store: MessageStore, registry: ClientRegistry[Connection]) -> RelayHandlers:
    topics, groups = TopicTable(TopicConfigTable({}), lambda: 0), GroupTable(None, lambda: 0)
    return RelayHandlers(AuthorizedRecords(store, None), topics, groups, registry, Identity(), client_seconds=0.5)


async def test_consuming_directly_brings_the_message_along(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client, connected(broker) as admin:
        stored = await admin.send("t", b"body")
        await client.heartbeat("me", "consumers", "t")
        fields = {"consumerGroup": "consumers", "clientId": "me", "msgId": stored.ext_fields["msgId"], "topic": "t"}
        asking = asyncio.ensure_future(admin.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields))
        asked = await question(client, RequestCode.CONSUME_MESSAGE_DIRECTLY)
        client.connection.send(response_to(asked, body=b'{"consumeResult":"CR_SUCCESS"}'))
        answer = await asking
    assert [record.body for record in iter_records(asked.body)] == [b"body"]
    assert asked.ext_fields["brokerName"] == "broker-a"
    assert (asked.ext_fields["topicSysFlag"], asked.ext_fields["groupSysFlag"]) == ("0", "0")
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')


@pytest.mark.parametrize(
    ("message_id", "remark"),
    [
        ("xyz", "offset message id"),
        ("7F00000100002A9F00000000000FFFFF", "message 7F00000100002A9F00000000000FFFFF does not exist"),
    ],
)
async def test_consuming_nothing(tmp_path: Path, message_id: str, remark: str) -> None:
    fields = {"consumerGroup": "consumers", "clientId": "me", "msgId": message_id}
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.heartbeat("me", "consumers", "t")
        answer = await client.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    assert (answer.code, remark in (answer.remark or "")) == (1, True)


async def test_progress_of_all_members_and_of_one(tmp_path: Path) -> None:
    ask = {"topic": "t", "group": "consumers"}
    async with running(tmp_path) as broker, connected(broker) as one, connected(broker) as other:
        await one.heartbeat("one", "consumers", "t")
        await other.heartbeat("other", "consumers", "t")
        async with connected(broker) as admin:
            asking = asyncio.ensure_future(admin.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ask))
            for client, offset in ((one, 5), (other, 7)):
                asked = await question(client, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
                client.connection.send(response_to(asked, body=encode_progress({QUEUE: offset})))
            both = decode_group_progress((await asking).body)
            narrow = ask | {"clientAddr": "other"}
            asking = asyncio.ensure_future(admin.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, narrow))
            asked = await question(other, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
            other.connection.send(response_to(asked, 1, "no"))
            nothing = await asking
            nobody = await admin.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ask | {"group": "unknown"})
    assert both == {"one": {QUEUE: 5}, "other": {QUEUE: 7}}
    assert (nothing.code, decode_group_progress(nothing.body)) == (0, {})
    assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [unknown]")
