"""A batch that no consumer can take apart, in the middle of a topic: a push consumer says so and goes on behind it."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from raptormq.client import (
    AdminClient,
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
from raptormq.errors import RecordError
from raptormq.protocol.batch import encode_batch
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.inner_batch import INNER_BATCH
from raptormq.protocol.record import SysFlag
from raptormq.transport.pool import ConnectionPool
from tests.broker.harness import send_fields
from tests.client.cluster import Cluster

FAST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST, commit_interval=0.1, rebalance_interval=0.2)
QUEUE = MessageQueue("t", "broker-0", 0)
COMPRESSED = INNER_BATCH | int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
GOOD = encode_batch([(0, b"a", b"UNIQ_KEY\x01A\x02"), (0, b"b", b"UNIQ_KEY\x01B\x02")])
BAD = {
    "bomb": zlib.compress(encode_batch([(0, bytes(65 << 20), b"")])),
    "garbage": b"garbage",
    "record cut": zlib.compress(GOOD[:-1]),
    "count lies": zlib.compress(GOOD + GOOD),
}


async def fill(cluster: Cluster, bad: bytes) -> None:
    """Two messages, a bad batch that says that it has two, and two messages."""
    async with AdminClient(name_servers=cluster.name_servers) as admin:
        await admin.create_topic("t", 1, 1, attributes={"queue.type": "BatchCQ"})
        while await admin.route("t") is None:
            await asyncio.sleep(0.01)
    pool = ConnectionPool()
    async with Producer("p", name_servers=cluster.name_servers) as producer:
        await producer.send_batch([Message("t", b"0"), Message("t", b"1")])
        fields = send_fields("t", 0, "UNIQ_KEY\x01BAD\x02INNER_NUM\x012\x02") | {"f": COMPRESSED}
        text = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, text, bad)
        assert (await pool.request(cluster.broker().address, command, 10.0)).code == 0
        await producer.send_batch([Message("t", b"4"), Message("t", b"5")])
    await pool.close()


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("whole", [False, True], ids=["messages", "batches"])
async def test_a_push_consumer_goes_on_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whole: bool, bad: bytes
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

    async with Cluster(tmp_path) as cluster:
        await fill(cluster, bad)
        async with PushConsumer("g", name_servers=cluster.name_servers, config=FAST) as consumer:
            if whole:
                consumer.subscribe_batches("t", "*", batches)
            else:
                consumer.subscribe("t", "*", each)
            await done.wait()
        async with PullConsumer(name_servers=cluster.name_servers) as pulls:
            with pytest.raises(RecordError):
                (await pulls.pull(QUEUE, 2, 32)).messages()
            assert [each.body for each in (await pulls.pull(QUEUE, 4, 32)).messages()] == [b"4", b"5"]
            assert await pulls.max_offset(QUEUE) == 6
    assert sorted(seen) == [b"0", b"1", b"4", b"5"]
    assert "what is at offset 2 of t@broker-0:0 cannot be consumed" in caplog.text
