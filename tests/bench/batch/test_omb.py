"""The files for the OpenMessaging Benchmark, and the evaluation of its results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench.batch import omb
from bench.batch.load_program import load_program
from bench.batch.plan import FULL_SPEED, PUBLISH, SINGLE
from bench.batch.systems import Builds, System
from bench.batch.workload import Client, Timing
from tests.interop.rocketmq_java import ProcessError

RESULT = {
    "publishRate": [100.0, 300.0],
    "publishErrorRate": [0.0, 0.1],
    "consumeRate": [90.0, 310.0],
    "backlog": [100, 7],
    "aggregatedPublishLatency50pct": 1.5,
    "aggregatedPublishLatency99pct": 20.0,
    "aggregatedEndToEndLatency50pct": 2.0,
    "aggregatedEndToEndLatency99pct": 30.0,
}


def test_the_drivers_get_the_settings_of_the_workload() -> None:
    rocketmq = yaml.safe_load(omb.rocketmq_driver(FULL_SPEED, "127.0.0.1:9"))
    assert (rocketmq["batchCQ"], rocketmq["autoBatch"], rocketmq["batchMaxBytes"]) == (True, True, 32768)
    kafka = yaml.safe_load(omb.kafka_driver(SINGLE, "127.0.0.1:9"))
    assert kafka["producerConfig"].split() == ["acks=all", "linger.ms=0", "batch.size=0"]
    assert kafka["commonConfig"] == "bootstrap.servers=127.0.0.1:9\n"
    assert kafka["topicConfig"] == ""
    load = yaml.safe_load(omb.workload_file(PUBLISH))
    assert (load["subscriptionsPerTopic"], load["producerRate"], load["partitionsPerTopic"]) == (0, 10_000_000, 16)


def test_a_run_has_whole_minutes_of_warm_up_and_measuring() -> None:
    load = yaml.safe_load(omb.workload_file(replace(FULL_SPEED, timing=Timing(warm_up_seconds=120, seconds=60))))
    assert (load["warmupDurationMinutes"], load["testDurationMinutes"]) == (2, 1)


def test_rates_of_ten_seconds_become_counts(tmp_path: Path) -> None:
    (tmp_path / "omb.json").write_text(json.dumps(RESULT))
    result = omb.read_result(tmp_path / "omb.json")
    assert (result.seconds, result.sent, result.failed, result.received, result.backlog) == (20, 4000, 1, 4000, 7)
    assert (result.publish_p99_ms, result.end_to_end_p99_ms) == (20.0, 30.0)


def test_without_consumers_nothing_is_said_of_them(tmp_path: Path) -> None:
    (tmp_path / "omb.json").write_text(json.dumps(RESULT | {"consumeRate": [0.0, 0.0]}))
    assert omb.read_result(tmp_path / "omb.json").received is None


def test_a_missing_result_and_an_unbuilt_checkout_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="no result"):
        omb.read_result(tmp_path / "omb.json")
    with pytest.raises(ProcessError, match="OMB_DIR names no built"):
        omb.class_path(tmp_path)


def test_a_checkout_named_by_the_environment_is_the_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv(omb.VARIABLE, str(tmp_path))
    nothing = Builds(None, None)
    program = load_program(FULL_SPEED, System.KAFKA, "127.0.0.1:9", nothing, tmp_path)
    assert "io.openmessaging.benchmark.Benchmark" in program.command
    assert program.folder == tmp_path
    assert program.done is not None
    own = replace(FULL_SPEED, client=Client.OWN)
    assert "bench.batch.own_load" in load_program(own, System.RAPTORMQ, "x:1", nothing, tmp_path).command
