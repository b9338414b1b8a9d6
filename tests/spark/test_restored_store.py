"""A store that is restored from a backup and has grown past the checkpoint of a query: the query ends, and skips
nothing.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_raptormq.commands import spark as commands
from raptormq.client import Message
from tests.spark.sending import send
from tests.spark.servers import Servers
from tests.spark.test_streaming_query import Sink, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC, COUNT, QUEUES = "restored", 40, 2


def numbered(name: str) -> list[Message]:
    return [Message(TOPIC, b"x", keys=(f"{name}{number}",)) for number in range(COUNT)]


def keys(messages: list[Message]) -> Counter[str]:
    return Counter(message.keys[0] for message in messages)


async def test_query_ends_when_a_restored_store_has_grown_past_its_checkpoint(
    spark: SparkSession, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    servers = Servers(tmp_path, free_ports(2))
    checkpoint, store, backup = tmp_path / "checkpoint", tmp_path / "store", tmp_path / "backup"

    async def put(name: str) -> list[Message]:
        messages = numbered(name)
        await asyncio.to_thread(send, servers.name_server, messages, QUEUES)
        return messages

    async def read(**options: str) -> Counter[str]:
        sink = Sink()
        await asyncio.to_thread(run, spark, servers.name_server, TOPIC, checkpoint, sink, **options)
        return sink.keys

    async with servers.names():
        async with servers.broker():
            await servers.create(TOPIC, queues=QUEUES)
            old = await put("old")
        shutil.copytree(store, backup)
        async with servers.broker():
            lost = await put("lost")
            assert await read() == keys(old + lost)
        async with servers.broker():
            more = await put("more")
            assert await read() == keys(more), "a restart is no restore"
        shutil.rmtree(store)
        backup.rename(store)
        async with servers.broker():
            new = await put("new") + await put("newer") + await put("newest")
            with pytest.raises(StreamingQueryException, match="was restored from a backup") as failed:
                await read()
            after = str(failed.value).split("--to ")[1].split("'")[0]
            words = ["offsets", "rewrite", str(checkpoint), "--to", after, "-n", servers.name_server, "--yes"]
            done = await asyncio.to_thread(CliRunner().invoke, commands, words)
            assert done.exit_code == 0, done.output
            assert await read() == keys(new)
            assert await read() == Counter()
