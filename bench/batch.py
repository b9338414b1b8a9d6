"""AutoBatch off and on, over sizes and delays of a batch: our client on our broker, one after the other.

Every run starts a broker over an empty folder; `batch_load` is the load, a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.progress import track

from bench.output import errors, markdown
from bench.process_usage import cpu_seconds
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError

BODY_BYTES = 1024
_MARGIN_SECONDS = 45
HEADER = ["1 KiB messages", "msg/s", "gain", "p50 ms", "p99 ms", "broker CPU s per 1M", "client CPU s per 1M"]


@dataclass(frozen=True)
class Setting:
    """How the producer sends."""

    auto_batch: bool
    batch_bytes: int = 32 * 1024
    delay_ms: float = 10.0
    under_way: int = 4096

    @property
    def title(self) -> str:
        """Words for the table."""
        if not self.auto_batch:
            return f"AutoBatch off, {self.under_way} under way"
        return f"AutoBatch on, {self.batch_bytes >> 10} KiB, {self.delay_ms:g} ms, {self.under_way} under way"


@dataclass(frozen=True)
class Run:
    """One measurement."""

    setting: Setting
    messages_per_second: float
    p50_ms: float
    p99_ms: float
    broker_cpu_per_million: float
    client_cpu_per_million: float


QUICK = (Setting(False), Setting(True))
FULL = (
    *QUICK,
    Setting(True, 8 * 1024),
    Setting(True, 128 * 1024),
    Setting(True, delay_ms=1),
    Setting(True, delay_ms=50),
)


def measure(settings: tuple[Setting, ...], rounds: int, seconds: float) -> list[Run]:
    """Run everything, round after round; raises ProcessError when a broker or the load fails."""
    steps = [setting for _ in range(rounds) for setting in settings]
    return [_measure_once(setting, seconds) for setting in track(steps, "batch", console=errors)]


def _measure_once(setting: Setting, seconds: float) -> Run:
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with RaptorMQDev(folder) as server:
            assert server.broker is not None
            before = cpu_seconds(server.broker.pid)
            figures = _load(server.name_servers, setting, seconds)
            # The second of warming up is in the broker's time, not in the count: a share that both settings have.
            broker_cpu = (cpu_seconds(server.broker.pid) - before) * seconds / (seconds + 1)
    finally:
        shutil.rmtree(folder)
    millions = figures["messages"] / 1e6
    return Run(
        setting,
        figures["messages"] / figures["seconds"],
        figures["p50_ms"],
        figures["p99_ms"],
        broker_cpu / millions,
        figures["client_cpu_seconds"] / millions,
    )


def _load(name_servers: str, setting: Setting, seconds: float) -> dict[str, float]:
    command = [
        *(sys.executable, "-m", "bench.batch_load", name_servers, "on" if setting.auto_batch else "off"),
        *map(str, (seconds, setting.under_way, BODY_BYTES, setting.batch_bytes, setting.delay_ms)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + _MARGIN_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ProcessError(f"the load did not end: {error}") from error
    if done.returncode:
        raise ProcessError(f"the load failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def table(runs: list[Run]) -> str:
    """Medians over the rounds; the gain is over the first setting."""
    return markdown(HEADER, list(_rows(runs)))


def _rows(runs: list[Run]) -> Iterator[list[str]]:
    base = None
    for setting in dict.fromkeys(run.setting for run in runs):
        own = [run for run in runs if run.setting == setting]
        speed = median(run.messages_per_second for run in own)
        base = base or speed
        yield [
            setting.title,
            f"{speed:,.0f}",
            f"{speed / base:.2f}",
            f"{median(run.p50_ms for run in own):,.1f}",
            f"{median(run.p99_ms for run in own):,.1f}",
            f"{median(run.broker_cpu_per_million for run in own):,.1f}",
            f"{median(run.client_cpu_per_million for run in own):,.1f}",
        ]
