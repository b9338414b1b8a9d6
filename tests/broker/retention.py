"""Retention on demand: the test makes segments look old and requests their deletion."""

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
    """Set the modification time of all complete segments to this long ago, and return them."""
    *old, _, _ = sorted(log.iterdir())  # one is being written, one is preallocated
    then = time.time() - hours * 3600
    for segment in old:
        os.utime(segment, (then, then))
    return old


async def delete_what_is_stored(root: Path, broker: Broker, peer: Peer) -> None:
    """Let retention delete every message of a broker with `SHORT_SEGMENTS`, and store other messages in topic
    `filler`.
    """
    for _ in range(8):
        answer = await peer.send("filler", b"x" * 50_000)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    while broker._store.flushed_offset < broker._store.end_offset:
        await asyncio.sleep(0.01)
    old = age(root / "commitlog", 25)
    assert (await peer.call(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS
    assert [segment for segment in old if segment.exists()] == []
