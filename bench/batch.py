"""AutoBatch off and on, over sizes and delays of a batch and both types of queues: our client on our broker, one run
after the other.

Every run starts a broker over an empty folder; `batch_load` is the load, a process of its own, and `batch_consume`
reads beside it where the setting says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop
from rich.progress import track

from bench.batch_load import TOPIC
from bench.output import errors, markdown
from bench.process_usage import cpu_seconds
from raptormq.client import AdminClient
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import ProcessError

BODY_BYTES = 1024
_MARGIN_SECONDS = 45
QUEUES = 4
HEADER = [
    "1 KiB messages",
    "msg/s",
    "gain",
    "p50 ms",
    "p99 ms",
    "broker CPU s per 1M",
    "client CPU s per 1M",
    "consumed meanwhile msg/s",
    "consumer CPU s per 1M",
]


@dataclass(frozen=True)
class Setting:
    """How the producer sends."""

    auto_batch: bool
    batch_bytes: int = 32 * 1024
    delay_ms: float = 10.0
    under_way: int = 4096
    queue_type: str = "SimpleCQ"
    consumed: bool = False
    """By a batch listener, at the same time."""

    @property
    def title(self) -> str:
        """Words for the table."""
        words = "AutoBatch off"
        if self.auto_batch:
            words = f"AutoBatch on, {self.batch_bytes >> 10} KiB, {self.delay_ms:g} ms"
        if self.queue_type != "SimpleCQ":
            words = f"{self.queue_type}, {words}"
        return f"{words}, {self.under_way} under way{', consumed' if self.consumed else ''}"


@dataclass(frozen=True)
class Run:
    """One measurement."""

    setting: Setting
    messages_per_second: float
    p50_ms: float
    p99_ms: float
    broker_cpu_per_million: float
    client_cpu_per_million: float
    consumed_per_second: float | None = None
    consumer_cpu_per_million: float | None = None


QUICK = (Setting(False), Setting(True), Setting(True, queue_type="BatchCQ", consumed=True))
FULL = (
    *QUICK,
    Setting(True, queue_type="BatchCQ"),
    Setting(True, consumed=True),
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
            uvloop.run(_create_topic(server.name_servers, setting))
            before = cpu_seconds(server.broker.pid)
            with _consuming(server.name_servers, setting) as consumed:
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
        consumed["messages"] / consumed["seconds"] if consumed else None,
        consumed["cpu_seconds"] / consumed["messages"] * 1e6 if consumed else None,
    )


async def _create_topic(name_servers: str, setting: Setting) -> None:
    async with AdminClient(name_servers=name_servers) as admin:
        await admin.create_topic(TOPIC, QUEUES, QUEUES, attributes={"queue.type": setting.queue_type})


@contextmanager
def _consuming(name_servers: str, setting: Setting) -> Iterator[dict[str, float]]:
    """Consume while the context lasts; the figures are there after it."""
    figures: dict[str, float] = {}
    if not setting.consumed:
        yield figures
        return
    command = [sys.executable, "-m", "bench.batch_consume", name_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as consumer:
        try:
            yield figures
            figures |= json.loads(consumer.communicate(timeout=_MARGIN_SECONDS)[0])
        finally:
            consumer.kill()


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
            _or_dash([run.consumed_per_second for run in own], ",.0f"),
            _or_dash([run.consumer_cpu_per_million for run in own], ",.1f"),
        ]


def _or_dash(figures: list[float | None], form: str) -> str:
    known = [figure for figure in figures if figure is not None]
    return format(median(known), form) if known else "-"
