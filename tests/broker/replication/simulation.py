"""A seeded simulation of a whole group: real stores, member files, tables and codec; fake clock, disks and network.

One seed determines everything: the flush mode, the combinations of faults, and every delay. The network loses,
duplicates, delays and reorders messages and is partitioned. Processes are killed at any point, machines lose power with
unflushed data, disks refuse writes or are replaced by empty ones, retention deletes segments, and leadership is
transferred. :mod:`tests.raft.simulation` does the same with the Raft library alone and is several times as fast.

Invariants that are checked continuously: a term has one leader. A message that a consumer has read at an offset of the
queue stays at this offset on every member. A read returns everything that was acknowledged before it. At the end, after
all faults are healed, the group must have a leader, and all members must have its log, its tables and the same queues,
in the types of their topics. Everything acknowledged must be in the log once and in order, except for what retention
has deleted.

A failing seed is replayed by::

    python -m tests.broker.replication.simulation --seed 1234 --verbose
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import sys
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from raptormq.broker.replication.group_member import GroupMember
from raptormq.errors import OutOfResources
from raptormq.raft import Promise, ProposalRefused, Role, TransferLeadership
from raptormq.storage.log import RATIO
from raptormq.storage.replica import EVERYTHING
from tests.broker.replication.group import SHORTENED_WAIT_MS, TOPICS, Group, Member
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import read_queue

STEPS = 350
SENDS_PER_SEGMENT = 10
"""A number of calls of :meth:`Group.send` that fills more than one segment."""
_NEVER_S = 3600.0
"""Reads time out by the clock of the group instead of that of the event loop."""
PROFILES = (
    ("kill", "start", "start", "cut", "heal", "flush"),
    ("kill_leader", "start", "start", "cut_leader", "heal"),
    ("power", "start", "start", "kill_leader"),
    ("retire", "retire", "outrun", "kill", "start"),
    ("wipe", "retire", "kill_leader", "start", "start"),
    ("transfer", "cut_leader", "heal", "kill", "start"),
    ("refuse_writes", "kill_leader", "start", "start"),
    ("refuse_tables", "kill", "kill_leader", "start", "start", "transfer"),
    ("restore", "restore", "kill_leader", "start", "start"),
    ("kill", "power", "cut", "heal", "start", "start", "retire", "transfer", "wipe", "refuse_writes", "flush"),
)
"""Combinations of faults, as names of methods of :class:`Simulation`."""
SHORTENING = ("shorten", "shorten", "retire", "kill_leader", "transfer", "fill", "heal", "start", "start")
SHORTENS = 0.15
"""Share of the seeds in which members lose the beginning of their log or have a full disk. They are chosen by a random
source of their own, so that the other seeds stay the same.
"""


class SimulationFailed(AssertionError):
    """An invariant is violated. The message ends with the command that replays the seed."""


async def retire(member: Member) -> None:
    """Let retention delete all segments that it may delete except the last one."""
    await member.clean(lambda: 1 << 50)


async def shorten(member: Member) -> None:
    """Delete segments that the leader has not allowed to delete, as a member of 0.2.0 or a person does."""
    begin, member.replica.group_begin = member.replica.group_begin, EVERYTHING
    await retire(member)
    member.replica.group_begin = begin


def no_room(*_: Any) -> None:
    """Refuse to write, like a full disk."""
    raise OSError(errno.ENOSPC, "no space left on device")


def no_more(*_: Any) -> None:
    """Refuse to append, like the store of a leader with a full disk."""
    raise OutOfResources("the disk is full")


class Simulation:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.group = Group(seed, sync=rng.random() < 0.5)
        self.kinds: tuple[str, ...] = rng.choice(PROFILES)
        if Random(f"shortens {seed}").random() < SHORTENS:
            self.kinds = SHORTENING
            self.group.renewal_ms = Random(f"renews {seed}").choice((0, 200))
        self.fault_chance = rng.choice((0.06, 0.15))
        self.loss = rng.choice((0.0, 0.05))
        self.reordering = rng.choice((0.0, 0.2))
        own = Random(f"further faults {seed}")
        self.group.cold = own.choice((0.0, 0.0, 0.3))
        self.table_changes = own.choice((0.0, 0.1))
        self.full_disks = own.choice((0.0, 0.05))
        self.further = own
        """A source of its own, so that further faults leave the other choices of a seed as they are."""
        self.leaders: dict[int, str] = {}
        self.begin = 0
        """The latest begin of the log that a leader has decided."""
        self.led_ms = 0
        """Time at which there was last a leader."""
        self.seen: dict[int, str] = {}
        """Messages that a consumer has read, by offset of the queue."""
        self.passed_reads = 0
        self.restored = 0
        self._copies: dict[str, tuple[MemoryFileSystem, Promise]] = {}
        self._lacking: set[str] = set()
        """Members whose disk is an older copy of itself."""
        self._reads: list[asyncio.Task[bool]] = []

    def run(self) -> None:
        """Run the simulation.

        Raises:
            SimulationFailed: An invariant is violated.
        """
        try:
            asyncio.run(self._run())
        except Exception as error:
            raise SimulationFailed(
                f"at {self.group.now_ms} ms: {type(error).__name__}: {error}\n"
                f"replay: python -m tests.broker.replication.simulation --seed {self.seed} --verbose"
            ) from error

    async def _run(self) -> None:
        group, rng = self.group, self.rng
        group.start()
        await group.calm(group.is_whole)
        for _ in range(STEPS):
            match rng.choice(
                ("send", "send", "tick", "tick", "deliver", "deliver", "deliver", "read", "create", "delete")
            ):
                case "send" if group.leader is not None:
                    group.send(group.leader)
                case "create" if group.leader is not None:
                    group.create_topic(group.leader)
                case "delete" if group.leader is not None:
                    group.delete_topic(group.leader)
                case "tick":
                    group.tick()
                case "deliver":
                    await self._deliver()
                case "read":
                    self._read()
            if rng.random() < self.fault_chance:
                await self._fault(rng.choice(self.kinds))
            self._change_tables()
            for _ in range(rng.randint(0, 4)):
                await asyncio.sleep(0)
            for each in group.alive:
                each.dispatch()
                self._see_leader(each)
        await self._end()

    def _change_tables(self) -> None:
        """Let the leader perhaps change its tables, and perhaps fail to append the changes."""
        leader, further = self.group.leader, self.further
        if leader is not None and further.random() < self.table_changes:
            self.group.change_tables(leader)
        if leader is not None and further.random() < self.full_disks:
            self.refuse_appends(leader)

    async def _deliver(self) -> None:
        group, rng = self.group, self.rng
        for _ in range(rng.randint(1, 9)):
            if not group.network:
                return
            index = rng.randrange(len(group.network)) if rng.random() < self.reordering else 0
            if rng.random() < self.loss:
                group.network.pop(index)
                continue
            if rng.random() < self.loss:
                group.network.append(group.network[index])
            group.deliver(index)
            await group.settle()

    async def _deliver_everything(self) -> None:
        await self.group.settle()
        await self.group.deliver_all()

    async def _end(self) -> None:
        """Heal all faults, and check the final state."""
        group = self.group
        for each in group.alive:
            self._allow_writes(each)
        for each in [group.members[member] for member in self._lacking]:
            if each.member is not None:
                each.kill()
            each.volume = MemoryFileSystem()
        await group.calm(lambda: group.is_whole() and not any(each.wants_restart for each in group.alive))
        assert not group.halted(), group.halted()
        assert group.leader is not None
        if self.full_disks:
            group.change_tables(group.leader)
            self.refuse_appends(group.leader)
        group.leader.tables.flush()  # offsets that were changed during the last second
        await group.calm(group.is_whole)
        last = [asyncio.ensure_future(self._linearizable_read(each)) for each in group.alive]
        await group.calm(lambda: all(each.done() for each in last))
        assert all(await asyncio.gather(*last)), "a read on a healed group does not complete"
        for read in self._reads:
            if not read.done():
                read.cancel()  # its member was killed meanwhile
                await asyncio.gather(read, return_exceptions=True)
            elif not read.cancelled():
                read.result()
        for each in group.members.values():
            self._see_queue(each)
            expected = [text for text in group.acknowledged if group.places[text] >= each.store.start_offset]
            found = [message.body.decode() for message in read_queue(each.store)]
            assert [text for text in found if text in group.places] == expected, (
                f"{each.id} has {found}, and acknowledged are {expected}"
            )
            self._check_types(each)
        tables = {each.id: self._tables_of(each) for each in group.members.values()}
        assert all(table == next(iter(tables.values())) for table in tables.values()), f"the tables differ: {tables}"
        start = max(each.store.start_offset for each in group.members.values())
        for topic in TOPICS:
            contents = {each.id: self._contents(each, topic, start) for each in group.members.values()}
            assert len({tuple(each) for each in contents.values()}) == 1, f"the queues of {topic} differ: {contents}"

    @staticmethod
    def _contents(each: Member, topic: str, start: int) -> list[tuple[int, bytes]]:
        """Return queue offsets and bodies of the messages of a topic, except for what retention has deleted."""
        found = read_queue(each.store, topic)
        return [(message.queue_offset, message.body) for message in found if message.physical_offset >= start]

    @staticmethod
    def _tables_of(each: Member) -> dict[str, object]:
        """Return the contents of all replicated tables."""
        return {
            "topics": each.topics.configs,
            "groups": {name: group.to_dict() for name, group in each.groups.configs.items()},
            "modes": each.modes.by_topic(),
            "offsets": dict(each.store.consumer_offsets.rows()),
        }

    def _check_types(self, each: Member) -> None:
        """Check that a member has built the queues of each topic in the type of the topic."""
        for name, config in each.topics.configs.items():
            built = {queue.is_batch for queue in each.store._queues.queues_of(name)}
            assert built <= {config.is_batch}, f"{each.id} has built queues of {name} in the wrong type"

    # Reads

    def _read(self) -> None:
        if self.group.alive:
            self._reads.append(asyncio.ensure_future(self._linearizable_read(self.rng.choice(self.group.alive))))

    async def _linearizable_read(self, each: Member) -> bool:
        """Read all messages from a member. Return whether it has responded."""
        group, process = self.group, each.member
        known = list(group.acknowledged)
        if process is None or not await process.reads.passed(_NEVER_S) or each.member is not process:
            return False
        self.passed_reads += 1
        found = self._see_queue(each)
        start = each.store.start_offset
        stale = [text for text in known if text not in found and group.places[text] >= start]
        assert not stale, f"a read of {each.id} lacks {stale}, which were acknowledged before it"
        return True

    def _see_queue(self, each: Member) -> set[str]:
        """Read the queue of a member like a consumer. Return the messages."""
        found = set()
        for message in read_queue(each.store):
            text = message.body.decode()
            before = self.seen.setdefault(message.queue_offset, text)
            assert before == text, f"{each.id} has {text} at offset {message.queue_offset}, where {before} was read"
            found.add(text)
        return found

    def _see_leader(self, each: Member) -> None:
        status = each.member.status() if each.member is not None else None
        if status is not None and status.role is Role.LEADER:
            is_new = status.term not in self.leaders
            other = self.leaders.setdefault(status.term, each.id)
            assert other == each.id, f"{other} and {each.id} both lead term {status.term}"
            start, now = status.start, self.group.now_ms
            if is_new and now < self.led_ms + SHORTENED_WAIT_MS:
                assert start <= self.begin, f"{each.id} leads from {start}, and the log begins at {self.begin}"
            self.begin, self.led_ms = max(self.begin, status.begin.offset), now

    async def _calm(self) -> None:
        """Heal the group."""
        await self.group.calm(self.group.is_whole)
        for each in self.group.alive:
            self._see_leader(each)

    # Faults

    async def _fault(self, kind: str) -> None:
        faults: dict[str, Callable[[Member], Awaitable[None] | None]] = {
            "kill": Member.kill,
            "power": self.power,
            "retire": self.retire,
            "shorten": shorten,
            "fill": self.fill,
            "outrun": self.outrun,
            "wipe": self.wipe,
            "restore": self.restore,
            "transfer": self.transfer,
            "refuse_writes": self.refuse_writes,
            "refuse_tables": self.refuse_tables,
            "flush": lambda each: each.store.flush(),
        }
        group = self.group
        match kind:
            case "start":
                for dead in [each for each in group.members.values() if each.member is None][:1]:
                    dead.start()
            case "heal":
                group.cut.clear()
                await group.make_room()
                for each in group.alive:
                    self._allow_writes(each)
            case "cut":
                group.cut.add(frozenset(self.rng.sample(sorted(group.members), 2)))
            case "cut_leader" if group.leader is not None:
                group.cut_off(group.leader)
            case "kill_leader" if group.leader is not None:
                group.leader.kill()
            case _ if kind in faults and group.alive:
                done = faults[kind](self.rng.choice(group.alive))
                if done is not None:
                    await done

    async def outrun(self, each: Member) -> None:
        """Heal the group, kill a follower, and let retention delete what is sent while it is away."""
        group = self.group
        await self._calm()
        leader = group.leader
        if leader is None or leader is each:
            return
        each.kill()
        for _ in range(SENDS_PER_SEGMENT):
            group.send(leader)
            await self._deliver_everything()
        await self.retire(leader)
        group.tick()
        await self._deliver_everything()
        for other in group.alive:
            await retire(other)

    async def retire(self, each: Member) -> None:
        """Let retention delete what it may. A leader thereby decides where the log begins."""
        status = each.member.status() if each.member is not None else None
        await retire(each)
        if status is not None and status.role is Role.LEADER:
            self.begin = max(self.begin, each.store.start_offset)

    def fill(self, each: Member) -> None:
        """Let a member find that others have filled its volume up to the limit for messages."""
        each.store._gate.set_full(RATIO, "the disk is full")

    def power(self, each: Member) -> None:
        """Cut the power of a machine. With ASYNC_FLUSH only a minority may lose unflushed data."""
        group = self.group
        if not group.sync:
            if not self._may_lose_a_disk():
                return
            for other in group.alive:
                if other is not each:
                    other.store.flush()
        each.kill(power=True)

    def _is_recovering(self) -> bool:
        states = [each.member.status() for each in self.group.alive if each.member is not None]
        return any(state is None or state.recovering for state in states)

    def wipe(self, each: Member) -> None:
        """Replace the disk of a member while the others have the whole log."""
        if self._may_lose_a_disk():
            each.kill()
            each.volume = MemoryFileSystem()

    def _may_lose_a_disk(self) -> bool:
        group = self.group
        is_whole = len(group.alive) == len(group.members) and group.is_whole()
        return is_whole and not self._is_recovering() and not self._lacking

    async def restore(self, each: Member) -> None:
        """Copy the disk of a member; later put the copy in the place of the disk, when the others have heard from the
        leader what is missing.
        """
        group, member = self.group, each.member
        assert member is not None
        if each.id not in self._copies:
            if (status := member.status()) is not None:
                start = Promise(0, status.term, member.epochs[-1][0] if member.epochs else 0, status.stored)
                self._copies[each.id] = each.volume.after_kill(), start
            return
        if self._lacking:
            return
        await self._calm()
        group.tick()
        await self._deliver_everything()
        if not self._may_lose_a_disk() or each is group.leader:
            return
        others = [other.member for other in group.members.values() if other is not each and other.member is not None]
        known = {_promise(other, each.id) for other in others}
        promise = known.pop()
        older, start = self._copies[each.id]
        if known or promise is None or promise[1:] <= start[1:]:
            return
        for other in others:
            assert other._raft is not None
            other._files.save_progress(other._saved_progress._replace(promises=other._raft.promises))
        each.kill()
        group.network = [message for message in group.network if message[0] != each.id]
        each.volume = older
        del self._copies[each.id]
        self._lacking.add(each.id)
        self.restored += 1
        each.start()

    def transfer(self, to: Member) -> None:
        """Request a transfer of leadership from the leader."""
        leader = self.group.leader
        if leader is not None and leader is not to and leader.member is not None:
            try:
                leader.member.propose(TransferLeadership(to.id))
            except ProposalRefused:
                return

    def refuse_writes(self, each: Member) -> None:
        """Make the disk of a follower refuse writes until the faults are healed."""
        if each is not self.group.leader:
            each.replica.write = no_room  # type: ignore[method-assign,assignment]

    def refuse_tables(self, each: Member) -> None:
        """Make the disk of a member refuse the topic table from now on."""
        each.saves_topics = False

    def refuse_appends(self, each: Member) -> None:
        """Make the disk of the leader refuse messages and changes of tables for a moment."""
        each.store.append = no_more  # type: ignore[method-assign,assignment]
        each.tables.flush()
        self._allow_writes(each)

    def _allow_writes(self, each: Member) -> None:
        vars(each.replica).pop("write", None)
        vars(each.store).pop("append", None)


def _promise(member: GroupMember, other: str) -> Promise | None:
    """Return what a member knows that another one has promised."""
    assert member._raft is not None
    member._raft._keep_promises()
    return next((each.promise for each in member._raft.promises if each.id == other), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.replication.simulation", description="Run seeds.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--verbose", action="store_true", help="print the log of the members")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.CRITICAL + 1)
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            Simulation(seed).run()
        except SimulationFailed as failure:
            if arguments.verbose:
                raise
            sys.stdout.write(f"seed {seed}: {failure}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
