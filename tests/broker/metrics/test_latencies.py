"""A histogram of durations: the bucket of each value, and the values of the last minute."""

from __future__ import annotations

from raptormq.broker.metrics.latencies import BOUNDS_S, LatencyHistogram


def test_a_duration_counts_up_to_its_bound() -> None:
    times = LatencyHistogram()
    times.add(0.1, 3)
    times.add(0.100001)
    times.add(11.0)
    buckets = dict(times.buckets())
    assert (buckets["0.05"], buckets["0.1"], buckets["0.2"], buckets["10.0"], buckets["+Inf"]) == (0, 3, 4, 4, 5)
    assert times.longest_s == 11.0
    assert abs(times.total_s - 11.400001) < 1e-9


def test_percentiles_are_bounds() -> None:
    times = LatencyHistogram()
    assert times.percentile_ms(0.99) == 0.0
    times.add(0.0001, 99)
    times.add(0.15)
    assert times.percentile_ms(0.99) == 0.5
    assert times.percentile_ms(0.999) == 200.0
    times.add(12.5, 1000)
    assert times.percentile_ms(0.99) == 12_500.0


def test_ranges_are_those_of_apache_rocketmq() -> None:
    times = LatencyHistogram()
    for seconds in (0.0001, 0.001, 0.002, 0.01, 0.05, 0.15, 0.5, 0.9, 7.0, 60.0):
        times.add(seconds)
    assert times.distribution() == (
        "[<=0ms]:2 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:1 [200~500ms]:1 [500ms~1s]:1 [1~2s]:0 [2~3s]:0 "
        "[3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 "
    )


def test_the_last_minute_forgets_and_the_histogram_does_not() -> None:
    times = LatencyHistogram()
    times.add(1.0)
    for _ in range(6):
        times.sample()
    assert times.percentile_ms(0.5) == 1000.0
    times.sample()
    assert times.percentile_ms(0.5) == 0.0
    assert times.buckets()[-1] == ("+Inf", 1)
    assert len(times.buckets()) == len(BOUNDS_S) + 1
