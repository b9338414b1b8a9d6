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
    assert attempts.next_pause() == 0.05
    clock.now = 104.0
    assert attempts.attempt_timeout() == 4.0
    assert attempts.next_pause() is None


def test_the_pauses_double_up_to_half_a_second() -> None:
    attempts = Attempts(9, 1000.0, Seconds())
    assert attempts.next_pause(other_broker=True) == 0.0
    pauses = []
    while (pause := attempts.next_pause()) is not None:
        pauses.append(pause)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]


def test_those_that_reached_no_broker_are_not_counted_and_end_at_the_deadline() -> None:
    clock = Seconds()
    attempts = Attempts(1, 103.0, clock)
    assert all(attempts.may_wait() for _ in range(9))
    assert attempts.next_pause() == 0.05  # none of them was counted
    assert attempts.next_pause() is None
    assert attempts.may_wait()
    clock.now = 103.0
    assert not attempts.may_wait()


def test_no_retries_are_no_further_attempts() -> None:
    attempts = Attempts(0, 103.0, Seconds())
    assert attempts.next_pause() is None
    assert not attempts.may_wait()


def test_nobody_is_waited_for_when_the_caller_does_not_wait() -> None:
    awaited = [True, False]
    attempts = Attempts(1, 103.0, Seconds(), lambda: awaited[0])
    assert attempts.may_wait()
    del awaited[0]
    assert not attempts.may_wait()


def test_another_place_needs_no_pause_but_some_time() -> None:
    clock = Seconds()
    attempts = Attempts(5, 103.0, clock)
    assert attempts.next_pause(other_broker=True) == 0.0
    clock.now = 103.0
    assert attempts.next_pause(other_broker=True) is None
