"""Batches of answers: only while many messages arrive, never lost, and at most one interval late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raptormq.broker.pull.answer_batching import BUSY_BYTES_PER_MS, COALESCE_MS, PullCoalescer
from raptormq.storage.queue.append_batches import Arrival

ARRIVAL = ("t", 0, 1, 0)


class World:
    """A clock, a growing log, a timer, and the times of the answers."""

    def __init__(self) -> None:
        self.now = 1_000
        self.end = 5_000_000
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.answered: list[tuple[int, list[Arrival], list[str]]] = []
        self.coalescer: PullCoalescer[str] = PullCoalescer(lambda: self.now, self.later, lambda: self.end, self.answer)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_s * 1000, callback))

    def answer(self, arrivals: list[Arrival], pulls: list[str]) -> None:
        self.answered.append((self.now, arrivals, pulls))

    def passes(self, ms: int, bytes_per_ms: int = BUSY_BYTES_PER_MS) -> None:
        for _ in range(ms):
            self.now += 1
            self.end += bytes_per_ms
            due = [timer for timer in self.timers if timer[0] <= self.now]
            self.timers = [timer for timer in self.timers if timer[0] > self.now]
            for _, callback in due:
                callback()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def busy(world: World) -> World:
    world.passes(COALESCE_MS)
    assert not world.coalescer.defer_arrivals([ARRIVAL])
    return world


def test_below_the_rate_everything_is_answered_at_once(world: World) -> None:
    for _ in range(10 * COALESCE_MS):
        world.passes(1, BUSY_BYTES_PER_MS - 1)
        assert not world.coalescer.defer_arrivals([ARRIVAL])
        assert not world.coalescer.defer("pull")
    assert (world.timers, world.answered) == ([], [])


def test_what_comes_while_much_arrives_is_answered_with_the_next_wave(busy: World) -> None:
    began = busy.now
    assert busy.coalescer.defer_arrivals([ARRIVAL])
    busy.passes(3)
    assert busy.coalescer.defer("pull")
    assert busy.coalescer.defer_arrivals([("t", 1, 7, 0)])
    assert len(busy.timers) == 1
    busy.passes(COALESCE_MS)
    assert busy.answered == [(began + COALESCE_MS, [ARRIVAL, ("t", 1, 7, 0)], ["pull"])]
    assert busy.timers == []


def test_waves_follow_each_other_until_less_arrives(busy: World) -> None:
    assert busy.coalescer.defer("first")
    busy.passes(COALESCE_MS)
    assert busy.coalescer.defer("second")
    busy.passes(COALESCE_MS, 0)
    assert [pulls for _, _, pulls in busy.answered] == [["first"], ["second"]]
    assert not busy.coalescer.defer("third")


def test_after_a_pause_the_first_is_answered_at_once(busy: World) -> None:
    busy.passes(COALESCE_MS)
    assert not busy.coalescer.defer("pull")
    assert busy.coalescer.defer("next")


def test_a_burst_within_one_ms_does_not_look_like_a_rate_without_end(world: World) -> None:
    world.coalescer.flush()
    assert world.answered == [(1_000, [], [])]
    world.end += BUSY_BYTES_PER_MS - 1
    world.coalescer.flush()
    assert not world.coalescer.defer("pull")


def test_a_stop_answers_what_waits(busy: World) -> None:
    assert busy.coalescer.defer("pull")
    busy.coalescer.flush()
    busy.passes(2 * COALESCE_MS)
    assert [pulls for _, _, pulls in busy.answered if pulls] == [["pull"]]
