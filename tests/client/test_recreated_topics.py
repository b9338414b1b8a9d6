"""A topic that is deleted and recreated while a group consumes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from raptormq.client import AdminClient, PushConsumer
from tests.client.consumer.test_push_consumer import FAST, Collector, readers, send
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually


@pytest.mark.parametrize("count", [5, 50], ids=["fewer", "more"])
async def test_nothing_of_the_new_topic_is_missed(tmp_path: Path, count: int) -> None:
    collector = Collector()
    old, new = [b"old %d" % number for number in range(20)], [b"new %d" % number for number in range(count)]
    async with Cluster(tmp_path) as cluster, AdminClient(name_servers=cluster.name_servers) as admin:
        await cluster.create_topic("t", 4)
        await send(cluster, old)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=FAST)
        consumer.subscribe("t", "*", collector)
        async with consumer:
            await collector.until(lambda: len(collector.messages) == len(old))
            assert [reader.process_queue for reader in readers(consumer) if reader.queue.topic == "t"].count(None) == 0
            before = [reader.process_queue for reader in readers(consumer)]
            await admin.delete_topic("t")
            await eventually(
                lambda: not [r for r in readers(consumer) if r.queue.topic == "t" and r.process_queue in before]
            )
            await cluster.create_topic("t", 2)
            await send(cluster, new)
            await collector.until(lambda: collector.bodies == Counter(old) + Counter(new))
