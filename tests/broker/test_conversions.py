"""Background processing of conversions, and its interruptions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.broker import conversions
from raptormq.errors import StorageError
from raptormq.protocol.codes import RequestCode
from raptormq.storage.conversion.job import QueueTypes
from raptormq.storage.conversion.manager import QueueConverter
from tests.broker.handlers.test_conversions import cancel_and_wait, order, queue_type, send
from tests.broker.harness import bodies, connected, running


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_is_stopped_or_deleted_before_it_begins_is_not_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, deleted: bool
) -> None:
    tidy = QueueConverter.save_ledger
    waiting, answered = asyncio.Event(), asyncio.Event()

    async def long(self: QueueConverter) -> None:
        if self.types() and not waiting.is_set():
            waiting.set()
            await answered.wait()
        await tidy(self)

    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        await peer.send("other", b"x")
        monkeypatch.setattr(QueueConverter, "save_ledger", long)
        await order(peer, "start", "BatchCQ")
        await waiting.wait()
        if deleted:
            assert (await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})).code == 0
            await send(peer, "b")
        else:
            assert (await order(peer, "stop")).phase == "stopped"
        answered.set()
        await order(peer, "start", "BatchCQ", topic="other")
        await cancel_and_wait(peer, "other")
        assert (await order(peer, "status")).phase == ("none" if deleted else "stopped")
        assert await queue_type(peer) == "SimpleCQ"
        assert bodies(await peer.pull("t", 0)) == [b"b" if deleted else b"a"]
    assert "failed" not in caplog.text


async def test_a_failure_that_cannot_be_recorded_stops_no_other_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    convert, record = QueueConverter.convert, QueueConverter.fail
    failures = 0

    async def failing_at_first(self: QueueConverter, topic: str, types: QueueTypes) -> bool:
        if not failures:
            raise RuntimeError("planted")
        return await convert(self, topic, types)

    async def not_recorded(self: QueueConverter, topic: str, types: QueueTypes, remark: str) -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StorageError("full")
        await record(self, topic, types, remark)

    monkeypatch.setattr(QueueConverter, "convert", failing_at_first)
    monkeypatch.setattr(QueueConverter, "fail", not_recorded)
    monkeypatch.setattr(conversions, "_PAUSE_S", 0.0)
    async with running(tmp_path) as broker, connected(broker) as peer:
        await send(peer, "a")
        await order(peer, "start", "BatchCQ")
        while await queue_type(peer) != "BatchCQ":
            await order(peer, "status")
    assert "the failure of the conversion of topic t cannot be recorded" in caplog.text
