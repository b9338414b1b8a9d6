"""A broker that was killed while its volume was full starts again on the full volume."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand
from tests.faults.broker_process import Client, process
from tests.faults.conftest import SmallVolume

COUNT = 300
BODY = b"x" * 50_000
SETTINGS = {
    "mappedFileSizeCommitLog": "1M", "maxHashSlotNum": "5000", "maxIndexNum": "20000",
    "diskSpaceWarningLevelRatio": "100",
}  # fmt: skip
NEVER, AT_ONCE = {"cleanResourceInterval": "3600000"}, {"cleanResourceInterval": "100"}


async def send(client: Client, body: bytes) -> int:
    fields = {
        "a": "group", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": "UNIQ_KEY\x01k\x02",
    }  # fmt: skip
    return (await client.call(RequestCode.SEND_MESSAGE_V2, fields, body)).code


async def pull(client: Client, offset: int) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": "g", "topic": "t", "queueId": 0, "queueOffset": offset, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    return await client.call(RequestCode.PULL_MESSAGE, fields)


def fill(root: Path) -> Path:
    """Fill the volume to the last byte."""
    ballast = root / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return ballast


async def test_a_killed_broker_starts_on_the_full_volume(small_volume: SmallVolume, free_port: int) -> None:
    root = small_volume.root
    settings = SETTINGS | NEVER | {"storePathRootDir": str(root / "store")}
    client = Client(free_port)
    async with process(root.parent, free_port, settings) as server:
        for number in range(COUNT):
            assert await send(client, b"%d:" % number + BODY) == ResponseCode.SUCCESS
        server.terminate()
        assert await asyncio.to_thread(server.wait) == 0
    async with process(root.parent, free_port, settings) as server:
        ballast = fill(root) if small_volume.mounted else None
        assert await send(client, b"%d:" % COUNT) == ResponseCode.SUCCESS
        server.kill()
        await asyncio.to_thread(server.wait)
    if ballast is not None:
        fill(root)
    async with process(root.parent, free_port, settings) as server:
        for number in (0, COUNT - 1, COUNT):
            assert b"%d:" % number in (await pull(client, number)).body
        server.kill()
        await asyncio.to_thread(server.wait)
    if ballast is not None:
        fill(root)
    segments = len(os.listdir(root / "store/commitlog"))
    async with process(root.parent, free_port, settings | AT_ONCE):
        if small_volume.mounted:
            while len(os.listdir(root / "store/commitlog")) >= segments:
                await asyncio.sleep(0.05)
        while (code := await send(client, b"%d:" % (COUNT + 1))) != ResponseCode.SUCCESS:
            assert code == ResponseCode.SERVICE_NOT_AVAILABLE
            await asyncio.sleep(0.05)
        for number in (COUNT, COUNT + 1):
            assert b"%d:" % number in (await pull(client, number)).body
    await client.close()
