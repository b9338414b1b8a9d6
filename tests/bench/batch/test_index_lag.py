"""Conversion of samples of a broker to a lag in milliseconds."""

from __future__ import annotations

import pytest

from bench.batch.index_lag import Look, lag_ms


def test_the_largest_distance_counts_at_the_mean_speed() -> None:
    looks = [Look(10.0, 0, 0), Look(11.0, 900_000, 50_000), Look(12.0, 2_000_000, 10_000)]
    assert lag_ms(looks) == pytest.approx(50.0)  # 1,000 bytes a millisecond


@pytest.mark.parametrize("looks", [[], [Look(1.0, 5, 5)], [Look(1.0, 5, 5), Look(2.0, 5, 5)]])
def test_without_writing_there_is_no_speed(looks: list[Look]) -> None:
    assert lag_ms(looks) is None


def test_what_the_broker_tells_wins() -> None:
    assert lag_ms([Look(10.0, 0, 0, 3.0), Look(12.0, 2_000_000, 1_000_000, 7.5)]) == 7.5
