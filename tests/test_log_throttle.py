"""Events of the same kind are logged once per interval, with the number of those that were not."""

from __future__ import annotations

import logging

import pytest

from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger

INTERVAL_S = 60.0
logger = get_logger(__name__)


def test_repeated_failure_is_logged_once_and_then_summed_up_after_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    throttle: LogThrottle[str] = LogThrottle(INTERVAL_S, lambda: now)
    with caplog.at_level(logging.INFO):
        for second in range(130):
            now = float(second)
            throttle.log(logger, logging.WARNING, "lock", "cannot lock %d", second)
            if second == 10:
                throttle.log(logger, logging.ERROR, "disk", "full")
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        "cannot lock 0",
        "full",
        "cannot lock 60 (59 more since the last entry)",
        "cannot lock 120 (59 more since the last entry)",
    ]


def test_kinds_without_events_are_forgotten() -> None:
    now = 0.0
    throttle: LogThrottle[int] = LogThrottle(INTERVAL_S, lambda: now)
    for kind in range(1_000):
        now += INTERVAL_S
        assert throttle.permits(kind)
        assert not throttle.permits(kind)
    assert len(throttle._logged_at) < 20
    assert len(throttle._omitted) < 20
