"""The Python client and a RaptorMQ broker with a BatchCQ topic: batches are sent, compressed, encrypted, consumed and
retried.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Credentials,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
)
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.signing import sign
from tests.broker.harness import connected, messages
from tests.client.embedded_cluster import Cluster
from tests.client.single_key import OneKey

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.1, rebalance_interval=0.2)
QUEUE = MessageQueue("t", "broker-0", 0)
PLAIN = ProducerConfig(auto_batch=True, batch_max_delay_ms=20)
COMPRESSED = ProducerConfig(auto_batch=True, batch_max_delay_ms=20, compress_batches=True)
ENCRYPTED = ProducerConfig(auto_batch=True, batch_max_delay_ms=20, encrypt=True)


def client(cluster: Cluster) -> ClientConfig:
    return ClientConfig(cluster.name_servers, keys=OneKey())


async def create_topic(cluster: Cluster) -> None:
    async with AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.create_topic("t", 1, 1, attributes={"queue.type": "BatchCQ"})
        while await admin.route("t") is None:
            await asyncio.sleep(0.01)


async def let_consume(cluster: Cluster, root: Credentials, user: Credentials) -> None:
    """Permit a new user to read the topic `t` as the group `g`."""
    rights = [{"resource": each, "actions": ["Sub"], "decision": "Allow"} for each in ("Topic:t", "Group:g")]
    subject = f"User:{user.access_key}"
    asked = {
        RequestCode.AUTH_CREATE_USER: ({"username": user.access_key}, {"password": user.secret_key}),
        RequestCode.AUTH_CREATE_ACL: (
            {"subject": subject},
            {"policies": [{"policyType": "Custom", "entries": rights}]},
        ),
    }
    async with connected(cluster.broker()) as peer:
        for code, (fields, content) in asked.items():
            command = RemotingCommand(code, dict(fields), json.dumps(content).encode())
            sign(command, root)
            assert (await peer.connection.request(command, 5)).code == ResponseCode.SUCCESS


def body(number: int) -> bytes:
    return b"%d again and again " % number * 100


async def send(cluster: Cluster, config: ProducerConfig, count: int) -> None:
    """Send messages in batches of five. The first batch tells the client the type of the topic."""
    async with Producer("p", config=config, client_config=client(cluster)) as producer:
        for first in range(0, count, 5):
            sent = [producer.submit(Message("t", body(n), "A")) for n in range(first, first + 5)]
            await asyncio.gather(*sent)


@pytest.mark.parametrize("config", [PLAIN, COMPRESSED, ENCRYPTED], ids=["plain", "compressed", "encrypted"])
async def test_batches_are_consumed_whole_and_one_failed_message_comes_again_alone(
    tmp_path: Path, config: ProducerConfig
) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def listener(batch: MessageBatch) -> list[int]:
        numbers = [int(bytes(each).split()[0]) for each in batch.bodies()]
        seen.extend(numbers)
        if seen.count(7) == 2 and len(seen) == 21:
            done.set()
        return [index for index, number in enumerate(numbers) if number == 7 and seen.count(7) == 1]

    async with Cluster(tmp_path, messageDelayLevel="1s 1s 1s") as cluster:
        await create_topic(cluster)
        async with PushConsumer("g", client_config=client(cluster), config=FAST) as consumer:
            consumer.subscribe_batches("t", "*", listener)
            await send(cluster, config, 20)
            await done.wait()
        async with PullConsumer(group="g", client_config=client(cluster)) as reader:
            assert await reader.committed(QUEUE) == 20
    assert sorted(seen) == sorted([*range(20), 7])


@pytest.mark.parametrize("config", [PLAIN, COMPRESSED, ENCRYPTED], ids=["plain", "compressed", "encrypted"])
async def test_a_seek_into_a_batch_delivers_from_exactly_that_message(tmp_path: Path, config: ProducerConfig) -> None:
    async with Cluster(tmp_path) as cluster:
        await create_topic(cluster)
        await send(cluster, config, 20)
        async with PullConsumer(client_config=client(cluster)) as reader:
            stored = (await reader.pull(QUEUE, 10)).body
            assert (body(10) in stored) is (config is PLAIN)
            reader.assign([QUEUE])
            for start in (0, 3, 12, 19):
                reader.seek(QUEUE, start)
                found: list[MessageExt] = []
                while len(found) < 20 - start:
                    found += await reader.poll(5)
                assert [message.queue_offset for message in found] == list(range(start, 20))
                assert [message.body for message in found] == [body(n) for n in range(start, 20)]


async def test_a_batch_that_is_too_large_for_the_broker_to_take_apart_is_read_from_any_message(tmp_path: Path) -> None:
    """Send two messages, a batch of sixteen that has 16 MiB when decompressed, and two messages."""
    seen: list[int] = []
    done = asyncio.Event()

    async def listener(found: list[MessageExt]) -> None:
        seen.extend(message.queue_offset for message in found)
        if 19 in seen:
            done.set()

    async with Cluster(tmp_path) as cluster:
        await create_topic(cluster)
        settings = ProducerConfig(compress_batches=True, max_message_bytes=32 << 20)
        async with Producer("p", config=settings, client_config=client(cluster)) as producer:
            for size, count in ((1, 2), (1 << 20, 16), (1, 2)):
                await producer.send_batch([Message("t", bytes(size), "AB"[n % 2]) for n in range(count)], queue=QUEUE)
        for expression, wanted in (("*", [*range(7, 20)]), ("B", [*range(7, 20, 2)])):
            async with PullConsumer(client_config=client(cluster), group="g", expression=expression) as reader:
                reader.assign([QUEUE])
                reader.seek(QUEUE, 7)
                await reader.commit()
                found: list[int] = []
                while reader.position(QUEUE) != 20:
                    found += [message.queue_offset for message in await reader.poll(5)]
                assert found == wanted
        async with PushConsumer("g", client_config=client(cluster), config=FAST) as consumer:
            consumer.subscribe("t", "*", listener)
            await done.wait()
    assert sorted(seen) == [*range(7, 20)]


@pytest.mark.parametrize("config", [PLAIN, COMPRESSED], ids=["plain", "compressed"])
async def test_a_message_of_a_list_is_found_by_its_key(tmp_path: Path, config: ProducerConfig) -> None:
    async with Cluster(tmp_path) as cluster:
        await create_topic(cluster)
        async with Producer("p", config=config, client_config=client(cluster)) as producer:
            for start in (0, 5):  # the first tells the client the type of the topic
                numbers = range(start, start + 5)
                await producer.send_batch([Message("t", body(n), "A", (f"k{n}", "all")) for n in numbers], queue=QUEUE)
        async with connected(cluster.broker()) as peer:
            stored = messages(await peer.pull("t", 5))
            assert (body(7) in stored[0].body) is (config is PLAIN)
            fields = {"topic": "t", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
            for key, found in (("k7", [7]), ("all", [*range(10)])):
                answer = await peer.call(RequestCode.QUERY_MESSAGE, fields | {"key": key})
                assert sorted(each.body for each in messages(answer)) == [body(n) for n in found]


async def test_one_message_of_a_batch_becomes_a_dead_letter_by_the_rights_of_its_group_alone(tmp_path: Path) -> None:
    """Brokers do not create topics automatically, and the user may read the topic as the group."""
    root, alice = Credentials("root", "root-secret"), Credentials("alice", "alice-secret")
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username": "root", "password": "root-secret"}',
        "autoCreateTopicEnable": "false",
        "messageDelayLevel": "1s 1s 1s",
    }
    times: list[int] = []

    async def listener(received: list[MessageExt]) -> None:
        for message in received:
            if message.body == body(1):
                times.append(message.reconsume_times)
                raise ValueError(message)

    async with Cluster(tmp_path, 1, 1, **settings) as cluster:
        await let_consume(cluster, root, alice)
        of_root = ClientConfig(cluster.name_servers, credentials=root)
        async with AdminClient(client_config=of_root) as admin:
            await admin.create_topic("t", 1, 1, attributes={"queue.type": "BatchCQ"})
            async with Producer("p", client_config=of_root) as producer:
                await producer.send_batch([Message("t", body(n)) for n in range(3)])
            config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.1, max_reconsume_times=1)
            async with PushConsumer(
                "g", client_config=ClientConfig(cluster.name_servers, credentials=alice), config=config
            ) as consumer:
                consumer.subscribe("t", "*", listener)
                while "%DLQ%g" not in await admin.topics():
                    await asyncio.sleep(0.01)
        async with PullConsumer(group="g", client_config=of_root) as reader:
            assert await reader.committed(QUEUE) == 3
            [dead] = (await reader.pull(MessageQueue("%DLQ%g", "broker-0", 0), 0)).messages()
    assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (body(1), 2, "t")
    assert times == [0, 1]
