"""Percentiles of counted values."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.batch.own_consumer import percentile


@pytest.mark.parametrize(("percent", "value"), [(50, 1), (90, 1), (91, 7), (99, 7), (100, 40)])
def test_a_percentile_weighs_values_by_their_counts(percent: int, value: int) -> None:
    assert percentile(Counter({40: 1, 1: 90, 7: 9}), percent) == value


def test_nothing_counted_is_zero() -> None:
    assert percentile(Counter(), 99) == 0
