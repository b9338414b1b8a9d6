"""A broker process that replaces its broker on request, and is stopped meanwhile."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from raptormq.broker.config import BrokerConfig
from raptormq.cli import broker as command


class Replacement:
    """Replacement for a broker that requests one restart and stops slowly."""

    made: list[Replacement]
    may_stop: asyncio.Event

    def __init__(self, _config: BrokerConfig) -> None:
        self.calls: list[str] = []
        self.stopping = asyncio.Event()
        self.made.append(self)

    async def start(self) -> None:
        self.calls.append("start")

    async def wait_restart_wanted(self) -> None:
        if len(self.made) > 1:
            await asyncio.Event().wait()

    async def stop(self) -> None:
        self.stopping.set()
        await self.may_stop.wait()
        self.calls.append("closed")


async def test_a_stop_during_a_restart_waits_until_the_store_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    Replacement.made, Replacement.may_stop = [], asyncio.Event()
    monkeypatch.setattr(command, "Broker", Replacement)
    server = command._Restarting(cast("BrokerConfig", None))
    await server.start()
    await Replacement.made[0].stopping.wait()
    stop = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    Replacement.may_stop.set()
    await stop
    assert [each.calls for each in Replacement.made] == [["start", "closed"], ["start", "closed"]]
