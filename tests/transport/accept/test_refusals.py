"""Log lines about refused connections."""

from __future__ import annotations

import pytest

from raptormq.transport.accept.acceptor import QUIET_S, Refusals
from tests.storage.log.test_write_gate import Seconds


def test_all_are_counted_and_few_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    clock = Seconds()
    refusals = Refusals(clock)
    for number in range(1_000):
        refusals.refused(f"10.0.0.1:{number}", "full")
    assert refusals.count == 1_000
    assert caplog.messages == ["refused 1 connections, the last one from 10.0.0.1:0: full"]
    clock.now += QUIET_S
    refusals.refused("10.0.0.2:1", "full")
    assert caplog.messages[1:] == ["refused 1000 connections, the last one from 10.0.0.2:1: full"]
