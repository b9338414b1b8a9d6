"""The table of AutoBatch: medians over the rounds, the gain over sending one by one."""

from __future__ import annotations

from bench.batch import QUICK, Run, Setting, measure, table


def test_gains_are_over_the_first_setting_and_figures_are_medians() -> None:
    off, on, consumed = QUICK
    runs = [Run(off, speed, 1, 2, 3, 4) for speed in (900.0, 1000.0, 5000.0)]
    runs += [Run(on, speed, 5, 6, 7, 8) for speed in (4000.0, 100.0, 90_000.0)]
    runs.append(Run(consumed, 8000, 5, 6, 7, 8, 7000, 4.5))
    rows = table(runs).splitlines()[2:]
    assert rows == [
        "| AutoBatch off, 4096 under way | 1,000 | 1.00 | 1.0 | 2.0 | 3.0 | 4.0 | - | - |",
        "| AutoBatch on, 32 KiB, 10 ms, 4096 under way | 4,000 | 4.00 | 5.0 | 6.0 | 7.0 | 8.0 | - | - |",
        f"| {consumed.title} | 8,000 | 8.00 | 5.0 | 6.0 | 7.0 | 8.0 | 7,000 | 4.5 |",
    ]
    assert consumed.title == "BatchCQ, AutoBatch on, 32 KiB, 10 ms, 4096 under way, consumed"


def test_a_short_run_measures_something() -> None:
    [run] = measure((Setting(True, under_way=64, queue_type="BatchCQ", consumed=True),), 1, 0.2)
    assert run.messages_per_second > 0
    assert run.consumed_per_second is not None
    assert run.consumed_per_second > 0
    assert 0 < run.p50_ms <= run.p99_ms
