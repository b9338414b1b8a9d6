"""Figures of a Dledger group of three members on one machine, with the RaptorMQ client.

Clients and members share the CPUs, and the three copies share one disk. Each figure begins with an empty folder. Rates
are compared with a single broker without replication that runs before or after the group, in turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

import uvloop

from bench.apache_dledger import ApacheDledger
from bench.batch import programs
from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP, TOPIC
from bench.batch.systems import Builds
from bench.batch.workload import AS_FAST_AS_IT_GOES
from bench.compared_loads import BODY, Plan, Rate, against, in_turn, load_by_our_client
from bench.dledger_bench_group import QUEUES, bench_group
from bench.figure import Figure
from bench.full_load import full_load
from bench.official_loads import interleaved_load, kafka_load
from bench.output import errors
from raptormq.client import AdminClient, Message, Producer, ProducerConfig
from raptormq.errors import RaptorMQError
from tests.faults.dledger_processes import DledgerProcesses
from tests.interop.raptormq_dev import RaptorMQDev
from tests.interop.rocketmq_java import JavaBuild, build

_WRITERS = 16
_SEND_TIMEOUT_S = 3.0
_SENDS_AT_ONCE = 500
_FILES_TIMEOUT_S = 120.0
_QUEUE_TYPE_OF_BOTH = "SimpleCQ"
"""Queue type on both systems in the rows that compare with Apache RocketMQ."""
_POLL_S = 0.02
_DISK_BLOCK = 1 << 20


@dataclass
class _Writers:
    """Tasks that send one message after another, and the times of the acknowledgements (``loop.time()``, s)."""

    producer: Producer
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    """Start and end time of each acknowledged send."""
    is_over: bool = False

    async def run(self) -> None:
        await asyncio.gather(*(self._write() for _ in range(_WRITERS)))

    async def _write(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self.is_over:
            begin = clock()
            try:
                await self.producer.send(Message(TOPIC, BODY), timeout=_SEND_TIMEOUT_S)
            except RaptorMQError:
                await asyncio.sleep(_POLL_S)
            else:
                self.acknowledged.append((begin, clock()))

    async def next_after(self, moment: float) -> float:
        """Wait for the acknowledgement of the first send that starts after `moment`, and return its time."""
        seen = len(self.acknowledged)
        while True:
            for begin, end in self.acknowledged[seen:]:
                if begin > moment:
                    return end
            seen = len(self.acknowledged)
            await asyncio.sleep(_POLL_S / 4)

    def longest_gap(self, begin: float, end: float) -> float:
        """Return the longest time between two acknowledgements from `begin` to `end`."""
        times = [begin, *sorted(done for _, done in self.acknowledged if begin <= done <= end), end]
        return max(later - earlier for earlier, later in pairwise(times))


@asynccontextmanager
async def _writing(group: DledgerProcesses) -> AsyncIterator[_Writers]:
    async with Producer(GROUP, name_servers=group.name_server) as producer:
        writers = _Writers(producer)
        running = asyncio.ensure_future(writers.run())
        await writers.next_after(0.0)
        yield writers
        writers.is_over = True
        await running


async def fail_over(plan: Plan) -> list[Figure]:
    """Kill the leader repeatedly. Measure the time from the kill until a send that started after it is acknowledged."""
    clock, found = asyncio.get_running_loop().time, []
    async with bench_group() as (group, admin), _writing(group) as writers:
        for number in range(plan.rounds):
            leader = await group.leads(admin)
            killed = clock()
            group.kill(leader)
            found.append(await writers.next_after(killed) - killed)
            errors.print(f"loss {number + 1} of the leader: {found[-1]:.2f} s", highlight=False)
            successor = await group.leads(admin, other_than=leader)
            await group.start(leader)
            await group.votes(admin, successor, leader)
    found.sort()
    what = f"acknowledged again after a kill of the leader, {plan.rounds} rounds"
    return [
        Figure(f"{what}, median", median(found), "s", 3.0),
        Figure(f"{what}, longest", found[-1], "s", 3.0),
    ]


async def transfer(plan: Plan) -> list[Figure]:
    """Transfer leadership repeatedly. Measure the longest time without an acknowledgement around each transfer."""
    clock, found = asyncio.get_running_loop().time, []
    async with bench_group() as (group, admin), _writing(group) as writers:
        for number in range(plan.rounds):
            leader = await group.leads(admin)
            begin = clock()
            await admin.transfer_leadership(group.address(leader))
            await group.leads(admin, other_than=leader)
            end = await writers.next_after(clock() + 1.0)
            found.append(writers.longest_gap(begin, end) * 1000)
            errors.print(f"transfer {number + 1}: longest gap {found[-1]:.0f} ms", highlight=False)
    what = f"longest gap around a transfer of leadership, {plan.rounds} transfers"
    return [Figure(f"{what}, median", median(found), "ms", 200.0), Figure(f"{what}, longest", max(found), "ms", 200.0)]


async def _load_of_group(plan: Plan, rate: int = AS_FAST_AS_IT_GOES, queues: int = QUEUES) -> Rate:
    async with bench_group(queues) as (group, _):
        await _create_files(group)
        return await load_by_our_client(group.name_server, plan, rate)


async def _create_files(group: DledgerProcesses) -> None:
    """Send a message to each queue, and wait until each member has created the files of all queues. The creation
    happens once per queue and must not be measured."""
    async with Producer(GROUP, name_servers=group.name_server) as producer:
        queues = await producer.queues(TOPIC)
        for first in range(0, len(queues), _SENDS_AT_ONCE):
            several = queues[first : first + _SENDS_AT_ONCE]
            await asyncio.gather(*(producer.send(Message(TOPIC, BODY), queue=queue) for queue in several))
    for member in group.ports:
        async with asyncio.timeout(_FILES_TIMEOUT_S):
            await _has_files(group.root(member) / "batchconsumequeue" / TOPIC, len(queues))


async def _has_files(folder: Path, queues: int) -> None:
    while _count(folder) < queues:  # noqa: ASYNC110 - another process creates them
        await asyncio.sleep(_POLL_S)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0


async def _load_of_lists(plan: Plan, rate: int) -> Rate:
    async with bench_group(queue_type=_QUEUE_TYPE_OF_BOTH) as (group, _):
        return await load_by_our_client(group.name_server, plan, rate)


async def _load_of_apache(java: JavaBuild, plan: Plan, rate: int) -> Rate:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="raptormq-bench-")))
        peer = ApacheDledger(java, folder)
        opened.callback(peer.kill)
        await asyncio.to_thread(peer.start)
        async with AdminClient(name_servers=peer.name_servers) as admin:
            await peer.wait_for_leader(admin)
            await admin.create_topic(TOPIC, QUEUES, QUEUES, attributes={"queue.type": _QUEUE_TYPE_OF_BOTH})
        return await load_by_our_client(peer.name_servers, plan, rate, may_refuse=True)


async def _load_of_one(plan: Plan, rate: int = AS_FAST_AS_IT_GOES) -> Rate:
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    try:
        with RaptorMQDev(folder) as server:
            async with AdminClient(name_servers=server.name_servers) as admin:
                await admin.create_topic(TOPIC, QUEUES, QUEUES, attributes={"queue.type": "BatchCQ"})
            return await load_by_our_client(server.name_servers, plan, rate)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def rate(plan: Plan) -> list[Figure]:
    """Compare the rate of the group with its bound: two thirds of a single broker's rate or a third of the disk's rate,
    whichever is lower."""
    disk = await asyncio.to_thread(_disk_rate, plan)
    found = await in_turn(plan, "group and one broker", lambda: _load_of_group(plan), lambda: _load_of_one(plan))
    group = median(pair[0].per_second for pair in found)
    alone = median(pair[1].per_second for pair in found)
    bound = min(alone * 2 / 3, disk / len(BODY) / 3)
    return [
        Figure("rate of the group over that of one broker", group / alone, "times", 0.8 * bound / alone, at_least=True),
        Figure("the same over min(2/3 of one broker, 1/3 of the disk)", group / bound, "times", 0.8, at_least=True),
    ]


async def latency(plan: Plan) -> list[Figure]:
    """Compare the p99 of the group with that of a single broker, at a fixed rate."""
    speed = plan.fixed_rate
    found = await in_turn(
        plan, f"at {speed:,} msg/s", lambda: _load_of_group(plan, speed), lambda: _load_of_one(plan, speed)
    )
    ratio = median(pair[0].p99_ms for pair in found) / median(pair[1].p99_ms for pair in found)
    return [Figure(f"p99 of the group over that of one broker, {speed:,} msg/s", ratio, "times", 2.0)]


async def queues(plan: Plan) -> list[Figure]:
    """Compare the rates of the group with many queues and with few."""
    found = await in_turn(
        plan,
        f"{plan.queues:,} and {QUEUES} queues",
        lambda: _load_of_group(plan, queues=plan.queues),
        lambda: _load_of_group(plan),
    )
    ratio = median(pair[0].per_second for pair in found) / median(pair[1].per_second for pair in found)
    return [Figure(f"rate with {plan.queues:,} queues over {QUEUES}", ratio, "times", 0.9, at_least=True)]


async def apache(plan: Plan) -> list[Figure]:
    """Compare the group with one of Apache RocketMQ, both with our client and AutoBatch."""
    java = await asyncio.to_thread(build)
    return await against(
        plan,
        "Apache RocketMQ 5.5.0 with Dledger",
        lambda rate: _load_of_lists(plan, rate),
        lambda rate: _load_of_apache(java, plan, rate),
    )


async def interleaved_layout(plan: Plan) -> list[Figure]:
    """Compare three masters and three slaves with three nodes of Kafka, each with its official client."""
    builds = Builds(None, await asyncio.to_thread(programs.build))
    return await against(
        plan,
        "Apache Kafka 4.3.1, three nodes, two copies",
        lambda rate: interleaved_load(builds, plan, rate),
        lambda rate: kafka_load(builds, plan, rate),
    )


async def catch_up(plan: Plan) -> list[Figure]:
    """Empty the disk of a follower at half load. Measure how fast the follower fetches the log, and the rate of the
    producers meanwhile."""
    async with bench_group() as (group, admin), AsyncExitStack() as opened:
        config = ProducerConfig(auto_batch=True)
        producer = await opened.enter_async_context(Producer(GROUP, name_servers=group.name_server, config=config))
        fast = Load([producer], BODY, AS_FAST_AS_IT_GOES)
        begin = time.perf_counter()
        await fast.run(600.0, plan.log_bytes // len(BODY))
        await fast.wait_below(1)
        half = int(fast.stored / (time.perf_counter() - begin) / 2)
        leader = await group.leads(admin)
        follower = next(member for member in group.ports if member != leader)
        load = Load([producer], BODY, half)
        await load.run(plan.seconds, plan.messages)
        before = load.stored / plan.seconds
        group.kill(follower)
        group.wipe(follower)
        await group.start(follower)
        begin, stored = time.perf_counter(), load.stored
        running = asyncio.ensure_future(load.run(600.0, 1 << 40))
        await group.votes(admin, leader, follower)
        seconds = time.perf_counter() - begin
        meanwhile = (load.stored - stored) / seconds
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await load.wait_below(1)
        fetched = int((await admin.runtime_info(group.address(follower)))["commitLogMaxOffset"])
    return [
        Figure(
            "an empty member fetches the log, until it votes", fetched / seconds / 1e6, "MB/s", 100.0, at_least=True
        ),
        Figure(f"rate of producers meanwhile, at {half:,} msg/s", meanwhile / before, "times", 0.8, at_least=True),
    ]


def _disk_rate(plan: Plan) -> float:
    """Return the bytes per second of a sequential write with an fsync at its end."""
    folder = Path(tempfile.mkdtemp(prefix="raptormq-bench-"))
    block = os.urandom(_DISK_BLOCK)
    try:
        begin = time.perf_counter()
        with (folder / "disk").open("wb", buffering=0) as file:
            for _ in range(plan.log_bytes // _DISK_BLOCK):
                file.write(block)
            os.fsync(file.fileno())
        return plan.log_bytes / (time.perf_counter() - begin)
    finally:
        shutil.rmtree(folder)


FIGURES: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "fail-over": fail_over,
    "transfer": transfer,
    "rate": rate,
    "latency": latency,
    "queues": queues,
    "catch-up": catch_up,
    "apache": apache,
    "interleaved": interleaved_layout,
    "full-load": full_load,
}
_ONLY_ON_REQUEST = {"full-load"}


def chosen(only: tuple[str, ...]) -> list[str]:
    """Return the names of all figures but those of ``_ONLY_ON_REQUEST``, or those of `only`."""
    return [name for name in FIGURES if (name in only if only else name not in _ONLY_ON_REQUEST)]


def measure(plan: Plan, only: tuple[str, ...]) -> list[Figure]:
    """Measure the chosen figures of ``FIGURES``."""

    async def run(name: str) -> list[Figure]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # ends members, deletes the folder
        errors.print(f"measuring: {name}")
        return await FIGURES[name](plan)

    return [each for name in chosen(only) for each in uvloop.run(run(name))]
