"""A batch in a topic that no consumer can unpack: consumers report it and continue after it."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from raptormq.client import (
    AdminClient,
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageBatch,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from raptormq.client.message.encryption import decrypt
from raptormq.errors import KeyMissing, RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.encryption import encrypt_body
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import send_fields
from tests.client.embedded_cluster import Cluster

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.1, rebalance_interval=0.2)
QUEUE = MessageQueue("t", "broker-0", 0)
GOOD = encode_batch([(0, b"a", b"UNIQ_KEY\x01A\x02"), (0, b"b", b"UNIQ_KEY\x01B\x02")])
BAD = {
    "bomb": zlib.compress(encode_batch([(0, bytes(65 << 20), b"")])),
    "garbage": b"garbage",
    "record cut": zlib.compress(GOOD[:-1]),
    "count lies": zlib.compress(GOOD + GOOD),
    "wrong CRC": zlib.compress(GOOD[:11] + b"\1" + GOOD[12:]),
    "nested": zlib.compress(encode_batch([(0, b"a", b""), (0, GOOD, b"INNER_NUM\x012\x02")])),
    "lz4 cut": lz4.frame.compress(GOOD)[:-5],
    "zstd bomb": zstandard.compress(encode_batch([(0, bytes(65 << 20), b"")])),
    "encrypted with another key": encrypt_body(GOOD, 0, "k1", bytes(16), bytes(12)),
    "encrypted and cut": encrypt_body(GOOD, 0, "k1", b"k" * 16, bytes(12))[:-1],
}
FLAGS = {"lz4 cut": 0x101, "zstd bomb": 0x201, "encrypted with another key": 0, "encrypted and cut": 0}


class OneKey:
    """A key source with a wrong key for every encrypted batch."""

    def current(self) -> tuple[str, bytes]:
        return "k1", self.key("k1")

    def key(self, key_id: str) -> bytes:
        return key_id[:1].encode() * 16


async def fill(cluster: Cluster, bad: str) -> None:
    """Store two messages, a bad batch of two messages, and two messages."""
    async with AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.create_topic("t", 1, 1, attributes={"queue.type": "BatchCQ"})
        while await admin.route("t") is None:
            await asyncio.sleep(0.01)
    pool = ConnectionPool()
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        await producer.send_batch([Message("t", b"0"), Message("t", b"1")])
        flags = INNER_BATCH | FLAGS.get(bad, 0x301)
        mark = "" if flags & 1 else "__ENCRYPTION_KEY\x01k1\x02"
        fields = send_fields("t", 0, f"UNIQ_KEY\x01BAD\x02INNER_NUM\x012\x02{mark}") | {"f": flags}
        text = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, text, BAD[bad])
        assert (await pool.request(cluster.broker().address, command, 10.0)).code == 0
        await producer.send_batch([Message("t", b"4"), Message("t", b"5")])
    await pool.close()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("whole", [False, True], ids=["messages", "batches"])
async def test_a_push_consumer_goes_on_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whole: bool, bad: str
) -> None:
    seen: list[bytes] = []
    done = asyncio.Event()

    def note(bodies: list[bytes]) -> None:
        seen.extend(bodies)
        if b"5" in seen:
            done.set()

    async def each(messages: list[MessageExt]) -> None:
        note([message.body for message in messages])

    async def batches(batch: MessageBatch) -> None:
        note([bytes(body) for body in batch.bodies()])

    decrypt(encrypt_body(b"", 0, "k1", b"k" * 16, bytes(12)), OneKey())  # the key is valid
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, bad)
        config = ClientConfig(cluster.name_servers, keys=OneKey())
        async with PushConsumer("g", client_config=config, config=FAST) as consumer:
            if whole:
                consumer.subscribe_batches("t", "*", batches)
            else:
                consumer.subscribe("t", "*", each)
            await done.wait()
        async with PullConsumer(client_config=config) as pulls:
            with pytest.raises(RecordError):
                (await pulls.pull(QUEUE, 2, 32)).messages()
            assert [each.body for each in (await pulls.pull(QUEUE, 4, 32)).messages()] == [b"4", b"5"]
            assert await pulls.max_offset(QUEUE) == 6
    assert sorted(seen) == [b"0", b"1", b"4", b"5"]
    assert "the message at offset 2 of t@broker-0:0 cannot be consumed" in caplog.text


async def test_a_pull_consumer_is_told_once_and_goes_on_behind_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, "count lies")
        async with PullConsumer(name_servers=cluster.name_servers, group="g") as consumer:
            consumer.assign([QUEUE])
            assert [each.body for each in await consumer.poll(5)] == [b"0", b"1"]
            assert consumer.position(QUEUE) == 2
            with pytest.raises(
                RecordError, match=r"the message at offset 2 of t@broker-0:0 cannot be read and is skipped"
            ):
                await consumer.poll(5)
            assert consumer.position(QUEUE) == 4
            assert [each.body for each in await consumer.poll(5)] == [b"4", b"5"]


@pytest.mark.parametrize(("offset", "expression"), [(3, "*"), (2, "A")], ids=["inside", "by tag"])
async def test_who_needs_messages_of_it_is_told_too(tmp_path: Path, offset: int, expression: str) -> None:
    """The broker cannot find them and returns nothing."""
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, "count lies")
        async with PullConsumer(name_servers=cluster.name_servers, group="g", expression=expression) as consumer:
            consumer.assign([QUEUE])
            consumer.seek(QUEUE, offset)
            with pytest.raises(RecordError, match=r"the message at offset 2 of .* is skipped"):
                await consumer.poll(5)
            assert consumer.position(QUEUE) == 4


async def test_a_pull_consumer_stays_before_what_it_has_no_key_for(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, "encrypted with another key")
        config = ClientConfig(cluster.name_servers, keys=None)
        async with PullConsumer(client_config=config) as consumer:
            consumer.assign([QUEUE])
            assert [each.body for each in await consumer.poll(5)] == [b"0", b"1"]
            for _ in range(2):
                with pytest.raises(KeyMissing, match="k1"):
                    await consumer.poll(5)
                assert consumer.position(QUEUE) == 2
