"""Warnings about event loops that are blocked."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType
from weakref import ref

import pytest

from raptormq.client import ConsumeFromWhere, ConsumerConfig, Message, MessageExt, Producer, PushConsumer
from raptormq.client.cluster import loop_watch
from raptormq.client.cluster.loop_watch import LoopWatch
from tests.client.embedded_cluster import Cluster
from tests.client.eventually import eventually

LOGGER = "raptormq.client.cluster.loop_watch"
THREAD = "raptormq-loop-watch"
LIMIT_S = 60.0


class Warnings(logging.Handler):
    """Collects the warnings, and lets a thread wait for the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.stacks: list[str] = []
        self.texts: list[str] = []
        self.one = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.stacks.append(record.exc_text or "")
        self.one.set()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> Warnings:
    handler = Warnings()
    monkeypatch.setattr(loop_watch, "ASK_INTERVAL_S", 0.01)
    monkeypatch.setattr(loop_watch, "BLOCKED_S", 0.2)
    monkeypatch.setattr(logging.getLogger(LOGGER), "handlers", [handler])
    return handler


def watching() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD]


async def test_a_frame_between_two_lines_is_part_of_the_stack(
    warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traceback, "walk_stack", lambda frame: iter([(frame, None)]))
    watch = LoopWatch.acquire()
    watch._warn()
    watch.release()
    assert len(warnings.texts) == 1


async def test_a_listener_that_blocks_the_loop_is_reported_with_its_stack(tmp_path: Path, warnings: Warnings) -> None:
    reported = asyncio.Event()

    async def block_the_loop(_: list[MessageExt]) -> None:
        if warnings.one.wait(LIMIT_S):
            reported.set()

    async with Cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1)
        async with Producer("p", name_servers=cluster.name_servers) as producer:
            await producer.send(Message("t", b"x"))
        config = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)
        consumer = PushConsumer("g", name_servers=cluster.name_servers, config=config)
        consumer.subscribe("t", "*", block_the_loop)
        async with consumer:
            await reported.wait()
    assert "blocked for 0.2 s" in warnings.texts[0]
    assert "in block_the_loop\n" in warnings.stacks[0]
    assert "if warnings.one.wait(LIMIT_S)" in warnings.stacks[0]


async def test_a_line_is_reported_once_per_minute(warnings: Warnings) -> None:
    now = 0.0

    def one_place() -> FrameType:
        return sys._getframe()

    def another_place() -> FrameType:
        return sys._getframe()

    watch = LoopWatch(lambda: now)
    watch._ended.set()
    assert watch._is_due(one_place())
    now = 59.0
    assert not watch._is_due(one_place())
    assert watch._is_due(another_place())
    now = 61.0
    assert watch._is_due(one_place())


def test_a_loop_that_does_not_run_is_not_reported(warnings: Warnings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    loop = asyncio.new_event_loop()

    async def watch() -> None:
        LoopWatch.acquire()

    def ask(*_: object) -> None:
        asked.set()

    monkeypatch.setattr(loop, "call_soon_threadsafe", ask)
    loop.run_until_complete(watch())
    assert asked.wait(LIMIT_S)
    loop.close()
    for thread in watching():
        thread.join(LIMIT_S)
    assert not warnings.texts


async def test_watching_ends_with_the_last_client(warnings: Warnings) -> None:
    before = set(watching())  # a thread of an earlier test may end at any time
    first, second = LoopWatch.acquire(), LoopWatch.acquire()
    assert first is second
    [thread] = set(watching()) - before
    first.release()
    assert not first._ended.is_set()
    assert thread.is_alive()
    second.release()
    await eventually(lambda: not thread.is_alive())
    assert not warnings.texts


def test_watching_ends_with_the_loop(warnings: Warnings) -> None:
    before = len(watching())

    async def forget() -> ref[asyncio.AbstractEventLoop]:
        LoopWatch.acquire()
        return ref(asyncio.get_running_loop())

    loop = asyncio.run(forget())
    for thread in watching():
        thread.join(LIMIT_S)
    gc.collect()
    assert loop() is None
    assert len(watching()) <= before
    assert not warnings.texts
