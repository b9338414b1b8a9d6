"""Messages of Java found with RaptorMQ's tools, and messages of the Python client found with Java's tools."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from raptormq.client import AdminClient, Message, Producer
from tests.interop.mqadmin import Place, run
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


async def test_a_message_of_the_java_client_is_found_by_its_key_and_its_ids(tmp_path: Path) -> None:
    with RaptorMQDev(tmp_path / "servers") as servers:
        async with AdminClient(name_servers=servers.name_servers) as admin:
            await admin.create_topic("orders", 1, 1)
            place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", tmp_path)
            command = ["sendMessage", "-t", "orders", "-k", "17", "-c", "paid", "-p", "17 books"]
            [output] = await asyncio.to_thread(run, build(), place, [command])
            [found] = await admin.find_messages("orders", "17")
            assert (found.body, found.tags, found.keys) == (b"17 books", "paid", ("17",))
            assert found.message_id in output
            assert await admin.find_messages("orders", found.message_id) == [found]
            assert await admin.message(found.offset_message_id) == found


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
async def test_mqadmin_finds_every_message_of_a_list_by_its_id(tmp_path: Path, queue_type: str) -> None:
    with RaptorMQDev(tmp_path / "servers") as servers:
        async with AdminClient(name_servers=servers.name_servers) as admin:
            await admin.create_topic("lists", 1, 1, attributes={"queue.type": queue_type})
            async with Producer("p", name_servers=servers.name_servers) as producer:
                alike = [Message("lists", b"%d" % number) for number in range(3)]
                mixed = [Message("lists", b"keyed", "A", ("k",)), Message("lists", b"own", properties={"n": "1"})]
                sent = [await producer.send_batch(messages) for messages in (alike, mixed)]
        ids = [each for result in sent for each in result.message_id.split(",")]
        unknown = "0A0000010000000000000000000000FF"
        commands = [["queryMsgByUniqueKey", "-t", "lists", "-i", each] for each in (*ids, unknown, ids[1])]
        place = Place(servers.name_servers, f"127.0.0.1:{servers.broker_port}", tmp_path)
        outputs = await asyncio.to_thread(run, build(), place, commands)
    found = [re.findall(r"Queue Offset: +(\d+)|CODE: (208)", output) for output in outputs]
    assert found == [[(str(number), "")] for number in range(5)] + [[("", "208")], [("1", "")]]
