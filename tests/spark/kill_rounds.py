"""Rounds of kills: a driver copies numbered messages, and a process that it needs is killed with SIGKILL in each round.

A round sends more messages. When a number of them that the seed chooses has been copied, it kills the driver with all
its processes, a Python worker, the planner of a source, or the broker. What was killed starts again: the broker at
once, a driver as a pod whose restart policy says so; Spark replaces a worker. The round ends when all messages have
been copied. At the end, the topic of the exactly-once sink must have each message once, and that of the other sink must
have each message.

    python -m tests.spark.kill_rounds --rounds 50 --seed 7
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import click

from raptormq.client import Message, PullConsumer
from raptormq.errors import RaptorMQError
from tests.ports import free_port
from tests.spark.copying_driver import OFFSETS_PER_BATCH
from tests.spark.sending import send
from tests.spark.servers import Servers, stored

SOURCE, ONCE, LEAST = "ids", "copied-once", "copied"
QUEUES = 2
IDS_PER_ROUND = 4 * OFFSETS_PER_BATCH
_BATCH_S = 0.5
"""About the time of a micro-batch, at any point of which a kill comes."""
_POLL_S = 0.1
_LONGEST_WAIT_S = 240.0


class Driver:
    """The driver, which is started again whenever it has ended."""

    def __init__(self, name_server: str, folder: Path) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "tests.spark.copying_driver", name_server, SOURCE, ONCE, LEAST]
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        """Start the driver if it has failed or was killed."""
        if self._process is not None and self._process.poll() in (None, 0):
            return
        self.kill()
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        # A killed process leaves its temporary files.
        environment["SPARK_LOCAL_DIRS"] = environment["TMPDIR"] = str(self._folder)
        # Spark repeats a task whose worker dies, up to four times, as on a cluster. One core runs the two tasks of
        # a batch one after the other. The optimizing compiler would pay off later only.
        quick = f"--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={self._folder}'"
        environment["PYSPARK_SUBMIT_ARGS"] = f"--master local[1,4] {quick} pyspark-shell"
        with (self._folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._folder)],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).resolve().parents[2],
                start_new_session=True,
            )
        self.starts += 1

    def kill(self) -> None:
        """Kill the driver with its JVM and its Python processes, as the end of a container does."""
        if self._process is None:
            return
        for pid in [self._process.pid, *self.processes()]:
            _kill(pid)
        self._process.wait()

    def processes(self, command: str = "") -> list[int]:
        """Return the processes of the driver's session, or those with these words in their command line."""
        assert self._process is not None
        words = ["--full", command] if command else []
        found = subprocess.run(
            ["pgrep", "--session", str(self._process.pid), *words], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]

    def finish(self) -> bool:
        """Let the driver copy what is left. Return whether it has ended."""
        (self._folder / "end").touch()
        assert self._process is not None
        return self._process.poll() == 0


class Surroundings:
    """What a fault can reach."""

    def __init__(self, servers: Servers, driver: Driver, random: Random) -> None:
        self.servers = servers
        self.driver = driver
        self.random = random
        self._running = AsyncExitStack()
        self._broker: subprocess.Popen[bytes] | None = None

    async def start_broker(self) -> None:
        self._broker = await self._running.enter_async_context(self.servers.broker())

    async def kill_broker(self) -> None:
        assert self._broker is not None
        self._broker.kill()
        await self._running.aclose()

    def kill_one(self, command: str) -> None:
        """Kill one of the driver's processes with this command line; none if there is none at the moment."""
        if found := self.driver.processes(command):
            _kill(self.random.choice(found))


Fault = Callable[[Surroundings], Awaitable[None]]


async def driver(around: Surroundings) -> None:
    around.driver.kill()


async def worker(around: Surroundings) -> None:
    """Kill a Python worker: it reads, writes or commits, or is the parent of the others."""
    around.kill_one("pyspark.daemon")


async def planner(around: Surroundings) -> None:
    """Kill the Python process that plans the batches of a query, which ends the query."""
    around.kill_one("python_streaming_source_runner")


async def broker(around: Surroundings) -> None:
    await around.kill_broker()
    await around.start_broker()


FAULTS: tuple[Fault, ...] = (driver, worker, planner, broker)
"""All faults. A seed shuffles them, so each comes before any comes again."""


@dataclass
class Round:
    """What happened in a round."""

    fault: str
    at: int
    """Number of copied messages after which the fault came."""
    lasted_s: float
    """Time from the fault until everything was copied."""
    starts: int
    """Number of drivers that were started in this time. The kill of a planner may end its driver only later, with the
    messages of the next round."""


@dataclass
class Result:
    """What happened in all rounds, and what is in the topics."""

    seed: int
    rounds: list[Round] = field(default_factory=list)
    starts: int = 0
    """Number of drivers that were started."""
    source: Counter[bytes] = field(default_factory=Counter)
    once: Counter[bytes] = field(default_factory=Counter)
    least: Counter[bytes] = field(default_factory=Counter)

    @property
    def violations(self) -> list[str]:
        """Everything that must not be."""
        found = []
        for topic, bodies in ((ONCE, self.once), (LEAST, self.least)):
            found += [f"{topic}: {body.decode()} is missing" for body in sorted((self.source - bodies).keys())]
            found += [f"{topic}: {body.decode()} was never sent" for body in sorted(bodies.keys() - self.source.keys())]
        return [
            *found,
            *(f"{ONCE}: {body.decode()} is there again" for body in sorted((self.once - self.source).keys())),
        ]


def checksum(bodies: Counter[bytes]) -> str:
    """Return the checksum of the bodies of a topic in any order, each as often as it is there."""
    return hashlib.sha256(b"\n".join(sorted(bodies.elements()))).hexdigest()[:16]


def chosen(seed: int, rounds: int) -> list[Fault]:
    """Return the faults of so many rounds: each before any comes again."""
    random = Random(seed)
    order: list[Fault] = []
    while len(order) < rounds:
        order += random.sample(FAULTS, len(FAULTS))
    return order[:rounds]


async def run(
    folder: Path, ports: list[int], seed: int, faults: Sequence[Fault], told: Callable[[str], None] = lambda _: None
) -> Result:
    """Play a round of each fault and return what was found. The seed chooses when a fault comes, and what it kills.

    Raises:
        TimeoutError: Not everything was copied within four minutes after a fault.
    """
    result, random, clock = Result(seed), Random(seed), asyncio.get_running_loop().time
    servers = Servers(folder, ports)
    copying = Driver(servers.name_server, folder)
    around = Surroundings(servers, copying, random)
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(servers.names())
        await around.start_broker()
        opened.push_async_callback(around.kill_broker)
        opened.callback(copying.kill)
        await servers.create(SOURCE, ONCE, LEAST, queues=QUEUES)
        consumer = await opened.enter_async_context(PullConsumer(name_servers=servers.name_server))

        async def until(condition: Callable[[], Awaitable[bool]]) -> None:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                while True:
                    copying.keep_running()
                    try:
                        if await condition():
                            return
                    except RaptorMQError:  # the broker starts
                        pass
                    await asyncio.sleep(_POLL_S)  # between two questions

        async def count(topic: str) -> int:
            return sum([await consumer.max_offset(queue) for queue in await consumer.queues(topic)])

        async def copied(number: int) -> bool:
            return min(await count(ONCE), await count(LEAST)) >= number

        async def committed() -> bool:
            # Spark removes the first commits after a hundred.
            return all(any((folder / query / "commits").glob("[0-9]*")) for query in ("once", "least"))

        sent = 0
        for fault in faults:
            messages = [Message(SOURCE, b"%d" % number) for number in range(sent, sent + IDS_PER_ROUND)]
            await asyncio.to_thread(send, servers.name_server, messages, QUEUES)
            at, pause_s = sent + random.randrange(IDS_PER_ROUND - OFFSETS_PER_BATCH), random.uniform(0, _BATCH_S)
            sent += IDS_PER_ROUND
            await until(committed)
            await until(partial(copied, at))
            kills_at = clock() + pause_s
            while clock() < kills_at:  # the point within the micro-batch
                await asyncio.sleep(0.01)
            began, starts = clock(), copying.starts
            await fault(around)
            await until(partial(copied, sent))
            result.rounds.append(Round(fault.__name__, at, clock() - began, copying.starts - starts))
            told(_row(len(result.rounds), result.rounds[-1]))

        async def finished() -> bool:
            return copying.finish()

        await until(finished)
        result.starts = copying.starts
        result.source, result.once, result.least = [
            await stored(servers.name_server, topic) for topic in (SOURCE, ONCE, LEAST)
        ]
    return result


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended since it was listed
        pass


def _row(number: int, each: Round) -> str:
    return f"| {number} | {each.fault} | {each.at} | {each.lasted_s:.1f} | {each.starts} |"


def report(result: Result) -> str:
    """Return what was found, in a few lines."""
    again = sum((result.least - result.source).values())
    return (
        f"{len(result.rounds)} rounds, seed {result.seed}, {result.starts} drivers\n"
        f"sent: {result.source.total()} messages, checksum {checksum(result.source)}\n"
        f"exactly once: {result.once.total()} messages, checksum {checksum(result.once)}\n"
        f"at least once: {result.least.total()} messages, of them {again} again\n"
        f"{len(result.violations)} violations"
    )


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Number of rounds.")
@click.option("--seed", default=1, show_default=True, help="Chooses the faults, their order and their times.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="File to keep the log of the drivers.")
def main(rounds: int, seed: int, log: Path | None) -> None:
    """Kill a Spark driver, its workers and its broker, and check what was written."""
    click.echo("| round | killed | after | s | drivers started |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="raptormq-kills-") as name:
        folder = Path(name)
        try:
            result = asyncio.run(run(folder, [free_port(), free_port()], seed, chosen(seed, rounds), click.echo))
        finally:
            if log is not None:
                log.write_bytes((folder / "driver.log").read_bytes())
    click.echo(report(result))
    if result.violations:
        raise click.ClickException("; ".join(result.violations))


if __name__ == "__main__":
    main()
