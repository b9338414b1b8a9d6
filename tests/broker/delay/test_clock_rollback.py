"""The wall clock is set back while messages wait for their delay level."""

from __future__ import annotations

import time
from pathlib import Path

from raptormq.broker.delay.clock_rollback import ClockRollback
from tests.broker.harness import bodies, connected, running
from tests.clock import Clock

HOUR_MS = 3_600_000


class Milliseconds:
    """A clock that tests set."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_a_message_waits_its_delay_from_when_it_is_seen() -> None:
    clock = Milliseconds()
    level = ClockRollback(5_000, clock)
    assert (level.due(3), level.next_in_ms()) == (0, 5_000)
    clock.now = 4_999
    assert (level.due(4), level.next_in_ms()) == (0, 1)
    clock.now = 5_000
    assert (level.due(4), level.next_in_ms()) == (3, 4_999)
    clock.now = 9_999
    assert level.due(4) == 4


def test_messages_that_come_together_are_due_together() -> None:
    clock = Milliseconds()
    level = ClockRollback(5_000, clock)
    for clock.now in range(0, 3_000, 10):
        level.due(clock.now)
    assert len(level._marks) == 3


def test_a_clock_that_is_right_again_starts_anew() -> None:
    clock = Milliseconds()
    level = ClockRollback(5_000, clock)
    level.due(3)
    level.forget()
    clock.now = 5_000
    assert level.due(3) == 0
    clock.now = 10_000
    assert level.due(3) == 3


async def test_no_retry_comes_before_its_delay_is_over(tmp_path: Path) -> None:
    clock = Clock()
    levels = {"messageDelayLevel": "1s 2s"}
    async with running(tmp_path, levels, clock=clock) as broker, connected(broker) as peer:
        await peer.send("t", b"before")
        clock.move(-HOUR_MS)
        began = time.monotonic()
        await peer.send("t", b"first", 1, "DELAY\x011\x02")
        await peer.send("t", b"second", 2, "DELAY\x011\x02")
        assert bodies(await peer.pull("t", 0, 1, wait_ms=20_000)) == [b"first"]
        assert time.monotonic() - began > 0.99  # the broker uses whole milliseconds
        assert bodies(await peer.pull("t", 0, 2, wait_ms=20_000)) == [b"second"]
