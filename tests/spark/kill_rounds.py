"""Rounds of kills: a driver copies numbered messages of a Dledger group with three members, and a process that it needs
is killed with SIGKILL in each round.

A round sends more messages. When a number of them that the seed chooses has been copied, it kills the driver with all
its processes, its JVM, a Python worker, the planner of a source, the leader, a follower or all members. What was killed
starts again: members at once, a driver as a pod whose restart policy says so; Spark replaces a worker. The round ends
when all messages have been copied. Then, and at the end, the topic of the exactly-once sink must have each message as
often as the source, and that of the other sink must have each message.

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

from raptormq.client import AdminClient, Message, MessageQueue, PullConsumer
from raptormq.errors import RaptorMQError
from tests.faults.dledger_processes import BROKER, DledgerProcesses, dledger_group
from tests.spark.copying_driver import OFFSETS_PER_BATCH
from tests.spark.sending import send
from tests.spark.servers import stored

SOURCE, ONCE, LEAST = "ids", "copied-once", "copied"
QUEUES = 2
IDS_PER_ROUND = 4 * OFFSETS_PER_BATCH
_BATCH_S = 0.5
"""About the time of a micro-batch, at any point of which a kill comes."""
_POLL_S = 0.1
_LONGEST_WAIT_S = 600.0


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

    def __init__(self, group: DledgerProcesses, admin: AdminClient, driver: Driver, random: Random) -> None:
        self.group = group
        self.admin = admin
        self.driver = driver
        self.random = random

    async def kill_members(self, *members: str) -> None:
        """Kill members of the group, and start them again when all of them have ended."""
        for member in members:
            self.group.kill(member)
        await asyncio.gather(*map(self.group.start, members))

    def kill_one(self, command: str) -> None:
        """Kill one of the driver's processes with this command line; none if there is none at the moment."""
        if found := self.driver.processes(command):
            _kill(self.random.choice(found))


Fault = Callable[[Surroundings], Awaitable[None]]


async def driver(around: Surroundings) -> None:
    around.driver.kill()


async def jvm(around: Surroundings) -> None:
    """Kill Spark's JVM only, which leaves the Python process of the driver and its workers."""
    around.kill_one("org.apache.spark.deploy.SparkSubmit")


async def worker(around: Surroundings) -> None:
    """Kill a Python worker: it reads, writes or commits, or is the parent of the others."""
    around.kill_one("pyspark.daemon")


async def planner(around: Surroundings) -> None:
    """Kill the Python process that plans the batches of a query, which ends the query."""
    around.kill_one("python_streaming_source_runner")


async def leader(around: Surroundings) -> None:
    await around.kill_members(await around.group.leads(around.admin))


async def follower(around: Surroundings) -> None:
    others = around.group.ports.keys() - {await around.group.leads(around.admin)}
    await around.kill_members(around.random.choice(sorted(others)))


async def all_members(around: Surroundings) -> None:
    await around.kill_members(*around.group.ports)


FAULTS: tuple[Fault, ...] = (driver, jvm, worker, planner, leader, follower, all_members)
"""All faults. A seed shuffles them, so each comes before any comes again."""


class Copy:
    """The bodies of a topic. Each call of `read` adds the messages that were written since the previous one."""

    def __init__(self, consumer: PullConsumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._offsets: dict[MessageQueue, int] = {}
        self.bodies: Counter[bytes] = Counter()

    async def read(self) -> Counter[bytes]:
        for queue in await self._consumer.queues(self._topic):
            offset, end = self._offsets.get(queue, 0), await self._consumer.max_offset(queue)
            while offset < end:
                result = await self._consumer.pull(queue, offset, 1000)
                self.bodies.update(message.body for message in result.messages())
                offset = self._offsets[queue] = result.next_offset
        return self.bodies


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
    load: float
    """Load average of the last minute."""


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
    violations: list[str] = field(default_factory=list)
    """Everything that must not be, after each round and at the end."""

    def compare(self, when: str) -> None:
        """Compare the topics as they are now."""
        found = []
        for topic, bodies in ((ONCE, self.once), (LEAST, self.least)):
            found += [f"{topic}: {body.decode()} is missing" for body in sorted((self.source - bodies).keys())]
            found += [f"{topic}: {body.decode()} was never sent" for body in sorted(bodies.keys() - self.source.keys())]
        found += [f"{ONCE}: {body.decode()} is there again" for body in sorted((self.once - self.source).keys())]
        self.violations += [f"{when}: {each}" for each in found]


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


async def run(folder: Path, seed: int, faults: Sequence[Fault], told: Callable[[str], None] = lambda _: None) -> Result:
    """Play a round of each fault and return what was found. The seed chooses when a fault comes, and what it kills.

    Raises:
        TimeoutError: Not everything was copied within ten minutes after a fault.
    """
    result, random, clock = Result(seed), Random(seed), asyncio.get_running_loop().time
    async with AsyncExitStack() as opened:
        group = await opened.enter_async_context(dledger_group(folder, "stagedMessagesEnable=true\n"))
        copying = Driver(group.name_server, folder)
        opened.callback(copying.kill)
        admin = await opened.enter_async_context(AdminClient(client_config=group.clients()))
        consumer = await opened.enter_async_context(PullConsumer(client_config=group.clients()))
        around = Surroundings(group, admin, copying, random)
        copies = source, once, least = [Copy(consumer, topic) for topic in (SOURCE, ONCE, LEAST)]
        result.source, result.once, result.least = (copy.bodies for copy in copies)
        await group.leader(admin)
        for topic in (SOURCE, ONCE, LEAST):
            await admin.create_topic(topic, QUEUES, QUEUES)

        async def until(condition: Callable[[], Awaitable[bool]]) -> None:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                while True:
                    copying.keep_running()
                    try:
                        if await condition():
                            return
                    except RaptorMQError:  # members start or elect a leader
                        pass
                    await asyncio.sleep(_POLL_S)  # between two requests

        async def copied(number: int) -> bool:
            return min((await once.read()).total(), (await least.read()).total()) >= number

        async def copied_all() -> bool:
            wanted = await source.read()
            return (await once.read()).total() >= wanted.total() and not wanted - await least.read()

        async def committed() -> bool:
            # Spark removes the first commits after a hundred.
            return all(any((folder / query / "commits").glob("[0-9]*")) for query in ("once", "least"))

        sent = 0
        for fault in faults:
            messages = [Message(SOURCE, b"%d" % number) for number in range(sent, sent + IDS_PER_ROUND)]
            await asyncio.to_thread(send, group.name_server, messages, QUEUES, BROKER)
            at, pause_s = sent + random.randrange(IDS_PER_ROUND - OFFSETS_PER_BATCH), random.uniform(0, _BATCH_S)
            sent += IDS_PER_ROUND
            await until(committed)
            await until(partial(copied, at))
            kills_at = clock() + pause_s
            while clock() < kills_at:  # the point within the micro-batch
                await asyncio.sleep(0.01)
            began, starts = clock(), copying.starts
            await fault(around)
            await until(copied_all)
            result.compare(f"round {len(result.rounds) + 1}, {fault.__name__}")
            load = os.getloadavg()[0]
            result.rounds.append(Round(fault.__name__, at, clock() - began, copying.starts - starts, load))
            told(_row(len(result.rounds), result.rounds[-1]))

        async def finished() -> bool:
            return copying.finish()

        await until(finished)
        result.starts = copying.starts
        result.source, result.once, result.least = [
            await stored(group.name_server, topic) for topic in (SOURCE, ONCE, LEAST)
        ]
        result.compare("end")
    return result


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended since it was listed
        pass


def _row(number: int, each: Round) -> str:
    return f"| {number} | {each.fault} | {each.at} | {each.lasted_s:.1f} | {each.starts} | {each.load:.1f} |"


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
    """Kill a Spark driver, its processes and the members of the group, and check what was written."""
    click.echo("| round | killed | after | s | drivers started | load |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="raptormq-kills-") as name:
        folder = Path(name)
        try:
            result = asyncio.run(run(folder, seed, chosen(seed, rounds), click.echo))
        finally:
            if log is not None:
                log.write_bytes((folder / "driver.log").read_bytes())
    click.echo(report(result))
    if result.violations:
        raise click.ClickException("; ".join(result.violations))


if __name__ == "__main__":
    main()
