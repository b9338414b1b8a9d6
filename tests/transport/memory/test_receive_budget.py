"""The shared budget of incomplete frames: which connections are read, paused and closed."""

from __future__ import annotations

import pytest

from raptormq.protocol.frame import PIECE_BYTES, FrameDecoder
from raptormq.transport.memory import receive_budget as frame_budget
from raptormq.transport.memory.receive_budget import ReceiveBudget

MIB = 1 << 20
BUDGET = 64 * MIB
PATIENCE = 3.0
WAITERS_PATIENCE = 4 * PATIENCE


class Holder:
    """A connection that has received ``held`` bytes of a frame of ``length``."""

    def __init__(self, name: str, length: int, held: int) -> None:
        self.waits_for_room = False
        self.aborted = False
        self.peer_name = name
        self.frames = FrameDecoder()
        assert self.frames.feed(length.to_bytes(4, "big") + bytes(held)) == []

    def wait_for_room(self, *, wait: bool) -> None:
        self.waits_for_room = wait

    def abort(self) -> None:
        self.aborted = True
        self.frames.clear()


class Server:
    """A budget with several connections, and the time."""

    def __init__(self, *holders: Holder) -> None:
        self.now = 100.0
        self.holders = set(holders)
        self.budget = ReceiveBudget(BUDGET, PATIENCE, self.holders, lambda: self.now)
        self.budget.look()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.budget.look()


async def test_up_to_three_quarters_nothing_happens() -> None:
    full = 16 * MIB - PIECE_BYTES  # almost all of the largest frame
    idle = [Holder(f"idle {number}", 16 * MIB, full) for number in range(3)]
    server = Server(*idle)
    assert server.budget.kept_bytes == BUDGET * 3 // 4
    server.pass_time(100 * PATIENCE)
    assert not any(each.aborted or each.waits_for_room for each in idle)
    server.holders.add(Holder("one more", MIB, 1))
    server.pass_time(0)
    server.pass_time(PATIENCE)
    assert [each.aborted for each in server.holders if each not in idle] == [False]
    assert sum(each.aborted for each in idle) == 2  # then half is free; without one of them a byte is missing
    server.budget.close()


async def test_who_lacks_least_is_read_and_the_others_wait() -> None:
    near, far = Holder("near", 16 * MIB, 12 * MIB), Holder("far", 16 * MIB, 2 * MIB)
    short = Holder("short", 1000, 10)
    crowd = [Holder(f"{number}", 15 * MIB, 6 * MIB) for number in range(6)]
    server = Server(near, far, short, *crowd)
    assert not near.waits_for_room
    assert not short.waits_for_room
    assert far.waits_for_room
    assert all(each.waits_for_room for each in crowd)
    near.frames.feed(bytes(4 * MIB))  # it is complete, so memory is free again
    server.pass_time(0.25)
    assert not any(each.waits_for_room for each in server.holders)
    assert server.budget.closed_count == 0
    server.budget.close()


async def test_one_is_read_even_when_none_has_room() -> None:
    crowd = [Holder(f"{number}", 16 * MIB, 4 * MIB) for number in range(15)]
    server = Server(*crowd)
    assert sum(not each.waits_for_room for each in crowd) == 1
    server.budget.close()


async def test_who_is_read_and_brings_nothing_is_closed_before_who_waits() -> None:
    stuck = Holder("stuck", 15 * MIB, 14 * MIB)
    crowd = [Holder(f"{number}", 16 * MIB, 6 * MIB) for number in range(6)]
    server = Server(stuck, *crowd)
    server.pass_time(PATIENCE - 0.1)
    assert server.budget.closed_count == 0
    server.pass_time(0.1)
    assert stuck.aborted
    assert not any(each.aborted for each in crowd)
    assert server.budget.closed_count == 1
    server.pass_time(0.25)
    assert not any(each.waits_for_room for each in crowd)
    server.budget.close()


async def test_a_slow_sender_that_gets_on_is_not_closed(caplog: pytest.LogCaptureFixture) -> None:
    steady = Holder("steady", 15 * MIB, 14 * MIB)
    crowd = [Holder(f"{number}", 16 * MIB, 6 * MIB) for number in range(6)]
    server = Server(steady, *crowd)
    for _ in range(15):
        assert not steady.waits_for_room
        assert steady.frames.feed(bytes(65_536)) == []
        server.pass_time(PATIENCE - 0.1)
    assert not steady.aborted
    assert sum(each.aborted for each in crowd) == server.budget.closed_count > 0
    assert len(steady.frames.feed(bytes(65_536))) == 1
    assert "steady" not in caplog.text
    server.budget.close()


async def test_next_to_nothing_is_no_progress() -> None:
    drip = Holder("drip", 15 * MIB, 14 * MIB)
    server = Server(drip, *(Holder(f"{number}", 16 * MIB, 6 * MIB) for number in range(6)))
    for _ in range(12):
        drip.frames.feed(b"x")
        server.pass_time(PATIENCE / 12)
    assert drip.aborted
    server.budget.close()


async def test_who_had_to_wait_is_closed_at_last_largest_first() -> None:
    steady = Holder("steady", 10 * MIB, 9 * MIB)
    crowd = [Holder(f"{number}", 16 * MIB, (number + 1) * MIB) for number in range(9)]
    server = Server(steady, *crowd)
    assert all(each.waits_for_room for each in crowd)
    for _ in range(8):
        assert not any(each.aborted for each in crowd)
        assert steady.frames.feed(bytes(65_536)) == []
        server.pass_time(WAITERS_PATIENCE / 8)
    assert not steady.aborted
    aborted = [each.aborted for each in crowd]
    assert aborted == sorted(aborted)  # the larger ones
    assert 0 < server.budget.kept_bytes <= BUDGET // 2
    server.budget.close()


async def test_above_the_budget_nobody_is_waited_for() -> None:
    crowd = [Holder(f"{number}", 16 * MIB, 5 * MIB) for number in range(14)]
    server = Server(*crowd)
    assert server.budget.kept_bytes <= BUDGET * 7 // 8
    assert 0 < server.budget.closed_count < 4
    server.budget.close()


@pytest.mark.parametrize("piece", [1000, 65_536, 262_144])
async def test_no_read_leaves_more_than_the_budget(piece: int) -> None:
    crowd = [Holder(f"{number}", 15 * MIB, 6 * MIB - 1) for number in range(10)]
    reader = Holder("reader", 5 * MIB, BUDGET - 60 * MIB - 2 * 65_536)
    server = Server(reader, *crowd)
    assert not reader.waits_for_room
    while not any(each.aborted for each in server.holders):
        reader.frames.feed(bytes(piece))
        server.budget.kept(piece + PIECE_BYTES)
        assert server.budget.kept_bytes <= BUDGET
    server.budget.close()


async def test_sums_are_made_when_enough_was_kept() -> None:
    server = Server()
    waiting = [Holder(f"{number}", 16 * MIB, 4 * MIB) for number in range(13)]
    server.holders |= set(waiting)
    server.budget.kept(BUDGET * 3 // 4 - 1)
    assert not any(each.waits_for_room for each in waiting)
    server.budget.kept(1)
    assert any(each.waits_for_room for each in waiting)
    server.budget.close()


def test_many_small_pieces_count_for_what_they_take() -> None:
    decoder = FrameDecoder()
    for byte in (1_000).to_bytes(4, "big") + bytes(100):
        decoder.feed(bytes([byte]))
    assert decoder.missing_bytes == 900
    assert decoder.held_bytes == 100 + 97 * PIECE_BYTES  # the four bytes after the length are one unit
    assert len(decoder.feed(bytes(900))) == 1
    assert (decoder.missing_bytes, decoder.held_bytes) == (0, 0)


async def test_memory_is_given_back_once_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    server = Server()
    monkeypatch.setattr(frame_budget, "trim_heap", lambda: given.append(server.now))
    server.pass_time(1)
    crowd = [Holder(f"{number}", 16 * MIB, 10 * MIB) for number in range(5)]
    server.holders |= set(crowd)
    server.pass_time(1)
    crowd[0].abort()
    server.pass_time(1)
    assert given == []
    for each in crowd:
        each.abort()
    server.pass_time(1)
    server.pass_time(1)
    assert given == [104.0]
    server.budget.close()
