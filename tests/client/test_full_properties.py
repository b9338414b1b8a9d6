"""Messages with full properties, a broker, and a consumer that fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, MessageExt, Producer, PullConsumer, PushConsumer
from raptormq.errors import NoRoute
from raptormq.protocol.topic_names import dlq_topic, retry_topic
from tests.client.consumer.test_push_consumer import FAST, Collector
from tests.client.embedded_cluster import Cluster

GROUPS = {"short": "g", "long": "g" * 120}
ONE_RETRY = replace(FAST, max_reconsume_times=1)
NOTE = "v" * 32_600


class Refusing(Collector):
    """A listener that fails for messages with the body "bad"."""

    async def __call__(self, messages: list[MessageExt]) -> None:
        await super().__call__(messages)
        if any(message.body == b"bad" for message in messages):
            raise ValueError("this listener takes no such message")


async def dead_letter(cluster: Cluster, group: str) -> MessageExt:
    """Return the first dead letter of a group."""
    async with PullConsumer(name_servers=cluster.name_servers) as reader:
        while True:
            with suppress(NoRoute):  # the topic is created with the first dead letter
                [queue] = await reader.queues(dlq_topic(group))
                if found := (await reader.pull(queue, 0)).messages():
                    return found[0]
            await asyncio.sleep(0.01)


async def progress_passes(admin: AdminClient, group: str, ends: dict[str, int]) -> None:
    """Wait until the group has consumed the topics completely."""
    while True:
        progress = await admin.group_progress(group)
        if {queue.topic: each.consumer_offset for queue, each in progress.items()} == ends:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
async def test_a_message_with_full_properties_is_retried_and_becomes_a_dead_letter(
    tmp_path: Path, group: str, queue_type: str
) -> None:
    """Its queue continues: later messages are consumed, and the offset of the group passes it."""
    listener = Refusing()
    async with (
        Cluster(tmp_path, messageDelayLevel="1s 1s 1s 1s") as cluster,
        AdminClient(name_servers=cluster.name_servers) as admin,
    ):
        await admin.create_topic("t", 1, 1, attributes={"queue.type": queue_type})
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            bad = Message("t", b"bad", properties={"note": NOTE, "why": "short"})
            await producer.send_batch([bad, Message("t", b"good")])
            await producer.send(Message("t", b"behind"))
        consumer = PushConsumer(group, name_servers=cluster.name_servers, config=ONE_RETRY)
        consumer.subscribe("t", "*", listener)
        async with consumer:
            await listener.until(lambda: listener.bodies[b"bad"] == 2)
            letter = await dead_letter(cluster, group)
            await progress_passes(admin, group, {"t": 3, retry_topic(group): 1})
    assert listener.bodies == {b"bad": 2, b"good": 1, b"behind": 1}
    first, again = [message for message in listener.messages if message.body == b"bad"]
    assert (first.properties["note"], again.topic, again.reconsume_times) == (NOTE, "t", 1)
    for copy in (again, letter):
        assert (copy.body, copy.user_properties, copy.properties["__LEFT_OUT"]) == (b"bad", {"why": "short"}, "note")


async def test_a_long_tag_with_many_keys_does_not_cost_messages_that_are_merged(tmp_path: Path) -> None:
    """Each of them is accepted alone. Their batch would have all keys and the tag."""
    sent = [Message("t", b"%d" % number, "a" * 28_700, (f"{number}" * 2_000,)) for number in range(4)]
    async with (
        Cluster(tmp_path) as cluster,
        AdminClient(name_servers=cluster.name_servers) as admin,
    ):
        await admin.create_topic("t", 1, 1, attributes={"queue.type": "BatchCQ"})
        async with Producer("p", name_servers=cluster.name_servers, auto_batch=True) as producer:
            results = await asyncio.gather(*(producer.send(message) for message in sent))
    assert sorted(result.queue_offset for result in results) == [0, 1, 2, 3]
