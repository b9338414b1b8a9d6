"""Rounds of faults against a Dledger group of real processes on a separate network, with clients that write and read.

Each round applies a fault that a seed selects, maintains it for some seconds, ends it, and waits until the group
acknowledges again. At the end, every acknowledged message must be stored once and in order, the messages that readers
received must equal the stored ones, and the logs of the members must be byte-identical.

Further kinds: members lose power (``power`` with SYNC_FLUSH, ``power-async``), and users and permissions change during
all faults (``permissions``).
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from raptormq.client import (
    AdminClient,
    ClientConfig,
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
from raptormq.protocol.signing import Credentials
from raptormq.transport.limits import ConnectionLimits
from raptormq.transport.pool import ConnectionPool
from tests.faults.dledger_processes import BROKER, FAST_ELECTIONS, NAME_SERVER, DledgerProcesses
from tests.faults.ledger import GROUP_QUEUES, QUEUES, TOPIC, Ledger, read_queue
from tests.faults.linearizable_log import End, Pull, violations
from tests.faults.network import Network, network
from tests.faults.powerless_members import PowerlessMembers
from tests.faults.rights_ledger import RightsLedger
from tests.faults.rounds import Result, Round, RunningRound

MEMBERS = ("n0", "n1", "n2")
_AFTER = 50
"""Number of acknowledgements after a fault that complete a round."""
_LONGEST_ROUND_S = 300.0
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


def _powerless(group: Group) -> PowerlessMembers:
    assert isinstance(group.processes, PowerlessMembers)
    return group.processes


async def power_cut_leader(group: Group) -> Heal:
    leader = await group.leader()
    _powerless(group).cut_power(leader)
    return lambda: group.start([leader])


async def power_cut_follower(group: Group) -> Heal:
    follower = await group.follower()
    _powerless(group).cut_power(follower)
    return lambda: group.start([follower])


async def power_cut_all(group: Group) -> Heal:
    for member in MEMBERS:
        _powerless(group).cut_power(member)
    return lambda: group.start(MEMBERS)


async def power_cut_and_kill(group: Group) -> Heal:
    """Cut the power of a follower, end its process once more as soon as it serves, and kill the leader."""
    leader, follower = await group.leader(), await group.follower()
    _powerless(group).cut_power(follower)

    async def heal() -> None:
        await group.start([follower])
        group.processes.kill(follower)
        await group.start([follower])
        group.processes.kill(leader)
        await group.start([leader])

    return heal


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

    def __init__(self, consumer: PullConsumer, members: Sequence[str], credentials: Credentials | None = None) -> None:
        """Create a reader that has read nothing.

        Args:
            members: addresses of the members.
            credentials: sign the pulls from members.
        """
        self._consumer = consumer
        self._members = members
        self._pool = ConnectionPool(limits=ConnectionLimits(credentials=credentials))
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


_INNER = Credentials("inner", "inner-secret")
_ACCESS_CONTROL = """\
authenticationEnabled=true
authorizationEnabled=true
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-secret"}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of rounds against a group: its faults, and what it sets up."""

    faults: tuple[Fault, ...]
    settings: str = ""
    """Settings of the members."""
    loses_power: bool = False
    """Whether the members run on disks that lose what is not synced."""
    credentials: Credentials | None = None
    """Credentials of the clients. Users and permissions then change during the rounds."""


GROUP = Kind(FAULTS)
_POWER = """\
flushDiskType={}
mappedFileSizeCommitLog=1M
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=5000
maxIndexNum=20000
"""
"""Small files, because the library copies the whole file at each synchronisation."""
KINDS = {
    "group": GROUP,
    "power": Kind(
        (power_cut_leader, power_cut_follower, power_cut_all, power_cut_and_kill),
        _POWER.format("SYNC_FLUSH"),
        loses_power=True,
    ),
    "power-async": Kind(
        (power_cut_leader, power_cut_follower, power_cut_and_kill), _POWER.format("ASYNC_FLUSH"), loses_power=True
    ),
    "permissions": Kind(FAULTS, _ACCESS_CONTROL, credentials=_INNER),
}
"""Kinds of rounds against a group, by name."""


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


async def run(
    folder: Path,
    seed: int,
    faults: Sequence[Fault],
    report: Callable[[Round], None] = lambda _: None,
    kind: Kind = GROUP,
) -> Result:
    """Run a round with each fault, and return the results. The seed selects members and times.

    Raises:
        NamespacesRefused: This process may not create network namespaces.
        TimeoutError: The group does not acknowledge within five minutes after the end of a fault.
    """
    result = Result(seed)
    async with AsyncExitStack() as opened:
        net = opened.enter_context(network((NAME_SERVER, *MEMBERS)))
        if not kind.loses_power:  # the library keeps copies of all synced files, which need more room
            await opened.enter_async_context(volumes(folder))
        make = PowerlessMembers if kind.loses_power else DledgerProcesses
        processes = make(folder, opened, FAST_ELECTIONS + kind.settings, hosts=net.hosts)
        await processes.start_name_server()
        await asyncio.gather(*map(processes.start, MEMBERS))
        clients = ClientConfig(name_servers=processes.name_server, credentials=kind.credentials)
        admin = await opened.enter_async_context(AdminClient(client_config=clients))
        config = ProducerConfig(retries=0)
        producer = await opened.enter_async_context(Producer("senders", client_config=clients, config=config))
        consumer = await opened.enter_async_context(PullConsumer(client_config=clients))
        await processes.leader(admin)
        await admin.create_topic(TOPIC, QUEUES, QUEUES)
        addresses = [processes.address(member) for member in MEMBERS]
        ledger, reader = Ledger(producer), Reader(consumer, addresses, kind.credentials)
        rights = RightsLedger(admin)
        ledger.begin()
        reader.begin()
        if kind.credentials is not None:
            rights.begin()
        group = Group(processes, net, admin, Random(seed))
        for fault in faults:
            result.rounds.append(await _round(group, ledger, fault))
            report(result.rounds[-1])
        await ledger.end()
        await rights.end()
        async with asyncio.timeout(_LONGEST_ROUND_S):
            confirmed = await _settled(group)
            stored = {queue.queue_id: await read_queue(consumer, queue) for queue in GROUP_QUEUES}
            if kind.credentials is not None:
                result.found["wrong rights"] = await rights.violations(addresses)
                result.changed_rights = rights.answered
        await reader.end()
        _compare(result, ledger, reader, stored)
        for member in MEMBERS:
            processes.kill(member)
        result.found["different segments"] = _different_logs(processes, confirmed)
    return result


async def _round(group: Group, ledger: Ledger, fault: Fault) -> Round:
    clock = asyncio.get_running_loop().time
    await ledger.grow(_AFTER)
    lasts = group.random.uniform(2.0, 6.0)
    running = RunningRound(ledger)
    async with asyncio.timeout(_LONGEST_ROUND_S):
        heal = await fault(group)
        while clock() < running.began + lasts:  # the duration of the fault
            await asyncio.sleep(0.05)
        healed = heal()
        if healed is not None:
            await healed
        await _settled(group)
        await ledger.grow(_AFTER)
    return running.end(fault.__name__.replace("_", " "))


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
    result.compare(ledger.acknowledged, stored)
    missing, contradicting = list(reader.taken_back), []
    for queue, numbers in stored.items():
        name, history = f"queue {queue}", [*ledger.history[queue], *reader.history[queue]]
        result.empty += sum(isinstance(each, Pull) and not each.bodies for each in history)
        contradicting += [f"{name}: {each}" for each in violations(history)]
        missing += [
            f"{name} offset {offset}: {number}"
            for offset, number in reader.seen[queue].items()
            if offset >= len(numbers) or numbers[offset] != number
        ]
    result.found |= {"received, then missing": missing, "contradicting": contradicting}


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
