"""Request and reply between two Python clients, with a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import ConsumeFromWhere, ConsumerConfig, ConsumeResult, Message, MessageExt, Producer, PushConsumer
from raptormq.client.producer.request_reply import PendingReplies
from raptormq.errors import ClientClosed, MessageError, RequestTimeout, ServerError
from tests.client.embedded_cluster import Cluster

EARLIEST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


async def test_requests_get_their_own_replies(tmp_path: Path) -> None:
    async with (
        Cluster(tmp_path) as cluster,
        Producer("askers", name_servers=cluster.name_servers) as asker,
        Producer("repliers", name_servers=cluster.name_servers) as replier,
    ):
        await cluster.create_topic("questions", 2)

        async def listener(messages: list[MessageExt]) -> ConsumeResult:
            for message in messages:
                await replier.reply(message, message.body * 2, properties={"kind": "double"})
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("workers", name_servers=cluster.name_servers, config=EARLIEST)
        consumer.subscribe("questions", "*", listener)
        async with consumer:
            large = bytes(10_000)
            asked = [b"a", b"b", large]
            replies = await asyncio.gather(*(asker.request(Message("questions", body), timeout=20) for body in asked))
        assert [reply.body for reply in replies] == [body * 2 for body in asked]
        assert replies[0].properties["kind"] == "double"
        assert replies[0].topic == "DefaultCluster_REPLY_TOPIC"


async def test_a_request_that_nobody_answers_ends_in_time(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("askers", name_servers=cluster.name_servers) as asker:
        await cluster.create_topic("questions", 1)
        with pytest.raises(RequestTimeout, match=r"no reply to \w+ within 2 s"):
            await asker.request(Message("questions", b"?"), timeout=2)  # enough time to send it
        assert asker._instance is not None
        assert not asker._instance.shared(PendingReplies)._waiting


async def test_a_reply_to_no_request_or_to_somebody_who_is_gone_is_an_error(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, Producer("repliers", name_servers=cluster.name_servers) as replier:
        await cluster.create_topic("questions", 1)
        plain = await replier.send(Message("questions", b"plain"))
        seen: asyncio.Queue[MessageExt] = asyncio.Queue()

        async def listener(messages: list[MessageExt]) -> ConsumeResult:
            for message in messages:
                seen.put_nowait(message)
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("workers", name_servers=cluster.name_servers, config=EARLIEST)
        consumer.subscribe("questions", "*", listener)
        async with consumer:
            first = await seen.get()
            with pytest.raises(MessageError, match=f"{plain.message_id} cannot be replied to"):
                await replier.reply(first, b"!")
            asker = Producer("askers", name_servers=cluster.name_servers)
            await asker.start()
            with pytest.raises(RequestTimeout):
                await asker.request(Message("questions", b"?"), timeout=3)
            request = await seen.get()
            assert (await replier.reply(request, b"late")).queue.broker_name == "broker-0"  # accepted, and dropped
            request.properties["REPLY_TO_CLIENT"] = "nobody"
            with pytest.raises(ServerError, match="channel of <nobody> not found"):
                await replier.reply(request, b"!")
            await asker.close()
            with pytest.raises(ClientClosed):
                await asker.request(Message("questions", b"?"))
