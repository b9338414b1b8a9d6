"""The report: goals with ratios, all runs as medians, failures by name."""

from __future__ import annotations

from dataclasses import replace

from bench.batch.plan import FULL_SPEED, PUBLISH
from bench.batch.result import Run
from bench.batch.systems import System
from bench.batch.table import report
from tests.bench.batch.batch_runs import run


def test_the_report_has_goals_rows_and_failures() -> None:
    runs = [
        run(FULL_SPEED, sent=250_000, consumed=250_000),
        run(FULL_SPEED, System.ROCKETMQ, consumed=100_000),
        run(PUBLISH, consumed=None),
        Run(PUBLISH.name, System.KAFKA, 1, failure="Kafka ended\nwith exit code 1"),
    ]
    lines = report(runs).splitlines()
    assert (
        "| 16 queues, sent | 250,000 msg/s | Apache RocketMQ 5.3.3 | 200,000 msg/s | 1.25 | at least 1.2 x | yes |"
        in lines
    )
    assert "| lag of the queues, 16 queues | 12.5 ms |  |  |  | at most 100 ms | yes |" in lines
    [ours] = [line for line in lines if line.startswith("| as fast as it goes, 16 queues | RaptorMQ |")]
    assert ours.endswith(
        "| 250,000 | 250,000 | 20.0 | 80.0 | 26.7 | 160.0 | 0 | 2.0 | 1.6 | 300 | 100 | 12.5 | 1.0 | 1.25 |  |"
    )
    [publish] = [line for line in lines if line.startswith("| publish only, 16 queues | RaptorMQ |")]
    assert "| 200,000 | - | 20.0 | 80.0 | - | - | - |" in publish
    assert lines[-2:] == ["- publish-only, Apache Kafka 3.9.2, round 1: failed: Kafka ended", "  with exit code 1"]


def test_lost_and_failed_messages_are_noted() -> None:
    done = run(FULL_SPEED)
    assert done.load is not None
    text = report(
        [
            replace(
                done,
                load=replace(done.load, failed=3, first_error="busy", undelivered=1_234, drain_seconds=10.0, surplus=2),
            )
        ]
    )
    assert "- full-speed, RaptorMQ, round 1: 3 sends failed, the first with busy" in text
    assert "- full-speed, RaptorMQ, round 1: 1,234 messages were not delivered 10 s after the end" in text
    assert "- full-speed, RaptorMQ, round 1: 2 messages were delivered more than once" in text
    assert "To be noted" not in report([done])


def test_a_missed_goal_stands_out() -> None:
    runs = [run(FULL_SPEED, sent=100_000), run(FULL_SPEED, System.KAFKA)]
    assert "| 0.50 | at least 1 x | **no** |" in report(runs)
