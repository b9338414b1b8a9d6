"""A Dledger group of three members at full load for many minutes, with retention and one loss of the leader.

After the first half of the time the leader is killed. It starts again 20 s later (10 s in a run of one minute) and
fetches the missing part of the log while the load continues. No other election may happen.

The broker limits a log by age and by the use of the volume, not by its own size, and ages are at least an hour.
Therefore the run sets back the modification times of the oldest segments of a log beyond the limit by two days. The
retention of the members then deletes these segments: it runs once per second, at any hour. Segments that no checkpoint
covers yet are kept, up to 10 s of the load.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.batch.own_load import Load
from bench.batch.own_topic import GROUP
from bench.batch.workload import AS_FAST_AS_IT_GOES
from bench.compared_loads import BODY, SEND_TIMEOUT_S, Plan
from bench.dledger_bench_group import bench_group
from bench.figure import Figure
from bench.output import errors
from raptormq.client import AdminClient, Producer, ProducerConfig
from raptormq.protocol.bodies.replication import CAUGHT_UP_MEMBER_BYTES
from tests.faults.dledger_processes import DledgerProcesses

_SEGMENT = 256 << 20
_SETTINGS = f"""\
mappedFileSizeCommitLog={_SEGMENT}
flushDiskType=ASYNC_FLUSH
fileReservedTime=24
deleteWhen={";".join(map(str, range(24)))}
cleanResourceInterval=1000
"""
_AGED_S = 48 * 3600
_DOWN_S = 20.0
_SHARE_DOWN = 1 / 6
"""Maximum share of the run for which the ex-leader is down, so that a short run leaves time to catch up."""
_DISK_PER_LIMIT = 5
"""Free disk space as a multiple of the limit of one log: three logs, their queues and indexes, and a reserve."""
_SEGMENTS_ABOVE = 3
"""Number of segments that a log may have above its limit: one that is preallocated, and two until retention runs."""
_GAP_S = 3.0
_POLL_S = 0.02
_LOOK_S = 0.5


def surplus(sizes: Sequence[int], limit: int) -> int:
    """Return how many of the oldest segments have to be deleted, so that the others have at most `limit` bytes.

    Args:
        sizes: bytes of the segments, the oldest first. The newest segment always stays.
    """
    total, number = sum(sizes), 0
    while total > limit and number < len(sizes) - 1:
        total -= sizes[number]
        number += 1
    return number


def age_surplus(log: Path, limit: int) -> int:
    """Set back the modification times of the oldest segments beyond `limit`. Return the size of the log in bytes.

    Raises:
        FileNotFoundError: a segment was deleted meanwhile.
    """
    paths = sorted(path for path in log.iterdir() if path.name.isdecimal())
    sizes = [path.stat().st_size for path in paths]
    then = time.time() - _AGED_S
    for path in paths[: surplus(sizes, limit)]:
        os.utime(path, (then, then))
    return sum(sizes)


@dataclass
class Gaps:
    """The longest time in seconds without an acknowledgement, from samples of the number of acknowledgements."""

    last: float
    """Time of the last sample in which the number had grown."""
    longest: float = 0.0
    _count: int = 0

    def see(self, now: float, acknowledged: int) -> None:
        self.longest = max(self.longest, now - self.last)
        if acknowledged != self._count:
            self._count, self.last = acknowledged, now

    def take(self) -> float:
        """Return the longest gap since the last call. A gap that lasts continues."""
        longest, self.longest = self.longest, 0.0
        return longest


@dataclass(frozen=True)
class CatchUp:
    """The catch-up of the ex-leader, from its start until it had caught up or the load ended."""

    fetched: int
    """Bytes of the log that the ex-leader fetched."""
    sent: int
    """Bytes by which the log of the new leader grew meanwhile."""
    seconds: float
    is_done: bool
    """Whether the ex-leader had caught up and was a voter."""


@dataclass
class Terms:
    """Counts unexpected elections by the terms of the group."""

    term: int
    unwanted: int = 0

    def see(self, term: int) -> None:
        """Count the elections between the last known term and `term`."""
        self.unwanted += term - self.term
        self.term = term

    def expect(self, term: int) -> None:
        """Set the term of an expected election, which is not counted."""
        self.term = term


@dataclass
class _Watch:
    """Samples the group during the load, and ages segments beyond the limit."""

    group: DledgerProcesses
    load: Load
    limit: int
    gaps: Gaps = field(default_factory=lambda: Gaps(time.perf_counter()))
    largest: int = 0
    """Size in bytes of the largest commit log in all samples."""

    async def run(self, seconds: float) -> None:
        """Take samples until cancelled.

        Raises:
            RuntimeError: a member exited that the run did not kill.
        """
        begin = looked = time.perf_counter()
        with _progress(seconds) as (bar, task):
            while True:
                now = time.perf_counter()
                self.gaps.see(now, self.load.stored)
                if now >= looked + _LOOK_S:
                    looked = now
                    self.load.latencies.clear()  # nobody reads them, and they grow with the messages
                    await asyncio.to_thread(self._look)
                    bar.update(task, completed=now - begin, stored=self.load.stored / 1e6, log=self.largest / 1e9)
                await asyncio.sleep(_POLL_S)

    def _look(self) -> None:
        for name, process in list(self.group.running.items()):
            if process.poll() is not None and self.group.running.get(name) is process:
                raise RuntimeError(f"{name} has ended with exit code {process.returncode}: {self._last_lines(name)}")
        for member in self.group.ports:
            with suppress(FileNotFoundError):  # the broker deletes segments at the same time
                self.largest = max(self.largest, age_surplus(self.group.root(member) / "commitlog", self.limit))

    def _last_lines(self, member: str) -> str:
        with suppress(FileNotFoundError):
            return "\n".join(self.group.log(member).splitlines()[-5:])
        return ""


@contextmanager
def _progress(seconds: float) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()),
        TextColumn("{task.fields[stored]:.1f} million messages, largest log {task.fields[log]:.1f} GB"),
    )
    with Progress(*columns, console=errors) as bar:
        yield bar, bar.add_task("full load", total=seconds, stored=0.0, log=0.0)


def require_disk(limit: int) -> None:
    """Check the free disk space for three logs of `limit` bytes; raises UsageError if it is not sufficient."""
    folder = tempfile.gettempdir()
    wanted, free = _DISK_PER_LIMIT * limit / 1e9, shutil.disk_usage(folder).free / 1e9
    if free < wanted:
        advice = "TMPDIR may name another folder, and --log-gb a lower limit of the logs"
        raise click.UsageError(f"{folder} has {free:.0f} GB free and full-load needs {wanted:.0f}: {advice}")


async def full_load(plan: Plan) -> list[Figure]:
    """Load the group at full speed, kill its leader once, and count the elections."""
    seconds = plan.minutes * 60
    config = ProducerConfig(auto_batch=True, send_timeout=SEND_TIMEOUT_S)
    async with (
        bench_group(settings=_SETTINGS) as (group, admin),
        Producer(GROUP, name_servers=group.name_server, config=config) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        load = Load([producer], BODY, AS_FAST_AS_IT_GOES)
        watch = _Watch(group, load, plan.log_limit_bytes)
        leader = await group.leads(admin)
        terms = Terms(await _term(group, admin))
        watching = tasks.create_task(watch.run(seconds))
        begin = time.perf_counter()
        loading = tasks.create_task(load.run(seconds, 1 << 60))
        await asyncio.sleep(seconds / 2)
        terms.see(await _term(group, admin))
        quiet_gap = watch.gaps.take()
        down = min(_DOWN_S, seconds * _SHARE_DOWN)
        caught_up = await _lose(leader, down, group, admin, terms, loading)
        lost_gap = watch.gaps.take()
        await loading
        rate = load.stored / (time.perf_counter() - begin)
        await load.wait_below(1)
        quiet_gap = max(quiet_gap, watch.gaps.take())
        terms.see(await _term(group, admin))
        kept_from = [await _offset(admin, group.address(member), "commitLogMinOffset") for member in group.ports]
        watching.cancel()
    errors.print(
        f"{load.stored:,} messages stored; retention deleted at least {min(kept_from) / 1e9:.1f} GB of each log;"
        f" the ex-leader fetched {caught_up.fetched / 1e9:.2f} GB in {caught_up.seconds:.1f} s",
        highlight=False,
    )
    if load.error is not None:
        errors.print(f"{load.failed:,} messages failed, the first with {load.error}", highlight=False)
    return [
        Figure("elections that the loss of the leader does not explain", terms.unwanted, "elections", 1),
        Figure("messages that failed", load.failed, "messages", 1),
        Figure(f"messages per second, {plan.minutes:g} min", rate, "msg/s", plan.fixed_rate, at_least=True),
        Figure("longest gap of acknowledgements before and after the loss of the leader", quiet_gap, "s", _GAP_S),
        Figure("longest gap around the loss of the leader, and until it has caught up", lost_gap, "s", _GAP_S),
        Figure(
            "an ex-leader fetches over what is sent",
            caught_up.fetched / max(1, caught_up.sent),
            "times",
            1,
            at_least=True,
        ),
        Figure(
            "an ex-leader votes and has caught up, after its start",
            caught_up.seconds if caught_up.is_done else math.inf,
            "s",
            seconds / 2 - down,
        ),
        Figure(
            f"largest commit log, limited to {plan.log_limit_bytes / 1e9:g} GB",
            watch.largest / 1e9,
            "GB",
            (plan.log_limit_bytes + _SEGMENTS_ABOVE * _SEGMENT) / 1e9,
        ),
    ]


async def _lose(
    leader: str, down: float, group: DledgerProcesses, admin: AdminClient, terms: Terms, loading: asyncio.Task[None]
) -> CatchUp:
    """Kill the leader, start it again after `down` seconds, and wait until it has caught up or `loading` has ended."""
    lost = group.address(leader)
    end = await _offset(admin, lost, "commitLogMaxOffset")
    group.kill(leader)
    killed = time.perf_counter()
    successor = await group.leads(admin, other_than=leader)
    terms.expect(await _term(group, admin))
    await asyncio.sleep(killed + down - time.perf_counter())
    leads = group.address(successor)
    sent_before = await _offset(admin, leads, "commitLogMaxOffset")
    started = time.perf_counter()
    await group.start(leader)
    kept_from = await _offset(admin, leads, "commitLogMinOffset")
    while True:
        is_done = await _follows(leader, leads, admin)
        if is_done or loading.done():
            break
        await asyncio.sleep(_POLL_S)
    seconds = time.perf_counter() - started
    fetched = await _offset(admin, lost, "commitLogMaxOffset") - max(end, kept_from)
    return CatchUp(fetched, await _offset(admin, leads, "commitLogMaxOffset") - sent_before, seconds, is_done)


async def _follows(member: str, leader: str, admin: AdminClient) -> bool:
    """Return whether the leader reports a member as a voter that has caught up."""
    state = await admin.replication(leader)
    return any(
        each.id == member
        and each.role == "follower"
        and each.lag_bytes is not None
        and each.lag_bytes <= CAUGHT_UP_MEMBER_BYTES
        for each in state.members
    )


async def _offset(admin: AdminClient, address: str, name: str) -> int:
    return int((await admin.runtime_info(address))[name])


async def _term(group: DledgerProcesses, admin: AdminClient) -> int:
    """Return the highest term of the running members."""
    return max([(await admin.replication(group.address(each))).term for each in group.ports.keys() & group.running])
