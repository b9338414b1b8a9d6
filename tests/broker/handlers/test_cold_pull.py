"""Pulls of non-resident messages: a thread reads them while the event loop continues. A read error is a response."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import cast

import pytest

from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.storage.fs.filesystem import File
from raptormq.storage.fs.real import RealFileSystem
from tests.broker.handlers.test_pop import pop
from tests.broker.harness import bodies, connected, running
from tests.storage.faulty_filesystem import FaultyFileSystem

MESSAGES = [b"%d" % number for number in range(20)]


class ColdDisk(FaultyFileSystem):
    """A disk whose commit log is not resident until it has been read once. Reads wait for :attr:`release`."""

    def __init__(self) -> None:
        super().__init__(RealFileSystem())
        self.release = threading.Event()
        self.release.set()
        self.broken = False
        self.warm = False
        self.serving = False
        """Set after the start, whose reads in a thread do not wait."""

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return cast("File", ColdFile(self, file)) if "/commitlog/" in path else file


class ColdFile:
    """A file of the log on a :class:`ColdDisk`."""

    def __init__(self, disk: ColdDisk, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def load(self, offset: int, size: int) -> None:
        self.read_at(offset, size)

    def read_at(self, offset: int, size: int) -> bytes:
        if self._disk.serving and threading.current_thread() is not threading.main_thread():
            self._disk.release.wait(30)
            if self._disk.broken:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._disk.warm = True
        return self._inner.read_at(offset, size)

    def read_cached(self, offset: int, size: int) -> bytes | bytearray | None:
        return self._inner.read_cached(offset, size) if self._disk.warm else None


async def fill(root: Path) -> None:
    async with running(root) as broker, connected(broker) as peer:
        assert (await peer.send_list("t", MESSAGES)).code == 0


@pytest.mark.parametrize(("fields", "expected"), [({}, MESSAGES[:8]), ({"maxMsgBytes": 100_000}, MESSAGES)])
async def test_a_cold_pull_does_not_stop_the_others(
    tmp_path: Path, fields: dict[str, int], expected: list[bytes]
) -> None:
    """Without ``maxMsgBytes`` a pull returns 8 messages, RocketMQ's limit for messages on the disk."""
    await fill(tmp_path)
    disk = ColdDisk()
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        disk.serving = True
        disk.release.clear()
        cold = asyncio.ensure_future(peer.pull("t", 0, **fields))
        await asyncio.sleep(0)
        assert (await peer.send("t", b"meanwhile", 1)).code == 0
        assert bodies(await peer.pull("t", 0, 1)) == [b"meanwhile"]
        assert not cold.done()
        disk.release.set()
        assert bodies(await cold) == expected


async def test_a_new_group_begins_with_the_oldest_message_though_that_has_left_the_memory(tmp_path: Path) -> None:
    """RocketMQ's rule depends on the distance of the message from the end of the log, not on the page cache."""
    await fill(tmp_path)
    disk = ColdDisk()
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        disk.serving = True
        queue: dict[str, object] = {"topic": "t", "queueId": 0, "consumerGroup": "g"}
        answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, queue)
        assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
        popped = await pop(peer, initMode=1)
        assert bodies(popped)[0] == MESSAGES[0]


async def test_a_disk_that_cannot_read_is_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await fill(tmp_path)
    disk = ColdDisk()
    disk.broken = True
    async with running(tmp_path, None, disk) as broker, connected(broker) as peer:
        disk.serving = True
        failed = await peer.pull("t", 0)
        assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "Input/output error" in (failed.remark or "")
        disk.broken = False
        assert bodies(await peer.pull("t", 0)) == MESSAGES[:8]
    assert "request code 11 failed" in caplog.text


async def test_a_client_that_leaves_during_a_cold_pull_is_forgotten(tmp_path: Path) -> None:
    await fill(tmp_path)
    disk = ColdDisk()
    async with running(tmp_path, None, disk) as broker, connected(broker) as other:
        disk.serving = True
        disk.release.clear()
        async with connected(broker) as peer:
            lost = asyncio.ensure_future(peer.pull("t", 0))
            await asyncio.sleep(0)
            await other.send("t", b"x", 1)
        await asyncio.gather(lost, return_exceptions=True)
        disk.release.set()
        assert bodies(await other.pull("t", 0))[:8] == MESSAGES[:8]
