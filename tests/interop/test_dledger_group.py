"""The official Java client writes to a Dledger group of ours while its leader is killed, and reads everything back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raptormq.client import AdminClient
from tests.faults.dledger_processes import dledger_group
from tests.interop.rocketmq_java import Release, build, java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "ledger"
COUNT = 400
CONSUMER = "io.raptormq.interop.consume.PrintMessages"
PRODUCER = "io.raptormq.interop.produce.SendLedger"
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def class_path() -> str:
    """The Java programs, built before a test begins to count its time."""
    return build().client_class_path(Release.NEWEST)


async def test_the_java_client_goes_on_with_the_next_leader(tmp_path: Path, class_path: str) -> None:
    async with dledger_group(tmp_path) as processes, AdminClient(name_servers=processes.name_server) as admin:
        leader = await processes.leader(admin)
        await admin.create_topic(TOPIC, 1, 1)
        arguments = [processes.name_server, TOPIC, str(COUNT), "1000"]
        producer = java(PRODUCER, arguments, class_path=class_path, log=tmp_path / "producer.log")
        try:
            await asyncio.to_thread(producer.wait_for, "acknowledged", TIMEOUT_S)
            processes.kill(leader)
            lines = await asyncio.to_thread(producer.finish, TIMEOUT_S)
        finally:
            producer.kill()
        acknowledged = [line.split()[1] for line in lines if line.startswith("acknowledged ")]
        assert len(acknowledged) == COUNT
        await processes.leader(admin, other_than=leader)

        (queue,) = await admin.topic_stats(TOPIC)
        stored = (await admin.topic_stats(TOPIC))[queue].max_offset
        arguments = [processes.name_server, TOPIC, str(stored)]
        consumer = java(CONSUMER, arguments, class_path=class_path, log=tmp_path / "consumer.log")
        try:
            lines = await asyncio.to_thread(consumer.finish, TIMEOUT_S)
        finally:
            consumer.kill()
        (line,) = [line for line in lines if line.startswith("messages ")]
        found = [body for _, _, body in json.loads(line.removeprefix("messages "))]
        assert [number for number in acknowledged if found.count(number) != 1] == []
        assert found == sorted(found, key=int)
