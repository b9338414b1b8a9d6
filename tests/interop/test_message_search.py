"""What Java has sent, found with our own tools."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.client import AdminClient
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
