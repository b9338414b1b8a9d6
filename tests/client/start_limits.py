"""Starts that fail at their time limit, independent of the speed of the machine."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from raptormq.client.consumer.rebalance import Rebalancer


def count_from_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the limit of a start begin when the consumer has tried all topics once, so that the cause of an error is
    known at its end.
    """
    wait = Rebalancer.wait_for_topics

    async def wait_later(self: Rebalancer, topics: Collection[str], timeout: float) -> None:
        await self._round_done.wait()
        await wait(self, topics, timeout)

    monkeypatch.setattr(Rebalancer, "wait_for_topics", wait_later)
