"""Number of attempts of a send, their time limits, and the pauses between them."""

from __future__ import annotations

from raptormq.client.producer.attempts import Attempts


class Seconds:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_but_the_last_get_half_of_the_time_that_is_left() -> None:
    clock = Seconds()
    attempts = Attempts(1, 108.0, clock)
    assert attempts.attempt_timeout() == 4.0
    assert attempts.next_pause(no_broker_reached=False) == 0.05
    clock.now = 104.0
    assert attempts.attempt_timeout() == 4.0
    assert attempts.next_pause(no_broker_reached=False) is None


def test_those_that_found_nobody_go_on_until_the_time_is_over() -> None:
    clock = Seconds()
    attempts = Attempts(1, 103.0, clock)
    assert attempts.next_pause(no_broker_reached=False, other_broker=True) == 0.0  # the last one that may find a broker
    pauses = []
    while (pause := attempts.next_pause(no_broker_reached=True)) is not None:
        pauses.append(pause)
        clock.now += pause
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]


def test_no_retries_are_no_further_attempts() -> None:
    assert Attempts(0, 103.0, Seconds()).next_pause(no_broker_reached=True) is None


def test_another_place_needs_no_pause_but_some_time() -> None:
    clock = Seconds()
    attempts = Attempts(5, 103.0, clock)
    assert attempts.next_pause(no_broker_reached=False, other_broker=True) == 0.0
    clock.now = 103.0
    assert attempts.next_pause(no_broker_reached=False, other_broker=True) is None
