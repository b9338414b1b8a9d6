"""The order of runs after failures and Ctrl-C, and a short run of the Python client."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.batch import measure
from bench.batch.plan import FULL_SPEED, OWN_BATCHCQ, PUBLISH, Step
from bench.batch.result import Run
from bench.batch.systems import Builds, System
from bench.batch.workload import Timing, Workload
from tests.bench.batch.batch_runs import run
from tests.interop.rocketmq_java import ProcessError

NOTHING = Builds(None, None)
SHORT = Timing(warm_up_seconds=0, seconds=1, max_messages=2_000)
STEPS = [Step(workload, System.RAPTORMQ, 1) for workload in (FULL_SPEED, PUBLISH, FULL_SPEED)]


def playing(behaviour: Callable[[Workload], Run]) -> Callable[[Step, Builds, Path], Run]:
    return lambda step, *_: behaviour(step.workload)


def test_a_failed_run_is_noted_and_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(workload: Workload) -> Run:
        if workload is PUBLISH:
            raise ProcessError("broken:\n" + "\n".join(map(str, range(20))))
        return run(workload)

    monkeypatch.setattr(measure, "measure_once", playing(once))
    runs = measure.measure(STEPS, NOTHING)
    assert [each.failure for each in runs] == [None, "broken:\n15\n16\n17\n18\n19", None]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_hands_back_what_is_done(monkeypatch: pytest.MonkeyPatch, how: signal.Signals) -> None:
    def once(workload: Workload) -> Run:
        if workload is PUBLISH:
            signal.raise_signal(how)
        return run(workload)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(measure, "measure_once", playing(once))
    assert [each.workload for each in measure.measure(STEPS, NOTHING)] == [FULL_SPEED.name]
    assert signal.getsignal(signal.SIGTERM) is before


def test_runs_survive_their_file() -> None:
    runs = [run(FULL_SPEED), run(PUBLISH, System.KAFKA, consumed=None), Run("x", System.ROCKETMQ, 2, failure="no")]
    assert measure.from_json(measure.to_json(runs)) == runs


def test_what_no_step_needs_is_not_built() -> None:
    assert measure.builds_for([Step(OWN_BATCHCQ, System.RAPTORMQ, 1)]) == NOTHING


@pytest.mark.parametrize("consumers", [0, 2])
def test_a_short_run_of_our_client(tmp_path: Path, consumers: int) -> None:
    workload = replace(OWN_BATCHCQ, queues=2, consumers=consumers, rate=5_000, timing=SHORT)
    done = measure.measure_once(Step(workload, System.RAPTORMQ, 1), NOTHING, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert done.load is not None
    assert done.costs is not None
    assert done.load.sent > 0
    assert 0 < done.load.publish_p50_ms <= done.load.publish_p99_ms
    assert done.load.failed == 0
    assert done.load.undelivered == (0 if consumers else None)
    assert done.costs.broker_cpu_seconds > 0
    assert (done.load.received or 0) > 0 or not consumers


def test_a_load_that_is_refused_its_topic_fails_with_the_reason(tmp_path: Path) -> None:
    workload = replace(OWN_BATCHCQ, queues=0, timing=SHORT)
    with pytest.raises(ProcessError, match="own-batchcq ended with exit code 1"):
        measure.measure_once(Step(workload, System.RAPTORMQ, 1), NOTHING, tmp_path / "run")
