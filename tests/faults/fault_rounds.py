"""Rounds of faults against a Dledger group of real processes on a separate network, with clients that write and read.

Each round applies a fault that a seed selects, maintains it for some seconds, ends it, and waits until the group
acknowledges again. At the end, every acknowledged message must be stored once and in order, the messages that readers
received must equal the stored ones, and the logs of the members must be byte-identical.

    python -m tests.faults.fault_rounds --rounds 20 --seed 7 --report docs/explanation/fault-rounds.md
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import click

from raptormq.client import (
    AdminClient,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullResult,
    PullStatus,
)
from raptormq.client.consumer.pull import PullRequest, pull
from raptormq.client.consumer.subscription import subscription_to
from raptormq.errors import RaptorMQError
from raptormq.transport.pool import ConnectionPool
from tests.faults.dledger_processes import BROKER, FAST_ELECTIONS, NAME_SERVER, DledgerProcesses
from tests.faults.ledger import QUEUES, TOPIC, Ledger, read_queue
from tests.faults.linearizable_log import End, Pull, violations
from tests.faults.network import NamespacesRefused, Network, network

MEMBERS = ("n0", "n1", "n2")
_AFTER = 50
"""Number of acknowledgements after a fault that complete a round."""
_LONGEST_ROUND_S = 120.0
_VOLUME = "192m"
_SPARE_BYTES = 1 << 20


class Group:
    """The processes, their network and their clients. A method that applies a fault returns a function that ends it."""

    def __init__(self, processes: DledgerProcesses, net: Network, admin: AdminClient, random: Random) -> None:
        self.processes = processes
        self.net = net
        self.admin = admin
        self.random = random

    async def leader(self) -> str:
        return await self.processes.leader(self.admin)

    async def follower(self) -> str:
        leader = await self.leader()
        return self.random.choice([member for member in MEMBERS if member != leader])

    async def start(self, members: Sequence[str]) -> None:
        await asyncio.gather(*(self.processes.start(member) for member in members))


Heal = Callable[[], Awaitable[None] | None]
Fault = Callable[[Group], Awaitable[Heal]]


async def kill_leader(group: Group) -> Heal:
    leader = await group.leader()
    group.processes.kill(leader)
    return lambda: group.start([leader])


async def kill_follower(group: Group) -> Heal:
    follower = await group.follower()
    group.processes.kill(follower)
    return lambda: group.start([follower])


async def kill_all(group: Group) -> Heal:
    for member in MEMBERS:
        group.processes.kill(member)
    return lambda: group.start(MEMBERS)


async def kill_name_server(group: Group) -> Heal:
    group.processes.kill(NAME_SERVER)
    return group.processes.start_name_server


async def wipe_follower(group: Group) -> Heal:
    follower = await group.follower()
    group.processes.kill(follower)
    for path in group.processes.root(follower).iterdir():
        _remove(path)
    return lambda: group.start([follower])


async def freeze_leader(group: Group) -> Heal:
    process = group.processes.running[await group.leader()]
    process.send_signal(signal.SIGSTOP)
    return lambda: process.send_signal(signal.SIGCONT)


async def leader_alone(group: Group) -> Heal:
    """Cut the leader off from the other members. Clients and the name server reach it."""
    group.net.isolate(await group.leader(), MEMBERS)
    return group.net.heal


async def leader_deaf(group: Group) -> Heal:
    """The members receive from the leader, but the leader does not receive from them."""
    leader = await group.leader()
    for other in MEMBERS:
        if other != leader:
            group.net.cut(other, leader)
    return group.net.heal


async def leader_mute(group: Group) -> Heal:
    """The leader receives from the members, but they do not receive from it."""
    leader = await group.leader()
    for other in MEMBERS:
        if other != leader:
            group.net.cut(leader, other)
    return group.net.heal


async def leader_off_the_network(group: Group) -> Heal:
    """Isolate the leader from members, clients and the name server."""
    leader = await group.leader()
    group.net.isolate(leader, (*MEMBERS, NAME_SERVER))
    group.net.cut("client", leader)
    group.net.cut_to_client(leader)
    return group.net.heal


async def follower_alone(group: Group) -> Heal:
    group.net.isolate(await group.follower(), MEMBERS)
    return group.net.heal


async def no_majority(group: Group) -> Heal:
    """Isolate all members from each other, so that there is no majority until the fault ends."""
    for member, other in itertools.permutations(MEMBERS, 2):
        group.net.cut(member, other)
    return group.net.heal


async def bridge(group: Group) -> Heal:
    """Cut two members off from each other. Both reach the third."""
    one, two = group.random.sample(MEMBERS, 2)
    group.net.isolate(one, [two])
    return group.net.heal


async def lossy(group: Group) -> Heal:
    """Make every host lose one packet in ten."""
    for name in (*MEMBERS, NAME_SERVER):
        group.net.lose(name, 0.1)
    return group.net.heal


async def slow_leader(group: Group) -> Heal:
    group.net.slow(await group.leader(), "1mbit")
    return group.net.heal


async def full_leader(group: Group) -> Heal:
    return _fill(group.processes.root(await group.leader()))


async def full_follower(group: Group) -> Heal:
    return _fill(group.processes.root(await group.follower()))


FAULTS: tuple[Fault, ...] = (
    kill_leader,
    leader_alone,
    freeze_leader,
    kill_all,
    leader_off_the_network,
    wipe_follower,
    leader_deaf,
    leader_mute,
    full_leader,
    bridge,
    lossy,
    kill_follower,
    follower_alone,
    no_majority,
    slow_leader,
    full_follower,
    kill_name_server,
)
"""All faults. A seed shuffles them, so that each is applied once before any is repeated."""


def _fill(root: Path) -> Heal:
    """Fill the volume of a member except for a small rest."""
    ballast = root / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:  # a buffer would be written again at close, and fail again
            while True:
                file.write(bytes(1 << 16))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    return lambda: ballast.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


class Reader:
    """Reads all queues repeatedly, each from its last position, and records the messages by offset.

    It also pulls from each member, like a consumer with an outdated route.
    """

    def __init__(self, consumer: PullConsumer, members: Sequence[str]) -> None:
        """Create a reader that has read nothing.

        Args:
            members: addresses of the members.
        """
        self._consumer = consumer
        self._members = members
        self._pool = ConnectionPool()
        self._places = dict.fromkeys(range(QUEUES), 0)
        self.seen: dict[int, dict[int, int]] = {queue: {} for queue in range(QUEUES)}
        self.taken_back: list[str] = []
        self.history: dict[int, list[Pull | End]] = {queue: [] for queue in range(QUEUES)}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        ways: list[Callable[[int], Coroutine[None, None, None]]] = [self._read, self._ask]
        ways += [partial(self._ask_for_more, member) for member in self._members]
        self._tasks = [asyncio.ensure_future(way(queue)) for queue in range(QUEUES) for way in ways]

    async def _ask(self, queue_id: int) -> None:
        """Request the maximum offset repeatedly."""
        clock, history = asyncio.get_running_loop().time, self.history[queue_id]
        while True:
            invoked = clock()
            try:
                end = await self._consumer.max_offset(MessageQueue(TOPIC, BROKER, queue_id))
                history.append(End(end, invoked, clock()))
            except RaptorMQError:
                pass
            await asyncio.sleep(0.05)  # between two requests

    async def _ask_for_more(self, member: str, queue_id: int) -> None:
        """Pull messages that the reader does not have from one member, repeatedly."""
        clock, queue = asyncio.get_running_loop().time, MessageQueue(TOPIC, BROKER, queue_id)
        while True:
            wanted = PullRequest("askers", queue, self._places[queue_id], 32, subscription_to(TOPIC, "*"), True)
            invoked = clock()
            try:
                self._keep(await pull(self._pool, member, wanted, 3.0), invoked, clock())
            except RaptorMQError:
                pass
            await asyncio.sleep(0.05)  # between two requests

    async def _read(self, queue_id: int) -> None:
        clock, seen = asyncio.get_running_loop().time, self.seen[queue_id]
        while True:
            offset, invoked = self._places[queue_id], clock()
            try:
                result = await self._consumer.pull(MessageQueue(TOPIC, BROKER, queue_id), offset)
                self._keep(result, invoked, clock())
                for each in result.messages():
                    number = int(each.body)
                    if seen.setdefault(each.queue_offset, number) != number:
                        self.taken_back.append(f"queue {queue_id} offset {each.queue_offset}")
                if result.next_offset < offset:
                    self.taken_back.append(f"queue {queue_id} goes back from {offset} to {result.next_offset}")
                self._places[queue_id] = result.next_offset
            except RaptorMQError:
                await asyncio.sleep(0.05)

    def _keep(self, result: PullResult, invoked: float, returned: float) -> None:
        """Record what the response to a pull shows about the queue. A response with a retry code shows nothing."""
        numbers = tuple(int(each.body) for each in result.messages())
        if numbers or result.status is PullStatus.NO_NEW_MESSAGE:
            self.history[result.queue.queue_id].append(Pull(result.offset, numbers, invoked, returned))

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close(0.2)


@dataclass
class Round:
    """Results of a round. Times are in seconds."""

    fault: str
    lasted: float
    acknowledged: int
    refused: int
    gap: float
    """The longest time between two acknowledgements from the fault until the end of the round."""


@dataclass
class Result:
    """Results of all rounds, and of the final checks."""

    seed: int
    rounds: list[Round] = field(default_factory=list)
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    contradicting: list[str] = field(default_factory=list)
    """Contradictions to a queue that only grows, found by :mod:`tests.faults.linearizable_log`."""
    empty: int = 0
    """Number of pulls without messages, from any member."""

    @property
    def violations(self) -> list[str]:
        """All violations."""
        return [*self.lost, *self.duplicated, *self.reordered, *self.taken_back, *self.different, *self.contradicting]


@asynccontextmanager
async def volumes(folder: Path) -> AsyncIterator[None]:
    """Mount a small volume for the store of each member."""
    made: list[Path] = []
    try:
        for member in MEMBERS:
            root = folder / f"node-{member}"
            root.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_VOLUME}", "tmpfs", str(root)], check=True)
            made.append(root)
        yield
    finally:
        for root in made:
            subprocess.run(["umount", "-l", str(root)], check=True)


def chosen(seed: int, rounds: int) -> list[Fault]:
    """Return the faults of this number of rounds. Each occurs once before any is repeated."""
    random = Random(seed)
    order: list[Fault] = []
    while len(order) < rounds:
        order += random.sample(FAULTS, len(FAULTS))
    return order[:rounds]


async def run(folder: Path, seed: int, faults: Sequence[Fault], told: Callable[[str], None] = lambda _: None) -> Result:
    """Run a round with each fault, and return the results. The seed selects members and times.

    Raises:
        NamespacesRefused: This process may not create network namespaces.
        TimeoutError: The group does not acknowledge within two minutes after the end of a fault.
    """
    result = Result(seed)
    async with AsyncExitStack() as opened:
        net = opened.enter_context(network((NAME_SERVER, *MEMBERS)))
        await opened.enter_async_context(volumes(folder))
        processes = DledgerProcesses(folder, opened, FAST_ELECTIONS, hosts=net.hosts)
        await processes.start_name_server()
        await asyncio.gather(*map(processes.start, MEMBERS))
        admin = await opened.enter_async_context(AdminClient(name_servers=processes.name_server))
        config = ProducerConfig(retries=0)
        producer = await opened.enter_async_context(
            Producer("senders", name_servers=processes.name_server, config=config)
        )
        consumer = await opened.enter_async_context(PullConsumer(name_servers=processes.name_server))
        await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        ledger, reader = Ledger(producer), Reader(consumer, [processes.address(member) for member in MEMBERS])
        ledger.begin()
        reader.begin()
        group = Group(processes, net, admin, Random(seed))
        for fault in faults:
            result.rounds.append(await _round(group, ledger, fault))
            told(_row(len(result.rounds), result.rounds[-1]))
        await ledger.end()
        async with asyncio.timeout(_LONGEST_ROUND_S):
            confirmed = await _settled(group)
            stored = {queue: await read_queue(consumer, queue) for queue in range(QUEUES)}
        await reader.end()
        result.acknowledged = ledger.count
        _compare(result, ledger, reader, stored)
        for member in MEMBERS:
            processes.kill(member)
        result.different = _different_logs(processes, confirmed)
    return result


async def _round(group: Group, ledger: Ledger, fault: Fault) -> Round:
    clock = asyncio.get_running_loop().time
    await ledger.grow(_AFTER)
    lasts = group.random.uniform(2.0, 6.0)
    count, refused = ledger.count, len(ledger.refused)
    began = clock()
    async with asyncio.timeout(_LONGEST_ROUND_S):
        heal = await fault(group)
        while clock() < began + lasts:  # the duration of the fault
            await asyncio.sleep(0.05)
        healed = heal()
        if healed is not None:
            await healed
        await _settled(group)
        await ledger.grow(_AFTER)
    times = [began, *(moment for moment in ledger.times if moment >= began)]
    return Round(
        fault.__name__.replace("_", " "),
        clock() - began,
        ledger.count - count,
        len(ledger.refused) - refused,
        max(second - first for first, second in pairwise(times)),
    )


async def _settled(group: Group) -> int:
    """Wait until all members vote and are near the end of the leader's log. Return the offset up to which all have it.

    Each member is asked, because the leader learns only later that a member has returned with an empty disk.
    """
    processes = group.processes
    while True:
        try:
            leader = await group.leader()
            views = {member: await group.admin.replication(processes.address(member)) for member in MEMBERS}
        except RaptorMQError:  # the leader changes, or a member is starting
            await asyncio.sleep(0.1)
            continue
        led = views[leader]
        ends = [view.last_offset for view in views.values()]
        votes = all(each.role in ("leader", "follower") for each in led.members)
        if votes and all(view.leader == leader for view in views.values()) and max(ends) - min(ends) < _SPARE_BYTES:
            return min(led.confirmed_offset, *ends)
        await asyncio.sleep(0.1)


def _compare(result: Result, ledger: Ledger, reader: Reader, stored: dict[int, list[int]]) -> None:
    """Compare the acknowledged and the received messages with the stored ones."""
    result.taken_back = list(reader.taken_back)
    for queue, numbers in stored.items():
        counted = Counter(numbers)
        name = f"queue {queue}"
        history = [*ledger.history[queue], *reader.history[queue]]
        result.empty += sum(isinstance(each, Pull) and not each.bodies for each in history)
        result.contradicting += [f"{name}: {each}" for each in violations(history)]
        result.lost += [f"{name}: {number}" for number in ledger.acknowledged[queue] if not counted[number]]
        result.duplicated += [f"{name}: {number}" for number, times in counted.items() if times > 1]
        result.reordered += [f"{name}: {second} after {first}" for first, second in pairwise(numbers) if second < first]
        result.taken_back += [
            f"{name} offset {offset}: {number}"
            for offset, number in reader.seen[queue].items()
            if offset >= len(numbers) or numbers[offset] != number
        ]


def _different_logs(processes: DledgerProcesses, end: int) -> list[str]:
    """Return the segments of the commit log up to an offset that differ from those of the first member."""
    different = []
    first, *others = (processes.root(member) / "commitlog" for member in MEMBERS)
    for other in others:
        common = {each.name for each in first.iterdir()} & {each.name for each in other.iterdir()}
        segments = sorted(name for name in common if name.isdecimal() and int(name) < end)
        assert segments, f"{first} and {other} have no common segment"
        for name in segments:
            length = end - int(name)
            if (first / name).read_bytes()[:length] != (other / name).read_bytes()[:length]:
                different.append(f"{other / name}")
    return different


def _row(number: int, each: Round) -> str:
    return f"| {number} | {each.fault} | {each.lasted:.1f} | {each.acknowledged} | {each.refused} | {each.gap:.2f} |"


_PAGE = """\
# Rounds of faults

A Dledger group of three broker processes, a name server and clients, each in a network namespace of its own on one
machine. Each round applies one fault for 2 to 6 s, while four producers send and four readers read. At the end, the
test compares all acknowledged messages, all received messages, and the logs of the members. The history of sends, pulls
and queries of the end offset must be linearizable: `contradicting` counts operations that no order of one growing queue
explains. Each member, leader or not, is also asked for messages that a reader does not have yet. A response without
messages must be correct at that time, too.

`make test` runs six rounds and `make soak` runs more. `python -m tests.faults.fault_rounds` generated this page (seed
{seed}).

| rounds | acknowledged | lost | duplicated | reordered | received, then missing | differing segments | contradicting |
|---|---|---|---|---|---|---|---|
| {rounds} | {acknowledged:,} | {lost} | {duplicated} | {reordered} | {taken_back} | {different} | {contradicting} |

The table shows the longest time between two acknowledgements of a round, in seconds, on a busy machine with two cores.
Without a majority (`kill all`, `no majority`) no message is acknowledged until the fault ends. All faults: median
{median:.2f}, p99 {p99:.2f}.

| fault | rounds | median | longest |
|---|---|---|---|
{rows}
"""


def report(result: Result) -> str:
    """Return the text of the documentation page."""
    by_fault: dict[str, list[float]] = {}
    for each in result.rounds:
        by_fault.setdefault(each.fault, []).append(each.gap)
    gaps = sorted(each.gap for each in result.rounds)
    return _PAGE.format(
        seed=result.seed,
        rounds=len(result.rounds),
        acknowledged=result.acknowledged,
        lost=len(result.lost),
        duplicated=len(result.duplicated),
        reordered=len(result.reordered),
        taken_back=len(result.taken_back),
        different=len(result.different),
        contradicting=len(result.contradicting),
        median=statistics.median(gaps),
        p99=gaps[min(len(gaps) - 1, len(gaps) * 99 // 100)],
        rows="\n".join(
            f"| {fault} | {len(own)} | {statistics.median(own):.2f} | {max(own):.2f} |"
            for fault, own in sorted(by_fault.items())
        ),
    )


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Number of rounds.")
@click.option("--seed", default=1, show_default=True, help="Chooses the faults and their order.")
@click.option(
    "--fault",
    "names",
    type=click.Choice([fault.__name__ for fault in FAULTS]),
    multiple=True,
    help="Play these faults, in this order, in place of chosen ones. Can be repeated.",
)
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder to keep the logs of the members."
)
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Page to write.")
def main(rounds: int, seed: int, names: Sequence[str], logs: Path | None, page: Path | None) -> None:
    """Run rounds of faults against a Dledger group of real processes, and check the result."""
    logging.getLogger("raptormq").addHandler(logging.NullHandler())
    by_name = {fault.__name__: fault for fault in FAULTS}
    faults = [by_name[name] for name in names] or chosen(seed, rounds)
    click.echo("| round | fault | s | acknowledged | refused | longest gap, s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="raptormq-rounds-") as folder:
        try:
            result = asyncio.run(run(Path(folder), seed, faults, click.echo))
        except NamespacesRefused as error:
            raise click.ClickException(f"fault rounds require root and network namespaces: {error}") from error
        finally:
            if logs is not None:
                logs.mkdir(exist_ok=True)
                for log in Path(folder).glob("*.log"):
                    shutil.copy(log, logs)
    if page is not None:
        page.write_text(report(result), encoding="utf-8")
    found = f"{len(result.violations)} violations"
    click.echo(f"{result.acknowledged} acknowledged, {result.empty} empty pulls, {found}; seed {seed}")
    if result.violations:
        raise click.ClickException("; ".join(result.violations))


if __name__ == "__main__":
    main()
