"""The shared budget of unread responses: which reads wait, their order, and which connections are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from raptormq.transport.memory import send_budget as answer_budget
from raptormq.transport.memory.send_budget import LARGEST_BYTES, SMALL_BYTES, Reading, SendBudget
from raptormq.transport.tls.paced_transport import AHEAD_BYTES

MIB = 1 << 20
BUDGET = 64 * MIB
SHORT_FROM = 48 * MIB
PATIENCE = 3.0
STARVED = 4 * PATIENCE
LONG = 100.0
LEAST_PROGRESS = 65_536


class PeerConnection:
    """A connection that reads as much as the test determines."""

    def __init__(self, name: str = "somebody") -> None:
        self.reads_answers = False
        self.is_encrypted = False
        self.is_closed = False
        self.peer_name = name
        self.sent_bytes = 0
        self.taken_bytes = 0
        self.kernel_bytes = 0
        self.asked_count = 0

    def abort(self) -> None:
        self.is_closed = True

    @property
    def read_bytes(self) -> int:
        """Return the bytes that a socket has passed to the kernel."""
        self.asked_count += 1
        return self.taken_bytes - self.kernel_bytes

    def take_all(self) -> None:
        self.taken_bytes = self.sent_bytes


class Server:
    """A budget and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.budget = SendBudget(BUDGET, PATIENCE, lambda: self.now)

    def send(self, peer: PeerConnection, size: int) -> PeerConnection:
        peer.sent_bytes += size
        self.budget.add(peer, size)
        return peer

    def crowd(self, count: int, size: int) -> list[PeerConnection]:
        return [self.send(PeerConnection(f"{number}"), size) for number in range(count)]

    def is_short(self) -> bool:
        return self.budget.is_short

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.budget.look()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.budget.close()


@asynccontextmanager
async def asking(budget: SendBudget, peer: PeerConnection, size: int) -> AsyncIterator[asyncio.Future[bool]]:
    """Another reading requests memory meanwhile."""
    asked = asyncio.ensure_future(budget.room(peer, size, LONG))
    await asyncio.sleep(0)
    try:
        yield asked
    finally:
        asked.cancel()


async def test_up_to_three_quarters_nothing_happens(server: Server) -> None:
    crowd = server.crowd(3, 16 * MIB)
    assert server.budget.held_bytes == SHORT_FROM
    server.pass_time(100 * PATIENCE)
    assert not server.is_short()
    server.send(crowd[0], 1)
    server.pass_time(0)
    assert server.is_short()
    server.pass_time(PATIENCE)
    assert [each.is_closed for each in crowd] == [True, False, False]  # then half is free, except for one byte
    assert server.budget.closed_count == 1
    assert not server.is_short()


async def test_what_was_taken_is_owed_no_more_when_the_last_byte_is_gone(server: Server) -> None:
    reader = server.send(PeerConnection(), 8 * MIB)
    reader.taken_bytes = 8 * MIB - 1
    assert server.budget.held_bytes == 8 * MIB  # the kernel accepts parts, but the memory is released as a whole
    assert not reader.reads_answers
    reader.take_all()
    assert server.budget.held_bytes == 0
    assert reader.reads_answers


async def test_small_answers_are_counted_together(server: Server) -> None:
    slow = PeerConnection()
    for _ in range(1000):
        server.send(slow, 100)
    assert server.budget.held_bytes == 100_000
    slow.taken_bytes = 70_000
    assert 30_000 <= server.budget.held_bytes < 100_000


async def test_who_asks_gets_room_at_once_or_waits(server: Server) -> None:
    crowd = server.crowd(3, 12 * MIB)
    assert await server.budget.room(PeerConnection(), 12 * MIB, 0)
    assert not await server.budget.room(PeerConnection(), SMALL_BYTES + 1, 0)
    assert await server.budget.room(PeerConnection(), SMALL_BYTES, 0)  # small ones may use the last quarter
    async with asking(server.budget, PeerConnection(), 12 * MIB) as asked:
        assert server.budget.waiting_count == 1
        server.pass_time(0)
        assert not asked.done()
        crowd[0].take_all()
        server.pass_time(0)
        assert not asked.done()  # that of the small one is missing
        crowd[1].take_all()
        server.pass_time(0)
        assert await asked
    assert server.budget.held_bytes == 36 * MIB + SMALL_BYTES


async def test_small_ones_wait_at_the_whole_budget(server: Server) -> None:
    server.budget.reserve(BUDGET - SMALL_BYTES + 1)
    assert not await server.budget.room(PeerConnection(), SMALL_BYTES, 0)
    server.budget.reserve(-1)
    assert await server.budget.room(PeerConnection(), SMALL_BYTES, 0)


async def test_small_ones_go_first_then_those_who_read(server: Server) -> None:
    server.budget.reserve(BUDGET)
    known = PeerConnection("known")
    known.reads_answers = True
    async with (
        asking(server.budget, PeerConnection(), 16 * MIB) as stranger,
        asking(server.budget, known, 16 * MIB) as friend,
        asking(server.budget, PeerConnection(), SMALL_BYTES) as small,
    ):
        asked = [small, friend, stranger]
        for room, expected in ((SMALL_BYTES, 1), (32 * MIB, 2), (16 * MIB, 3)):
            server.budget.reserve(-room)
            server.pass_time(0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert [each.done() for each in asked] == [True] * expected + [False] * (3 - expected)


async def test_one_goes_on_where_nothing_is_owed(server: Server) -> None:
    assert await server.budget.room(PeerConnection(), 2 * BUDGET, 0)


async def test_who_gives_up_or_leaves_waits_no_more(server: Server) -> None:
    server.budget.reserve(BUDGET)
    gone = PeerConnection()
    async with asking(server.budget, PeerConnection(), MIB) as cancelled, asking(server.budget, gone, MIB) as left:
        cancelled.cancel()
        gone.abort()
        await asyncio.sleep(0)
        server.pass_time(0)
        assert not await left
        assert server.budget.waiting_count == 0
    assert server.budget.held_bytes == BUDGET
    with Reading(server.budget, gone, LONG) as reading:
        assert not await reading.granted(1)


async def test_no_more_than_so_many_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_budget, "_MAX_WAITING", 1)
    server.budget.reserve(BUDGET)
    async with asking(server.budget, PeerConnection(), MIB):
        assert not await server.budget.room(PeerConnection(), MIB, LONG)


async def test_who_waits_makes_those_leave_who_do_not_read(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    stalled, steady = server.crowd(2, 15 * MIB), server.send(PeerConnection("steady"), 14 * MIB)
    server.pass_time(100 * PATIENCE)
    async with asking(server.budget, PeerConnection(), 16 * MIB) as asked:
        server.pass_time(0)
        steady.taken_bytes += LEAST_PROGRESS
        server.pass_time(PATIENCE - 0.1)
        assert not any(each.is_closed for each in stalled)
        server.pass_time(0.1)
        assert [each.is_closed for each in stalled] == [True, False]  # then half is free
        assert await asked
    assert not steady.is_closed
    assert "does not read its 15728640 bytes" in caplog.text


async def test_who_reads_what_the_kernel_has_is_not_closed_and_is_seldom_asked(server: Server) -> None:
    slow = server.send(PeerConnection(), 50 * MIB)
    slow.taken_bytes = slow.kernel_bytes = 4 * MIB
    server.pass_time(0)
    for _ in range(10):
        slow.kernel_bytes -= LEAST_PROGRESS
        for _ in range(10):
            server.pass_time(PATIENCE / 10)
    assert not slow.is_closed
    assert slow.asked_count <= 12
    server.pass_time(PATIENCE)
    assert slow.is_closed


async def test_over_tls_a_little_is_encrypted_of_all_that_waits(server: Server) -> None:
    encrypted = PeerConnection()
    encrypted.is_encrypted = True
    for _ in range(50):
        encrypted.sent_bytes += 2 * MIB  # slices of the mapped log
        server.budget.add(encrypted, 0)
    assert server.budget.held_bytes == AHEAD_BYTES
    server.send(encrypted, MIB)
    assert server.budget.held_bytes == MIB + AHEAD_BYTES
    encrypted.taken_bytes = encrypted.sent_bytes - 1000
    assert server.budget.held_bytes == MIB + 1000
    encrypted.take_all()
    assert server.budget.held_bytes == 0


async def test_next_to_nothing_is_no_progress(server: Server) -> None:
    drip = server.send(PeerConnection(), 50 * MIB)
    server.pass_time(0)
    drip.taken_bytes += LEAST_PROGRESS - 1
    server.pass_time(PATIENCE)
    assert drip.is_closed


async def test_a_trickle_does_not_keep_others_waiting_for_long(server: Server) -> None:
    drips = server.crowd(4, 12 * MIB)
    async with asking(server.budget, PeerConnection(), 16 * MIB) as asked:
        for _ in range(8):
            assert not any(each.is_closed for each in drips)
            for each in drips:
                each.taken_bytes += LEAST_PROGRESS
            server.pass_time(STARVED / 8)
        assert sum(each.is_closed for each in drips) == 2
        assert await asked


async def test_readers_are_not_closed_for_a_disk_that_others_wait_for(server: Server) -> None:
    slow = server.send(PeerConnection(), 16 * MIB)
    server.budget.reserve(SHORT_FROM)
    async with asking(server.budget, PeerConnection(), 16 * MIB):
        for _ in range(3):
            slow.taken_bytes += LEAST_PROGRESS
            server.pass_time(STARVED / 2)
    assert not slow.is_closed


async def test_above_the_budget_the_largest_is_closed_at_once(server: Server) -> None:
    reading, large = server.send(PeerConnection(), 30 * MIB), server.send(PeerConnection(), 20 * MIB)
    server.pass_time(1)
    reading.taken_bytes += LEAST_PROGRESS
    server.pass_time(1)
    server.send(PeerConnection(), 15 * MIB)
    server.pass_time(0)
    assert (reading.is_closed, large.is_closed) == (False, True)


async def test_who_is_gone_is_owed_nothing(server: Server) -> None:
    gone = server.send(PeerConnection(), MIB)
    server.budget.forget(gone)
    assert server.budget.held_bytes == 0
    server.budget.forget(gone)


async def test_memory_is_given_back_when_little_is_owed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(answer_budget, "trim_heap", lambda: trimmed.append(1))
    crowd = server.crowd(4, 13 * MIB)
    for each in crowd[1:]:
        each.take_all()
    server.pass_time(0)
    assert not trimmed
    crowd[0].take_all()
    server.pass_time(0)
    server.pass_time(0)
    assert trimmed == [1]


async def test_a_reading_counts_what_it_expects_and_then_what_it_has(server: Server) -> None:
    with Reading(server.budget, PeerConnection(), LONG) as reading:
        assert reading.may_copy
        assert await reading.granted(0)
        assert server.budget.held_bytes == LARGEST_BYTES
        reading.has(1000)
        assert server.budget.held_bytes == 1000
    assert server.budget.held_bytes == 0
    server.budget.reserve(SHORT_FROM + 1)  # like many concurrent readings
    with Reading(server.budget, PeerConnection(), LONG) as reading:
        assert not reading.may_copy
        assert await reading.granted_mapped(LARGEST_BYTES)
        assert server.budget.held_bytes == SHORT_FROM + 1
    encrypted = PeerConnection()
    encrypted.is_encrypted = True
    with Reading(server.budget, encrypted, LONG) as reading:
        assert await reading.granted_mapped(0)
        assert server.budget.held_bytes == SHORT_FROM + 1
        assert await reading.granted_mapped(LARGEST_BYTES)
        assert server.budget.held_bytes == SHORT_FROM + 1 + AHEAD_BYTES
    server.budget.reserve(BUDGET - SHORT_FROM - 1)
    with Reading(server.budget, encrypted, 0.0) as reading:
        assert not await reading.granted_mapped(1)
    with Reading(None, encrypted, LONG) as reading:
        assert await reading.granted_mapped(LARGEST_BYTES)
        assert await reading.granted(0)
        reading.has(5)
