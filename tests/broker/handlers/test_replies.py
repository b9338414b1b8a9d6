"""Replies: forwarded to the requesting client, stored, or failed if no client can be reached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker.broker import Broker
from raptormq.protocol.bodies.heartbeat import HeartbeatData
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.properties import decode_properties
from tests.broker.harness import Peer, bodies, connected, messages, running, send_fields

TOPIC = "DefaultCluster_REPLY_TOPIC"
LONG_NAMES = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")


def text(client_id: str = "asker") -> str:
    return f"MSG_TYPE\x01reply\x02CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01{client_id}\x02TTL\x013000\x02"


async def reply(peer: Peer, properties: str, body: bytes = b"42", **more: object) -> RemotingCommand:
    return await peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, send_fields(TOPIC, 0, properties) | more, body)


async def announce(peer: Peer, client_id: str = "asker") -> None:
    await peer.call(RequestCode.HEART_BEAT, None, HeartbeatData(client_id, ["askers"], []).to_json())


async def pushed(peer: Peer, code: int = 0) -> RemotingCommand:
    """Receive the reply that the broker forwards, and respond with this code."""
    request = await asyncio.wait_for(peer.notices.get(), 20)
    peer.connection.send(response_to(request, code))
    return request


def kept(broker: Broker) -> int:
    assert broker._store is not None
    return broker._store.queue_end(TOPIC, 0)


@pytest.mark.parametrize("long_names", [False, True])
async def test_a_reply_is_handed_to_who_asked_and_kept(tmp_path: Path, long_names: bool) -> None:
    async with running(tmp_path) as broker, connected(broker) as asker, connected(broker) as replier:
        await announce(asker)
        fields = send_fields(TOPIC, 0, text())
        if long_names:
            fields = dict(zip((*LONG_NAMES, "flag", "properties", "reconsumeTimes"), fields.values(), strict=True))
        call = asyncio.ensure_future(replier.call(324 if long_names else 325, fields, b"42"))
        request = await pushed(asker)
        found = decode_properties(request.ext_fields["properties"])
        assert (request.code, request.body, request.is_oneway) == (326, b"42", False)
        assert (request.ext_fields["topic"], request.ext_fields["producerGroup"]) == (TOPIC, "producers")
        assert request.ext_fields["bornHost"] == "127.0.0.1:{}".format(
            replier.connection._transport.get_extra_info("sockname")[1]
        )
        assert request.ext_fields["storeHost"] == f"127.0.0.1:{broker.port}"
        assert (found["CORRELATION_ID"], found["TTL"], int(found["PUSH_REPLY_TIME"]) > 0) == ("c1", "3000", True)
        assert (found["MSG_REGION"], found["TRACE_ON"], "CLUSTER" in found) == ("DefaultRegion", "true", False)
        answer = await call
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
        (message,) = messages(await replier.pull(TOPIC, 0))
        assert (message.body, decode_properties(message.properties)["CORRELATION_ID"]) == (b"42", "c1")
        assert int(answer.ext_fields["msgId"][-16:], 16) == message.physical_offset


async def test_without_keeping_them_replies_leave_nothing(tmp_path: Path) -> None:
    settings = {"storeReplyMessageEnable": "false"}
    async with running(tmp_path, settings) as broker, connected(broker) as asker, connected(broker) as replier:
        await announce(asker)
        call = asyncio.ensure_future(reply(replier, text()))
        await pushed(asker)
        answer = await call
        assert (answer.code, answer.ext_fields["msgId"], kept(broker)) == (0, "0", 0)


async def test_a_requester_that_is_gone_or_not_named_is_told_to_the_replier(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as replier:
        async with connected(broker) as asker:
            await announce(asker)
            call = asyncio.ensure_future(reply(replier, text()))
            await asyncio.wait_for(asker.notices.get(), 20)  # and disconnects without a response
        assert ((await call).code, (await call).remark) == (1, "push reply message to askerfail.")
        gone = await reply(replier, text())
        assert (gone.code, gone.remark) == (1, "push reply message fail, channel of <asker> not found.")
        unnamed = await reply(replier, "MSG_TYPE\x01reply\x02")
        assert (unnamed.code, unnamed.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        assert bodies(await replier.pull(TOPIC, 0)) == [b"42"] * 3


async def test_a_requester_that_does_not_want_the_reply_fails_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as asker, connected(broker) as replier:
        await announce(asker)
        call = asyncio.ensure_future(reply(replier, text()))
        await pushed(asker, code=1)
        assert (await call).code == 1


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"e": 9}, 29),
        ({"e": "x"}, 1),
        ({"f": 4}, 13),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"c": "none", "b": "no"}, 17),
    ],
)
async def test_a_reply_that_breaks_the_rules_of_sends_is_refused_before_it_is_pushed(
    tmp_path: Path, more: dict[str, object], code: int
) -> None:
    async with running(tmp_path) as broker, connected(broker) as asker, connected(broker) as replier:
        await announce(asker)
        assert (await reply(replier, text(), b"42", **more)).code == code
        assert (kept(broker), asker.notices.qsize()) == (0, 0)


async def test_replies_of_full_size_pass_and_larger_ones_do_not(tmp_path: Path) -> None:
    async with running(tmp_path, {"maxMessageSize": "1000"}) as broker, connected(broker) as asker:
        await announce(asker)
        call = asyncio.ensure_future(reply(asker, text(), bytes(1000)))
        assert len((await pushed(asker)).body) == 1000
        assert (await call).code == 0
        assert (await reply(asker, text(), bytes(1001))).code == 13


async def test_a_reply_that_says_it_is_part_of_a_transaction_is_a_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as asker, connected(broker) as replier:
        await announce(asker)
        call = asyncio.ensure_future(reply(replier, text() + "TRAN_MSG\x01true\x02", f=4))
        assert decode_properties((await pushed(asker)).ext_fields["properties"])["TRAN_MSG"] == "true"
        assert (await call).code == 0
        assert kept(broker) == 1
        assert await broker._store.queue_bounds("RMQ_SYS_TRANS_HALF_TOPIC", 0) == (0, 0)
        assert (await reply(replier, text("nobody") + "TRAN_MSG\x01true\x02", f="four")).code == 1
