"""Selection of the load program: the Java or Python program, or the OpenMessaging Benchmark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.batch import omb
from bench.batch.result import LoadResult
from bench.batch.systems import Builds, System
from bench.batch.workload import Client, Workload
from tests.interop.rocketmq_java import ProcessError

_HEAP = "2g"
_RESULT = "result "
_MAIN_CLASSES = {
    System.RAPTORMQ: "io.raptormq.bench.rocketmq.RocketMqLoad",
    System.ROCKETMQ: "io.raptormq.bench.rocketmq.RocketMqLoad",
    System.KAFKA: "io.raptormq.bench.kafka.KafkaLoad",
}


@dataclass(frozen=True)
class LoadProgram:
    """A command and the interpretation of its output."""

    name: str
    command: list[str]
    begins: str
    """Text in the line that marks the start of the measured part."""
    ends: str
    timeout_seconds: float
    result: Callable[[list[str]], LoadResult]
    """Parses the result from the output lines; raises ProcessError."""
    folder: Path | None = None
    """Working directory."""
    done: str | None = None
    """Text in the last line of a program that may not exit afterwards; None for a program that exits."""


def load_program(workload: Workload, system: System, address: str, builds: Builds, folder: Path) -> LoadProgram:
    """Return the program for a system at `address`; `folder` is for its files."""
    installed = omb.folder()
    if workload.client is Client.OFFICIAL and installed is not None:
        return _omb(installed, workload, system, address, folder)
    settings = [f"server={address}", *workload.load_settings]
    if workload.client is Client.OWN:
        command = [sys.executable, "-m", "bench.batch.own_load", *settings]
    else:
        assert builds.bench is not None
        kafka = system is System.KAFKA
        class_path = builds.bench.kafka_class_path if kafka else builds.bench.rocketmq_class_path
        command = [*_jvm(folder), "-cp", class_path, _MAIN_CLASSES[system], *settings]
    name = f"the load of {workload.name}"
    return LoadProgram(name, command, "measuring", "measured", workload.timing.timeout_seconds, printed_result)


def _omb(installed: Path, workload: Workload, system: System, address: str, folder: Path) -> LoadProgram:
    driver, load, output = (folder / name for name in ("driver.yaml", "workload.yaml", "omb.json"))
    driver.write_text(
        omb.kafka_driver(workload, address) if system is System.KAFKA else omb.rocketmq_driver(workload, address)
    )
    load.write_text(omb.workload_file(workload))
    class_path = omb.class_path(installed)
    arguments = ["--drivers", str(driver), "--output", str(output), str(load)]
    return LoadProgram(
        "the OpenMessaging Benchmark",
        [*_jvm(folder), "-cp", class_path, "io.openmessaging.benchmark.Benchmark", *arguments],
        omb.BEGINS,
        omb.ENDS,
        workload.timing.timeout_seconds,
        lambda _: omb.read_result(output),
        installed,
        omb.DONE,
    )


def _jvm(folder: Path) -> list[str]:
    return ["java", f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-XX:+UseG1GC", f"-Duser.home={folder}"]


def printed_result(lines: list[str]) -> LoadResult:
    """Parse the result that the Java and Python programs print at their end."""
    found = next((line for line in lines if line.startswith(_RESULT)), None)
    if found is None:
        raise ProcessError("the load has no result:\n" + "".join(lines))
    return LoadResult(**json.loads(found.removeprefix(_RESULT)))
