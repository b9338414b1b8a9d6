"""Delayed messages of a deleted topic are not delivered to a new topic with the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.harness import bodies, connected, running
from tests.clock import Clock

SETTINGS = {"messageDelayLevel": "1s", "timerPrecisionMs": "100"}


@pytest.mark.parametrize("properties", ["DELAY\x011\x02", "TIMER_DELAY_MS\x011000\x02"], ids=["level", "timer"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_only_what_was_sent_to_the_new_topic_comes(tmp_path: Path, properties: str, restarts: bool) -> None:
    clock = Clock()
    async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
        clock.hold()
        for name in (b"old", b"new"):
            await peer.send("t", b"now")
            assert (await peer.send("t", name, 0, properties)).code == 0
            if name == b"old":
                assert (await peer.call(215, {"topic": "t"})).code == 0
        if not restarts:
            clock.run()
            clock.move(2_000)
            assert bodies(await peer.pull("t", 1, wait_ms=20_000)) == [b"new"]
    if restarts:
        clock.run()
        clock.move(2_000)
        async with running(tmp_path, SETTINGS, clock=clock) as broker, connected(broker) as peer:
            assert bodies(await peer.pull("t", 1, wait_ms=20_000)) == [b"new"]
