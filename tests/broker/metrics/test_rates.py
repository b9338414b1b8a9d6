"""Averages per second from sampled counters."""

from __future__ import annotations

from raptormq.broker.metrics.counters import Counters, Rates


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def test_averages_over_three_windows() -> None:
    clock, counters = Clock(), Counters()
    rates = Rates(counters, clock)
    for tick in range(1, 61):
        clock.now += 10_000
        counters.messages_in += 100 if tick > 54 else 10
        rates.sample()
    assert rates.per_second("messages_in", 10) == 10.0
    assert rates.per_second("messages_in", 60) == 10.0
    assert rates.per_second("messages_in", 600) == (54 * 10 + 6 * 100) / 600
    assert rates.text("messages_in") == "10.00 10.00 1.90"


def test_nothing_is_known_at_the_start_and_little_soon_after() -> None:
    clock, counters = Clock(), Counters()
    rates = Rates(counters, clock)
    assert rates.text("messages_in") == "0.00 0.00 0.00"
    counters.messages_in = 50
    clock.now += 10_000
    rates.sample()
    assert rates.per_second("messages_in", 600) == 5.0


def test_uptime_text() -> None:
    clock = Clock()
    rates = Rates(Counters(), clock)
    clock.now += (((2 * 24 + 3) * 60 + 4) * 60 + 5) * 1000
    assert rates.uptime_text() == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


def test_counters_of_the_last_two_midnights() -> None:
    clock, counters = Clock(), Counters(messages_in=1)
    rates = Rates(counters, clock)
    for day in range(3):
        counters.messages_in += 10
        clock.now += 24 * 3600 * 1000
        rates.sample()
        rates.sample()  # on the same day, so nothing changes
        assert rates.this_morning.messages_in == 11 + 10 * day
        assert rates.yesterday_morning.messages_in == 1 + 10 * day
