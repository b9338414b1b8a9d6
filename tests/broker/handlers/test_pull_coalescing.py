"""Pulls that are answered together, over a real socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raptormq.broker.broker import Broker
from raptormq.broker.pull import answer_batching
from raptormq.broker.pull.answer_batching import PullCoalescer
from raptormq.protocol.codes import RequestCode, ResponseCode
from tests.broker.harness import assembly_of, bodies, connected, held, running

LONG = 20_000


@pytest.fixture
def busy_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with which every load counts as high, and the next batch of answers is far away."""
    monkeypatch.setattr(answer_batching, "BUSY_BYTES_PER_MS", 0)
    monkeypatch.setattr(answer_batching, "COALESCE_MS", 60_000)


def coalescer_of(broker: Broker) -> PullCoalescer[Any]:
    return assembly_of(broker).pulls._coalescer


async def awaited(broker: Broker, pulls: int, arrivals: int) -> None:
    """Wait until this number of pulls waits for the next batch of answers."""
    coalescer = coalescer_of(broker)
    while (len(coalescer._pulls), len(coalescer._arrivals)) != (pulls, arrivals):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("busy_log")
async def test_while_much_arrives_pulls_are_answered_together(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as producer:
        coalescer = coalescer_of(broker)
        await producer.send("t", b"0")
        coalescer.flush()
        early = asyncio.ensure_future(peer.pull("t", 1, wait_ms=LONG))
        await held(peer, 1)
        late = asyncio.ensure_future(peer.pull("t", 0, wait_ms=LONG))
        await awaited(broker, 1, 0)
        impatient = await peer.pull("t", 0)
        await producer.send("t", b"1")
        await producer.send("t", b"2")
        await awaited(broker, 1, 2)
        assert not early.done()
        coalescer.flush()
        found = [bodies(await each) for each in (early, late)]
    assert (bodies(impatient), found) == ([b"0"], [[b"1", b"2"], [b"0", b"1", b"2"]])


@pytest.mark.usefixtures("busy_log")
async def test_a_pull_whose_topic_goes_before_the_wave_is_told_so(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer, connected(broker) as admin:
        await admin.send("t", b"0")
        coalescer_of(broker).flush()
        waiting = asyncio.ensure_future(peer.pull("t", 0, wait_ms=LONG))
        await awaited(broker, 1, 0)
        await admin.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
        coalescer_of(broker).flush()
        assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.usefixtures("busy_log")
async def test_a_stop_answers_what_waits_for_the_wave(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as peer:
        await peer.send("t", b"0")
        coalescer_of(broker).flush()
        waiting = asyncio.ensure_future(peer.pull("t", 0, wait_ms=LONG))
        await awaited(broker, 1, 0)
        await broker.stop()
        assert bodies(await waiting) == [b"0"]
