"""Retention on order: the log's older segments look old, and the broker is told to delete them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from raptormq.broker.broker import Broker
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import Peer

SHORT_SEGMENTS = {"mappedFileSizeCommitLog": "128K", "fileReservedTime": "24"}


def age(log: Path, hours: int) -> list[Path]:
    """Let all finished segments look as if nothing had been written to them for so long; returns them."""
    *old, _, _ = sorted(log.iterdir())  # one is being written, one is made ahead
    then = time.time() - hours * 3600
    for segment in old:
        os.utime(segment, (then, then))
    return old


async def delete_what_is_stored(root: Path, broker: Broker, peer: Peer) -> None:
    """Let retention take every message that a broker with `SHORT_SEGMENTS` has; others are in topic `filler` then."""
    for _ in range(8):
        answer = await peer.send("filler", b"x" * 50_000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    while broker._store.flushed_offset < broker._store.end_offset:
        await asyncio.sleep(0.01)
    old = age(root / "commitlog", 25)
    assert (await peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS
    assert [segment for segment in old if segment.exists()] == []
