"""A seeded simulation of a whole group: the real state machines, a fake clock, disks and network.

One seed determines everything: the number of members, the combinations of faults, and every delay. The network loses,
duplicates, delays and reorders messages and is partitioned. Processes are killed, stopped and continued, also in the
middle of a write. Machines lose power with unflushed data, disks are wiped, members are added and removed, and
leadership is transferred.

Invariants that are checked continuously: a term has at most one leader. Committed records are the same on all members
and do not change. A read-index is not older than an acknowledgement before it. The invariants of the library hold. At
the end, after all faults are healed, there must be a leader that commits, all members must have its log, and every
acknowledged record must be in it once.

A record is one integer at one offset. A failing seed is replayed by::

    python -m tests.raft.simulation --seed 1234 --verbose
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import Any

from raptormq.broker.replication.member_files import MemberFiles, MemberState
from raptormq.raft import (
    ZERO,
    AddMember,
    Append,
    AppendData,
    AppendEntry,
    DataAppended,
    Entry,
    HardState,
    Hello,
    HelloResponse,
    MemberPromise,
    Message,
    Options,
    Position,
    Promise,
    Proposal,
    ProposalRefused,
    Raft,
    ReadIndex,
    Ready,
    RemoveMember,
    Reset,
    Role,
    Saved,
    Status,
    TransferLeadership,
    Truncate,
)

HEARTBEAT_MS, ELECTION_MS, TICK_MS = 10, 50, 10
FORMING_MS, FAULTY_MS, HEALED_MS = 400, 900, 4000


FALSE_REPORTS = 0.1
"""Frequency of faults with a false report that the process of the leader has ended."""
PROFILES = (
    (
        "kill",
        "kill",
        "cut",
        "cut",
        "cut",
        "power",
        "power",
        "pause",
        "transfer",
        "change",
        "retain",
        "wipe",
        "kill_all",
    ),
    ("kill_leader", "cut_leader", "cut"),
    ("kill_leader", "kill_leader", "cut_leader", "kill_all"),
    ("kill_voter", "kill_voter", "kill_leader"),
    ("power", "kill_leader", "forget", "cut_leader"),
    ("forget", "forget", "kill_all"),
    ("pause", "cut_leader", "transfer"),
    ("change", "shrink", "cut_leader", "kill_leader"),
    ("change", "shrink", "shrink", "cut_leader"),
    ("wipe", "retain", "kill_leader", "cut"),
)
"""Combinations of faults, as names of methods of :class:`Simulation`."""
RESTORING = ("restore", "restore", "restore", "kill_leader", "cut_leader")
FORGETTING = ("forget_twice", "forget_twice", "kill_leader")
SHORTENING = ("shorten", "shorten", "retain", "kill_leader", "cut_leader", "kill_all", "transfer")
INSTALLING = ("retain", "retain", "cut", "cut", "pause")
OWN_SHARES = (
    ("restores", 0.1, RESTORING),
    ("forgets", 0.05, FORGETTING),
    ("installs", 0.05, INSTALLING),
    ("shortens", 0.1, SHORTENING),
)
"""Shares of the seeds with further combinations. They are chosen by random sources of their own, so that the other
seeds stay the same.
"""
SHORTENED_WAIT_MS = 600


class SimulationFailed(AssertionError):
    """An invariant is violated. The message ends with the command that replays the seed."""


class Disk:
    """Data that survives a kill. The flushed part of it survives a power failure.

    The rules of the state file are those of the real :class:`MemberFiles`: each save writes the hard state, the boot id
    of the machine and the flush mode together.

    Attributes:
        records: the commit log; None for records that retention has deleted or a reset has skipped.
        durable: number of flushed records.
        lowest: the shortest length since the start of the flush in progress.
        machine_boots: number of power failures of the machine.
    """

    def __init__(self, incarnation: int, *, sync: bool) -> None:
        self.state = HardState(incarnation=incarnation)
        self.sync = sync
        self.machine_boots = self._saved_boots = 0
        self.records: list[int | None] = []
        self.durable = 0
        self.lowest = 0
        self.start = 0
        self.entries: list[Entry] = []
        self.commit = ZERO
        self.promises: tuple[MemberPromise, ...] = ()
        self.lacks_promises = False
        """Whether this is an older copy of a disk, which lacks what that disk had promised."""

    def copy(self) -> Disk:
        """Return a copy, as a snapshot of the volume is."""
        copied = copy(self)
        copied.records, copied.entries = list(self.records), list(self.entries)
        return copied

    def save(self, state: HardState | None = None) -> None:
        """Save the state file, with a new hard state or the last one."""
        self.state = state or self.state
        self._saved_boots = self.machine_boots

    @property
    def may_have_lost_data(self) -> bool:
        """Whether the real files say so at a start. Only the hard state says it at later starts."""
        saved = MemberState(self.state, (), f"boot {self._saved_boots}", self.sync)
        return MemberFiles(Path(), boot=f"boot {self.machine_boots}").may_have_lost_data(saved)

    def promised(self) -> Promise:
        """Return what is on this disk."""
        return Promise(0, self.state.term, self.entries[-1].term if self.entries else 0, self.end)

    @property
    def end(self) -> Position:
        return Position(len(self.records), len(self.entries))

    def do(self, effect: Any) -> None:
        """Apply one effect on the log."""
        if isinstance(effect, AppendData):
            assert effect.start == len(self.records), (
                f"write at {effect.start}, but the log ends at {len(self.records)}"
            )
            news = effect.data[effect.skip : effect.skip + effect.end - effect.start]
            assert len(news) == effect.end - effect.start, "an append has too few bytes"
            assert None not in news, "an append contains deleted bytes"
            self.records += news
        elif isinstance(effect, AppendEntry):
            assert effect.entry.offset == len(self.records)
            self.entries.append(effect.entry)
            self.save()
        elif isinstance(effect, Truncate):
            del self.records[effect.end.offset :]
            del self.entries[effect.end.entries :]
            self.durable = min(self.durable, len(self.records))
            self.lowest = min(self.lowest, len(self.records))
            self.save()
        elif isinstance(effect, Reset):
            self.records = [None] * effect.end.offset
            self.entries = list(effect.entries)
            self.start = self.durable = effect.end.offset
            self.lowest = 0
            self.save()


class Node:
    """The shell of a member: its disk, and its state machine while the process runs."""

    def __init__(self, group: Simulation, member_id: str) -> None:
        self.group = group
        self.id = member_id
        self.disk = Disk(group.rng.getrandbits(62) + 1, sync=group.sync)
        self.older: Disk | None = None
        self.raft: Raft | None = None
        self.process = 0
        self.paused_until = 0
        self.doing: Ready | None = None
        self.flushing = False
        self.truncations = 0
        self.checked = 0
        self.waiting: list[tuple[int, int, int]] = []  # end offset, term, record

    def start(self) -> None:
        group, disk = self.group, self.disk
        self.process += 1
        self.doing, self.flushing, self.waiting = None, False, []
        self.truncations = 0
        if group.sync:
            disk.durable = len(disk.records)
        saved = Saved(
            disk.state,
            tuple(disk.entries),
            disk.start,
            len(disk.records),
            disk.commit,
            disk.may_have_lost_data,
            disk.promises,
        )
        peers = dict.fromkeys([*group.nodes, self.id], "")
        self.raft = Raft(
            self.id, saved, replace(group.options, peers=peers), Random(group.rng.getrandbits(32)), group.align
        )
        self.checked = disk.start
        group.later(group.rng.randrange(TICK_MS), self.tick, self.process)

    def kill(self) -> None:
        """Kill the process, possibly in the middle of a write."""
        doing, self.doing = self.doing, None
        if doing is not None and (doing.hard_state is None or self.group.rng.random() < 0.5):
            if doing.hard_state is not None:
                self.disk.save(doing.hard_state)
            for effect in doing.log[: self.group.rng.randrange(len(doing.log) + 1)]:
                self.disk.do(effect)
        self.raft = None
        self.process += 1

    def cut_power(self) -> None:
        """Cut the power, and lose a part of the unflushed data."""
        self.kill()
        disk = self.disk
        kept = self.group.rng.randint(disk.durable, len(disk.records))
        del disk.records[kept:]
        disk.machine_boots += 1

    def wipe(self) -> None:
        self.kill()
        self.disk = Disk(self.group.rng.getrandbits(62) + 1, sync=self.group.sync)

    # Events

    def tick(self, process: int) -> None:
        if self.raft is None or process != self.process:
            return
        if self.is_paused(self.tick, process):
            return
        self.raft.tick(self.group.now)
        self.pump()
        self.group.later(TICK_MS, self.tick, process)

    def receive(self, message: Message) -> None:
        if self.raft is None or self.is_paused(self.receive, message):
            return
        if self.group.verbose:
            sys.stdout.write(f"{self.group.now:5} {message}\n")
        self.raft.step(message)
        self.pump()

    def hear_of_end(self, member: str) -> None:
        if self.raft is not None and not self.is_paused(self.hear_of_end, member):
            self.raft.process_ended(member)
            self.pump()

    def is_paused(self, event: Any, argument: Any) -> bool:
        if self.paused_until > self.group.now:
            self.group.later(self.paused_until - self.group.now, event, argument)
            return True
        return False

    def pump(self) -> None:
        group = self.group
        while self.raft is not None and self.doing is None:
            ready = self.raft.ready()
            if ready is None:
                break
            self.doing = ready
            if (ready.log or ready.hard_state) and group.rng.random() < group.slow_disk:
                group.later(group.rng.randint(1, 5 if group.healed else 50), self.finish, self.process)
                break
            self.finish(self.process)
        raft = self.raft
        if raft is not None:
            if raft.role is Role.LEADER:
                group.see_leader(raft)
            self.check_stored(raft)
            if not self.flushing and self.disk.durable < raft.flush_mark().offset:
                self.flushing = True
                self.disk.lowest = len(self.disk.records)
                group.later(
                    group.rng.randint(1, 3 if group.healed else group.flush_ms),
                    self.flush_done,
                    (self.process, raft.flush_mark(), len(self.disk.records)),
                )

    def check_stored(self, raft: Raft) -> None:
        """Check that what a member counts as stored is written, and flushed if required."""
        stored = raft._stored().offset
        for effect in (*(self.doing.log if self.doing else ()), *raft._effects):
            touched = 0
            if isinstance(effect, AppendEntry):
                continue
            if isinstance(effect, AppendData):
                touched = effect.start
            elif isinstance(effect, Truncate):
                touched = effect.end.offset
            assert stored <= touched, f"{self.id} counts {stored}, before it has executed {effect}"
        if self.group.sync:
            assert stored <= self.disk.durable, f"{self.id} counts {stored}, but only {self.disk.durable} is flushed"
        if raft._truncations != self.truncations:
            self.truncations = raft._truncations
            last = next((entry.configuration for entry in reversed(raft.entries) if entry.configuration), None)
            assert raft.status().configuration.members == (last.members if last else ()), (
                f"{self.id} belongs to another group"
            )

    def flush_done(self, flush: tuple[int, Any, int]) -> None:
        process, mark, length = flush
        if process != self.process or self.raft is None:
            return
        self.flushing = False
        self.disk.durable = max(self.disk.durable, min(length, self.disk.lowest))
        self.raft.flushed(mark)
        self.pump()

    def finish(self, process: int) -> None:
        ready, raft = self.doing, self.raft
        if process != self.process or ready is None or raft is None:
            return
        disk, group = self.disk, self.group
        if ready.hard_state is not None:
            assert disk.lacks_promises or not ready.hard_state.outdated, f"{self.id} is refused, and lacks nothing"
            disk.save(ready.hard_state)
        for effect in ready.log:
            if isinstance(effect, Reset):
                group.check_reset(self, effect)
            disk.do(effect)
            if isinstance(effect, Reset):
                self.checked = effect.end.offset
        for message in ready.messages:
            if disk.lacks_promises:
                assert isinstance(message, Hello | HelloResponse), f"{self.id} takes part on an older disk: {message}"
            if isinstance(message, Append) and message.end.offset > message.previous.offset:
                if message.previous.offset < disk.start:  # retention was faster: the log cannot be read, as in Links
                    continue
                message.data = disk.records[message.previous.offset : message.end.offset]
            group.send(message)
        if ready.commit is not None:
            self.commit(ready.commit)
        for read in ready.reads:
            group.check_read(read.context, read.position)
        self.doing = None
        raft.advance(ready)
        self.pump()

    def commit(self, commit: Position) -> None:
        group, disk, raft = self.group, self.disk, self.raft
        assert raft is not None
        group.check_commit(self, commit)
        if raft.role is Role.LEADER:
            group.check_majority(raft, commit)
        if group.rng.random() < 0.3:
            disk.commit = commit
            disk.promises = raft.promises
        while self.waiting and self.waiting[0][0] <= commit.offset:
            end, term, record = self.waiting.pop(0)
            if raft.role is Role.LEADER and raft.term == term:
                group.acknowledge(end, record)
            else:
                self.waiting.clear()
                break

    def append(self, record: int) -> bool:
        raft = self.raft
        if raft is None or not raft.accepts_data or self.paused_until > self.group.now:
            return False
        self.disk.records.append(record)
        end = len(self.disk.records)
        term = raft.term
        if self.waiting and self.waiting[-1][1] != term:
            self.waiting.clear()
        self.waiting.append((end, term, record))
        raft.propose(DataAppended(end))
        self.pump()
        return True


class Simulation:
    """One seed."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.seed = seed
        self.verbose = verbose
        self.rng = rng = Random(seed)
        self.reports = Random(seed)
        """Selects the members that are told of ended processes. It has its own random source, so that other choices of
        a seed do not change.
        """
        self.reported = self.reports.choice((0.0, 0.5, 1.0))
        self.now = 0
        self.count = 0
        self.queue: list[tuple[int, int, Any, Any]] = []
        self.sync = rng.random() < 0.5
        self.slow_disk = rng.choice((0.0, 0.1, 0.5, 0.9))
        self.loss = rng.choice((0.0, 0.02, 0.15))
        self.delay = rng.choice((2, 5, 15))
        ids = [f"n{number}" for number in range(rng.choice((3, 3, 3, 5)))]
        self.options = Options(
            heartbeat_ms=HEARTBEAT_MS,
            election_ms=ELECTION_MS,
            sync_flush=self.sync,
            max_append_bytes=rng.choice((2, 5, 50)),
            max_inflight_bytes=rng.choice((4, 20, 1000)),
            transfer_bytes=5,
            preferred_leader=rng.choice(("", "", "n1")),
            shortened_wait_ms=SHORTENED_WAIT_MS,
        )
        self.nodes = {member: Node(self, member) for member in ids}
        self.blocked: set[tuple[str, str]] = set()
        self.leaders: dict[int, str] = {}
        self.truth: list[int | None] = []
        self.truth_entries: list[Entry] = []
        self.acknowledged: dict[int, int] = {}
        self.acknowledged_end = 0
        self.reads: dict[str, int] = {}
        self.read_count = 0
        self.next_record = 0
        self.healed = False
        self.first_healed = 0
        self.client_gap = rng.choice((3, 8, 25))
        self.flush_ms = rng.choice((3, 15, 60, 250))
        # Runs with few kinds of faults reach deeper states than runs with all of them.
        self.kinds: tuple[str, ...] = rng.choice(PROFILES)
        for name, share, kinds in OWN_SHARES:
            if Random(f"{name} {seed}").random() < share:
                self.kinds = kinds
        self.begin = 0
        """The latest begin of the log that a leader has decided up to now."""
        self.led_ms = 0
        """Time at which there was last a leader."""
        self.fault_gap = rng.choice((30, 90))

    def align(self, start: int, limit: int) -> int:
        return limit

    def run(self) -> None:
        """Run the simulation.

        Raises:
            SimulationFailed: An invariant is violated.
        """
        try:
            self._run()
        except Exception as error:
            raise SimulationFailed(
                f"at {self.now} ms: {type(error).__name__}: {error}\n"
                f"replay: python -m tests.raft.simulation --seed {self.seed} --verbose"
            ) from error

    def _run(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.later(100, self.client, None)
        self.until(FORMING_MS, self.is_formed)
        self.later(0, self.fault, None)
        end = self.now + FAULTY_MS
        self.until(end)
        self.heal()
        self.until(end + HEALED_MS, self.has_converged)
        self.check_end()

    def until(self, end: int, done: Any = None) -> None:
        looked = self.now
        while self.queue and self.queue[0][0] <= end:
            self.now, _, event, argument = heappop(self.queue)
            event(argument)
            if done is not None and self.now >= looked + 20:
                looked = self.now
                if done():
                    return
        self.now = max(self.now, end)

    def later(self, after: int, event: Any, argument: Any) -> None:
        self.count += 1
        heappush(self.queue, (self.now + after, self.count, event, argument))

    # Network

    def send(self, message: Message) -> None:
        rng = self.rng
        if (message.sender, message.to) in self.blocked or message.to not in self.nodes:
            return
        if not self.healed:
            if rng.random() < self.loss:
                return
            if rng.random() < self.loss / 2:
                self.later(rng.randint(1, 4 * self.delay), self.nodes[message.to].receive, message)
        delay = 1 if self.healed else rng.randint(1, self.delay * (1 if rng.random() < 0.97 else 8))
        self.later(delay, self.nodes[message.to].receive, message)

    # Client

    def client(self, _: Any) -> None:
        for node in self.nodes.values():
            if node.append(self.next_record):
                self.next_record += 1
        if self.rng.random() < 0.1:
            self.read(self.rng.choice(list(self.nodes.values())))
        if not self.healed:
            self.later(self.rng.randint(1, self.client_gap), self.client, None)

    def read(self, node: Node) -> None:
        if node.raft is not None and node.paused_until <= self.now:
            self.read_count += 1
            context = f"read {self.read_count}"
            self.reads[context] = self.acknowledged_end
            self.ask(node, ReadIndex(context))

    def ask(self, node: Node, proposal: Proposal) -> None:
        if node.raft is not None:
            with suppress(ProposalRefused):
                node.raft.propose(proposal)
            node.pump()

    def acknowledge(self, end: int, record: int) -> None:
        self.acknowledged[record] = end
        self.acknowledged_end = max(self.acknowledged_end, end)

    # Faults

    def fault(self, _: Any) -> None:
        if self.healed:
            return
        rng = self.rng
        node = rng.choice(list(self.nodes.values()))
        if self.reports.random() < FALSE_REPORTS:
            self.rumour(self.leader() or node)
        kind: Callable[[Node], None] = getattr(self, rng.choice(self.kinds))
        kind(node)
        self.later(rng.randint(5, self.fault_gap), self.fault, None)

    def kill_leader(self, _: Node) -> None:
        if (leader := self.leader()) is not None:
            self.kill(leader)

    def cut_leader(self, _: Node) -> None:
        """Cut the leader off, possibly together with one other member."""
        if (leader := self.leader()) is not None:
            ids = list(self.nodes)
            side = {leader.id} | ({self.rng.choice(ids)} if self.rng.random() < 0.3 else set())
            self.block(side, self.rng.randint(20, 200))

    def kill_voter(self, node: Node) -> None:
        """Restart members that may just have voted."""
        if any(other.raft is not None and other.raft.role is Role.CANDIDATE for other in self.nodes.values()):
            if node.raft is not None:
                node.kill()
                self.later(1, self.revive, node)
        else:
            self.kill_leader(node)
            self.later(self.rng.randint(50, 110), self.kill_voter, self.rng.choice(list(self.nodes.values())))

    def forget(self, node: Node) -> None:
        """Let a member lag, let another one lose power after its confirmation, then kill the leader."""
        self.let_forget(node, self.forget_now)

    def forget_twice(self, node: Node) -> None:
        """Do the same, and let the process of the member that has lost power end once more before it has caught up."""
        self.let_forget(node, self.forget_and_restart)

    def let_forget(self, node: Node, forget: Callable[[tuple[Node, Node]], None]) -> None:
        leader = self.leader()
        others = [other for other in self.nodes.values() if other is not leader and other.raft is not None]
        if leader is None or node not in others or len(others) < 2 or not (self.sync or self.may_forget(node)):
            return
        lagging = {other.id for other in others if other is not node}
        self.blocked |= (pairs := {(leader.id, other) for other in lagging})
        after = self.rng.randint(10, 45)
        self.later(after, self.join, pairs)
        self.later(after, forget, (node, leader))

    def forget_now(self, both: tuple[Node, Node]) -> None:
        node, leader = both
        if not self.healed and node.raft is not None and (self.sync or self.may_forget(node)):
            node.cut_power()
            self.revive(node)
            self.later(self.rng.randint(0, 12), self.kill, leader)

    def forget_and_restart(self, both: tuple[Node, Node]) -> None:
        node, _ = both
        if not self.healed and node.raft is not None and (self.sync or self.may_forget(node)):
            self.block({node.id}, 2 * TICK_MS)
            self.forget_now(both)
            self.later(TICK_MS, self.restart, node)  # after its first save

    def restart(self, node: Node) -> None:
        if node.raft is not None and not self.healed:
            node.kill()
            node.start()

    def shrink(self, _: Node) -> None:
        """Let a leader that is cut off with one other member remove several members at once."""
        leader = self.leader()
        if leader is None or leader.raft is None:
            return
        voters = [voter for voter in leader.raft.status().configuration.voters() if voter != leader.id]
        if len(voters) < 3 or not self.has_all_disks(voters, leader):
            self.change(leader)
            return
        kept, *gone = self.rng.sample(voters, len(voters))
        self.block({leader.id, kept}, self.rng.randint(60, 200))
        for member in gone[:2]:
            self.ask(leader, RemoveMember(member))

    def kill(self, node: Node) -> None:
        if node.raft is not None and not self.healed:
            node.kill()
            self.later(self.rng.randint(1, 120), self.revive, node)
            self.rumour(node)

    def rumour(self, node: Node) -> None:
        """Report to members that the process of a node has ended, whether this is true or not."""
        for other in self.nodes.values():
            if other is not node and self.reports.random() < self.reported:
                self.later(self.reports.randint(1, 5), other.hear_of_end, node.id)

    def kill_all(self, _: Node) -> None:
        for node in self.nodes.values():
            self.kill(node)

    def revive(self, node: Node) -> None:
        if node.raft is None:
            node.start()

    def cut(self, node: Node) -> None:
        """Cut the network: one direction, one member, or into two parts."""
        rng = self.rng
        ids = list(self.nodes)
        kind = rng.random()
        if kind < 0.3:
            pairs = {(node.id, rng.choice(ids))}
        else:
            self.block(
                {node.id} if kind < 0.7 else set(rng.sample(ids, rng.randint(1, len(ids) - 1))), rng.randint(10, 150)
            )
            return
        self.blocked |= pairs
        self.later(rng.randint(10, 150), self.join, pairs)

    def block(self, side: set[str], duration: int) -> None:
        pairs = {(one, two) for one in self.nodes for two in self.nodes if (one in side) != (two in side)}
        self.blocked |= pairs
        self.later(duration, self.join, pairs)

    def join(self, pairs: set[tuple[str, str]]) -> None:
        self.blocked -= pairs

    def power(self, node: Node) -> None:
        if self.sync or self.may_forget(node):
            node.cut_power()
            self.later(self.rng.randint(1, 120), self.revive, node)

    def wipe(self, node: Node) -> None:
        if self.may_forget(node) and self.rng.random() < 0.5:
            node.wipe()
            self.later(self.rng.randint(1, 60), self.revive, node)

    def restore(self, node: Node) -> None:
        """Copy a disk; later put the copy in the place of the disk, and let the others know nothing but what the leader
        has told them.
        """
        if node.older is None:
            node.older = node.disk.copy() if node.disk.state.boot else None  # an unused one has no identity yet
        elif node.raft is not None and node is not self.leader() and self.may_forget(node):
            node.kill()
            self.later(self.rng.randint(20, 60), self.restore_now, node)

    def restore_now(self, node: Node) -> None:
        others = [other for other in self.nodes.values() if other is not node]
        older = node.older
        if not self.healed and node.raft is None and older is not None and self.may_forget(node):
            known = self.promise_known_to_all(node, others)
            is_same = older.state.incarnation == node.disk.state.incarnation
            if known is not None and is_same and known[1:] > older.promised()[1:]:
                node.disk, node.older = older, None
                older.lacks_promises = True
        self.revive(node)

    def promise_known_to_all(self, node: Node, others: list[Node]) -> Promise | None:
        """Return what all others know that a member has promised, if the leader does not know more; write it to their
        disks. If one of them had not heard of it and the leader failed, nobody could know.
        """
        leader = self.leader()
        if leader is None or leader.raft is None or leader.raft._leadership is None or self.blocked:
            return None
        promises = []
        leader.raft._keep_promises()
        for other in others:
            found = None if other.raft is None else other.raft._promises.get(node.id)
            if other.raft is None or found is None or found.incarnation != node.disk.state.incarnation:
                return None
            other.disk.promises = other.raft.promises
            promises.append(found.promise)
        return promises[0] if len(set(promises)) == 1 else None

    def may_forget(self, node: Node) -> bool:
        """Return whether no other member has lost data. The group must survive only the loss of a minority."""
        leader = self.leader()
        if leader is None or leader.raft is None or not leader.raft.accepts_data:
            return False
        status = leader.raft.status()
        if not status.configuration_committed:
            return False
        for member in status.configuration.members:
            other = self.nodes[member.id]
            state = other.disk.state
            forgets = other.disk.may_have_lost_data or state.recovering or state.incarnation != member.incarnation
            forgets = forgets or other.disk.lacks_promises
            if forgets or member.suffrage != "voter" or not state.group:
                return False
        # All members must know that a member was replaced or has recovered, because an older leader may count it
        # wrongly.
        configurations = [other.raft.status() for other in self.nodes.values() if other.raft is not None]
        if any(other.configuration != status.configuration for other in configurations if other.group):
            return False
        return status.configuration.get(node.id) is not None and len(status.configuration.voters()) >= 3

    def pause(self, node: Node) -> None:
        duration = self.rng.randint(10, 200)
        node.paused_until = self.now + duration
        self.later(duration, self.read, node)  # before it has received the changes

    def leader(self) -> Node | None:
        leaders = [node for node in self.nodes.values() if node.raft is not None and node.raft.role is Role.LEADER]
        return max(leaders, key=lambda node: node.raft.term if node.raft else 0, default=None)

    def ask_leader(self, proposal: Proposal) -> None:
        if (leader := self.leader()) is not None:
            self.ask(leader, proposal)

    def transfer(self, node: Node) -> None:
        self.ask_leader(TransferLeadership(node.id))

    def change(self, node: Node) -> None:
        leader = self.leader()
        voters = leader.raft.status().configuration.voters() if leader is not None and leader.raft is not None else []
        if len(voters) < 5 and len(self.nodes) < 8 and self.rng.random() < 0.5:
            member = f"n{len(self.nodes)}"
            self.nodes[member] = added = Node(self, member)
            added.start()
            self.later(30, self.ask_leader, AddMember(member))
        elif len(voters) > 2 and self.rng.random() < 0.6 and self.has_all_disks(voters, leader):
            self.ask_leader(RemoveMember(node.id))
        else:
            self.ask_leader(AddMember(node.id))

    def has_all_disks(self, voters: list[str], leader: Node | None) -> bool:
        """Return whether no voter's disk was wiped. Otherwise the removal of another voter may leave a group without a
        majority.
        """
        if leader is None or leader.raft is None:
            return False
        members = leader.raft.status().configuration.members
        return all(
            self.nodes[member.id].disk.state.incarnation == member.incarnation
            for member in members
            if member.id in voters
        )

    def retain(self, node: Node) -> None:
        """Let retention delete what it may: the leader decides, and a member follows the decision on its disk."""
        leader = self.leader()
        if leader is not None:
            self._delete(leader, sys.maxsize)
        self._delete(node, node.disk.state.begin.offset)

    def shorten(self, node: Node) -> None:
        """Delete the beginning of a log without a decision of the leader, as a member of 0.2.0 or a person does."""
        self._delete(node, sys.maxsize)

    def _delete(self, node: Node, limit: int) -> None:
        if node.raft is not None and node.raft._applied.offset > 4:
            wanted = node.raft._applied.offset - self.rng.randint(1, 20)
            start = max(node.disk.start, min(wanted, node.disk.durable, limit))  # closed segments are flushed
            for offset in range(node.disk.start, start):
                node.disk.records[offset] = None
            node.disk.start = start
            node.raft.starts_at(start)
            self.see_begin(node.raft)

    def heal(self) -> None:
        self.healed = True
        self.first_healed = self.next_record
        self.blocked.clear()
        for node in self.nodes.values():
            node.paused_until = 0
            if node.disk.lacks_promises:
                if node.raft is not None:
                    node.kill()
                node.wipe()
            if node.raft is None:
                node.start()

    # Promises

    def see_leader(self, raft: Raft) -> None:
        """Check that a term has one leader, and that it has the log from the group's begin on, unless there was no
        leader for long.
        """
        is_new = raft.term not in self.leaders
        other = self.leaders.setdefault(raft.term, raft.id)
        assert other == raft.id, f"{other} and {raft.id} both lead term {raft.term}"
        start = self.nodes[raft.id].disk.start
        if is_new and self.now < self.led_ms + SHORTENED_WAIT_MS:
            assert start <= self.begin, (
                f"{raft.id} leads with a log from {start}, and the group's begins at {self.begin}"
            )
        self.see_begin(raft)
        self.led_ms = self.now

    def see_begin(self, raft: Raft) -> None:
        if raft.role is Role.LEADER:
            self.begin = max(self.begin, raft.status().begin.offset)

    def check_commit(self, node: Node, commit: Position) -> None:
        disk = node.disk
        assert len(disk.records) >= commit.offset, (
            f"{node.id} commits {commit}, but its log ends at {len(disk.records)}"
        )
        known = min(len(self.truth), commit.offset)
        begin = max(node.checked, disk.start)
        if begin < known:
            assert disk.records[begin:known] == self.truth[begin:known], (
                f"{node.id} commits other records in {begin}..{known}: "
                f"{disk.records[begin:known]} instead of {self.truth[begin:known]}"
            )
        if commit.offset > len(self.truth):
            assert disk.start <= len(self.truth)
            self.truth += disk.records[len(self.truth) : commit.offset]
        node.checked = max(node.checked, commit.offset)
        count = min(len(self.truth_entries), commit.entries)
        assert disk.entries[:count] == self.truth_entries[:count], (
            f"{node.id} commits other entries: {disk.entries[:count]} instead of {self.truth_entries[:count]}"
        )
        self.truth_entries += disk.entries[len(self.truth_entries) : commit.entries]

    def check_reset(self, node: Node, reset: Reset) -> None:
        """Check that a member does not replace a log that contains the new beginning and what is confirmed after it."""
        disk, begin = node.disk, reset.end.offset
        end = min(len(self.truth), len(disk.records))
        is_same = tuple(disk.entries[: reset.end.entries]) == reset.entries
        if is_same and disk.start <= begin < end and disk.records[begin:end] == self.truth[begin:end]:
            raise AssertionError(f"{node.id} deletes the confirmed records {begin}..{end}")

    def check_majority(self, leader: Raft, commit: Position) -> None:
        """Check that a majority of the disks has what a leader confirms, except those that have lost it since."""
        configuration = leader.status().configuration
        holders = 0
        for member in configuration.members:
            disk = self.nodes[member.id].disk
            if member.suffrage == "voter":
                forgot = (
                    disk.may_have_lost_data
                    or disk.lacks_promises
                    or disk.state.recovering
                    or disk.state.incarnation != member.incarnation
                )
                holders += forgot or (disk.durable if self.sync else len(disk.records)) >= commit.offset
        assert holders >= configuration.quorum(), f"{leader.id} commits {commit}, which {holders} voters have"

    def check_read(self, context: str, position: Position) -> None:
        if context in self.reads:
            expected = self.reads.pop(context)
            assert position.offset >= expected, f"a read returned {position}, but {expected} was acknowledged before it"

    def is_formed(self) -> bool:
        leader = self.leader()
        return self.rng.random() < 0.2 or (leader is not None and leader.raft is not None and leader.raft.accepts_data)

    def has_converged(self) -> bool:
        self.client(None)
        leader = self.leader()
        if leader is None or leader.raft is None or max(self.acknowledged, default=0) < self.first_healed:
            return False
        status = leader.raft.status()
        if not status.configuration_committed or any(
            member.suffrage != "voter" for member in status.configuration.members
        ):
            return False
        for member in status.configuration.members:
            node = self.nodes[member.id]
            if node.raft is None or node.raft._state.recovering or node.disk.state.incarnation != member.incarnation:
                return False
            if node.raft.status().committed.offset + 3 < status.committed.offset:
                return False
        return True

    def check_end(self) -> None:
        if not self.has_converged():
            views = [node.raft.status() for node in self.nodes.values() if node.raft is not None]
            shown = "\n".join(shorter(view) for view in views)
            raise AssertionError(f"the group has not converged\n{shown}")
        counts: dict[int | None, int] = {}
        for record in self.truth:
            counts[record] = counts.get(record, 0) + 1
        for record, end in self.acknowledged.items():
            assert self.truth[end - 1] == record, f"the acknowledged record {record} is not at {end - 1}"
            assert counts[record] == 1, f"record {record} is stored {counts[record]} times"


def shorter(view: Status) -> str:
    members = ",".join(
        f"{member.id}:{member.incarnation % 1000}:{member.suffrage[0]}" for member in view.configuration.members
    )
    return (
        f"  {view.id}:{view.incarnation % 1000} {view.role} term {view.term} leader {view.leader} "
        f"committed {view.committed} end {view.end} [{members}] "
        f"{'recovering ' if view.recovering else ''}{view.conflict}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.simulation", description="Run seeds.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--verbose", action="store_true", help="print every message")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        try:
            Simulation(seed, arguments.verbose).run()
        except SimulationFailed as failure:
            if arguments.verbose:
                raise
            sys.stdout.write(f"seed {seed}: {failure}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
