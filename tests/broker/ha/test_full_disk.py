"""A slave with a full disk reports this, serves its messages, and catches up when there is space."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from raptormq.protocol.codes import ResponseCode
from raptormq.storage.fs import RealFileSystem
from tests.broker.ha.pair import become, end_of, pair, read, slave_of
from tests.broker.harness import connected
from tests.storage.faulty_filesystem import Fault, FaultyFileSystem


@pytest.mark.parametrize("kind", ["write", "allocate"])
async def test_a_slave_without_room(tmp_path: Path, free_ports: Callable[[int], list[int]], kind: str) -> None:
    disk = FaultyFileSystem(RealFileSystem())
    more = {"mappedFileSizeCommitLog": "1M"}
    async with pair(tmp_path, free_ports(2)) as brokers:
        master = await brokers.master("SYNC_MASTER", more)
        slave = await brokers.slave(1, more, disk)
        async with connected(master) as peer, connected(slave) as other:
            await become(lambda: slave_of(slave).facts()["haConnected"] == "true")
            assert (await peer.send("t", b"one")).code == ResponseCode.SUCCESS
            disk.faults.append(Fault(kind=kind, path="commitlog", error=errno.ENOSPC, repeats=True))
            codes = {(await peer.send("t", b"x" * 100_000)).code for _ in range(30)}
            assert codes & {ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
            await become(lambda: "No space left" in slave_of(slave).facts().get("haReason", ""))
            assert (await read(other, "t", 1))[0] == b"one"
            disk.faults.clear()
            await become(lambda: end_of(slave) == end_of(master))
            await become(lambda: slave_of(slave).facts().get("haReason") is None)
            assert len(await read(other, "t", 31)) == 31
