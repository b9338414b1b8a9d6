"""Log lines about refused writes."""

from __future__ import annotations

import pytest

from raptormq.errors import DiskFull
from raptormq.storage.log.write_gate import WRITE, WriteGate

FULL = "no messages are accepted while the disk is full: no room"
AGAIN = "messages are accepted again"


class Seconds:
    """A stopped clock."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_begin_and_the_end_of_a_refusal_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    gate = WriteGate(Seconds())
    for source in ("ratio", WRITE, "ratio", WRITE):
        gate.set_full(source, "no room")
    with pytest.raises(DiskFull):
        gate.check()
    gate.clear_full("ratio")
    assert caplog.messages == [FULL]
    gate.clear_full(WRITE)
    gate.clear_full(WRITE)
    assert caplog.messages == [FULL, AGAIN]
    assert {each.levelname for each in caplog.records} == {"WARNING"}


def test_a_disk_that_has_room_for_some_messages_is_not_told_of_with_each(caplog: pytest.LogCaptureFixture) -> None:
    clock = Seconds()
    gate = WriteGate(clock)
    for _ in range(100):
        gate.set_full(WRITE, "no room")
        gate.clear_full(WRITE)
    assert caplog.messages == [FULL, AGAIN]
    gate.set_full(WRITE, "no room")
    clock.now += 60
    gate.set_full(WRITE, "no room")
    assert caplog.messages == [FULL, AGAIN, FULL], "this failure is permanent"


def test_a_refusal_for_good_is_told_once_and_has_no_end(caplog: pytest.LogCaptureFixture) -> None:
    gate = WriteGate(Seconds())
    gate.set_full(WRITE, "no room")
    gate.set_read_only("broken")
    gate.set_read_only("broken again")
    gate.clear_full(WRITE)
    assert caplog.messages == [FULL, "no messages are accepted until the broker is restarted: broken"]
