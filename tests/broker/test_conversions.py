"""Background processing of conversions, and its interruptions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raptormq.protocol.codes import RequestCode
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
