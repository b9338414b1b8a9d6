"""Producer and consumer with a network that delays, corrupts and loses data and resets connections: every acknowledged
message arrives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from raptormq.client import (
    ClientConfig,
    ConsumeFromWhere,
    ConsumerConfig,
    Message,
    MessageExt,
    Producer,
    ProducerConfig,
    PushConsumer,
)
from raptormq.errors import RaptorMQError
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually
from tests.client.faulty_proxy import Fault, FaultyProxy

SENDERS = 8
EPISODES = 3
SEED = 40


@pytest.mark.parametrize("fault", [*Fault, None], ids=lambda fault: "cut" if fault is None else fault.name.lower())
@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "batched"])
async def test_what_is_acknowledged_arrives(tmp_path: Path, fault: Fault | None, auto_batch: bool) -> None:
    acknowledged: list[bytes] = []
    failures: list[RaptorMQError] = []
    received: Counter[bytes] = Counter()
    is_over = False

    async def listener(messages: list[MessageExt]) -> None:
        received.update(message.body for message in messages)

    async def write(producer: Producer, sender: int) -> None:
        number = 0
        while not is_over:
            number += 1
            body = b"%d-%d" % (sender, number)
            try:
                await producer.send(Message("t", body), timeout=1)
            except RaptorMQError as error:
                failures.append(error)
            else:
                acknowledged.append(body)

    async with Cluster(tmp_path, brokerIP1="127.0.0.2") as cluster:
        port = int(cluster.broker().address.rpartition(":")[2])
        async with FaultyProxy("127.0.0.2", "127.0.0.1", port, SEED) as proxy:
            await cluster.create_topic("t")
            client = ClientConfig(cluster.name_servers, request_timeout=1)
            writes = ProducerConfig(auto_batch=auto_batch, send_timeout=1)
            reads = ConsumerConfig(
                consume_from=ConsumeFromWhere.FIRST, commit_interval=0.2, pull_suspend=1, pull_timeout=2
            )
            async with (
                Producer("p", client_config=client, config=writes) as producer,
                PushConsumer("g", client_config=client, config=reads) as consumer,
            ):
                consumer.subscribe("t", "*", listener)
                writing = [asyncio.ensure_future(write(producer, sender)) for sender in range(SENDERS)]
                for _ in range(EPISODES):
                    before = len(acknowledged)
                    await eventually(lambda: len(acknowledged) >= before + 200)  # noqa: B023 - awaited in this turn
                    if fault is None:
                        connections = proxy.connections
                        proxy.cut()
                        await eventually(lambda: proxy.connections > connections)  # noqa: B023
                        continue
                    proxy.begin(fault)
                    seen = len(acknowledged) + len(failures)
                    await eventually(lambda: len(acknowledged) + len(failures) >= seen + 3 * SENDERS)  # noqa: B023
                    proxy.end()
                is_over = True
                await asyncio.gather(*writing)
                await eventually(lambda: set(acknowledged) <= set(received))
    assert max(Counter(acknowledged).values()) == 1
    if fault is Fault.SILENCE:
        assert failures, "a send without a response is not acknowledged"
