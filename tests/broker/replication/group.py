"""A group of members in one process, with real stores on in-memory volumes and a network that a seed determines.

Each member is a :class:`~raptormq.broker.replication.group_member.GroupMember` with its tables. Messages pass through
the codec. Nothing happens spontaneously: :meth:`Group.step` executes one event, and the tasks of the members run until
they wait.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from raptormq.broker.replication.codec import decode
from raptormq.broker.replication.group_member import GroupMember, Listeners
from raptormq.broker.replication.links import _Link
from raptormq.broker.replication.log_history import LogHistory
from raptormq.broker.replication.member_files import MemberFiles
from raptormq.broker.replication.renewal import Grants, Renewal
from raptormq.broker.replication.table_records import TableRecords
from raptormq.broker.tables import POP, PULL, GroupConfig, GroupTable, RequestMode, RequestModeTable, TopicTable
from raptormq.errors import RequestTimeout, StorageError
from raptormq.protocol.bodies.replication import Verdict
from raptormq.protocol.bodies.topic_config import Perm, TopicConfig, TopicConfigTable
from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.topic_attributes import BATCH_CQ, QUEUE_TYPE
from raptormq.protocol.topic_names import TABLES_TOPIC
from raptormq.raft import Message, Options, Role
from raptormq.storage import FlushDiskType, MessageStore
from raptormq.storage.fs import Buffer, PagesMissing
from raptormq.storage.replica import Replica
from tests.storage.batch_stores import SMALL, batch
from tests.storage.memory_filesystem import MemoryFileSystem
from tests.storage.stores import SEGMENT_BYTES, Clock, Inline, bodies, message, queue_bounds, read_queue, small_config

HEARTBEAT_MS, ELECTION_MS, TICK_MS = 10, 50, 10
SHORTENED_WAIT_MS = 2_000
ROOM = 1 << 40
"""Capacity in bytes of a volume that is never full."""
TOPICS = ("t0", "t1", "t2", "t3")
"""Topics that are created and deleted. A snapshot of them fits into a segment."""
SETTINGS = SMALL | {"segment_size": SEGMENT_BYTES}
"""Sizes of files. In memory, files of the usual sizes take gigabytes."""
TURNS = 6
"""Iterations of the event loop in which the tasks of a member make progress."""


async def inline(work: Callable[[], Any]) -> Any:
    """Run a function of a thread on the event loop, after other tasks have run."""
    await asyncio.sleep(0)
    return work()


class Wire:
    """What a link of a member needs of connections: the network of the group takes all messages to one member."""

    is_clogged = False

    def __init__(self, group: Group, sender: str, to: str) -> None:
        self._group = group
        self._sender, self._to = sender, to

    def open_connection(self, _address: str) -> Wire:
        return self

    def oneway(self, command: RemotingCommand) -> None:
        self._group.network.append((self._sender, self._to, (command.body, command.ext_fields)))


class ColdLog:
    """The log of a member as its links read it. Some pages are not resident."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def read(self, begin: int, end: int, *, wait: bool) -> list[Buffer]:
        group = self._member.group
        if not wait and group.cold_rng.random() < group.cold:
            raise PagesMissing([])
        return self._member.replica.read(begin, end, wait=wait)


class Member:
    """One member: its volume, and its process while it runs."""

    def __init__(self, group: Group, member_id: str) -> None:
        self.group = group
        self.id = member_id
        self.volume = MemoryFileSystem()
        self.boot = 1
        self.member: GroupMember | None = None
        self.renewal: Renewal
        self.grants = Grants()
        self.links: dict[str, _Link] = {}
        self.store: MessageStore
        self.topics: TopicTable
        self.groups: GroupTable
        self.modes: RequestModeTable
        self.tables: TableRecords
        self.wants_restart = False
        self.saved_topics: dict[str, TopicConfig] = {}
        self.saves_topics = True
        """Whether the disk takes the topic table, which is saved at the end of the process."""

    def files(self) -> MemberFiles:
        return MemberFiles(Path("/store/config"), self.volume, str(self.boot))

    def start(self) -> None:
        group = self.group
        files = self.files()
        kind = FlushDiskType.SYNC_FLUSH if group.sync else FlushDiskType.ASYNC_FLUSH
        config = small_config(replicated=True, flush_disk_type=kind, **SETTINGS)
        self.store = store = MessageStore(config, fs=self.volume, clock=Clock())
        self.wants_restart = False
        files.finish_reset(self._start_over)
        progress = files.load_progress()
        report = store.open(confirmed_offset=progress.commit.offset)
        self.topics = TopicTable(TopicConfigTable(dict(self.saved_topics)), Clock())
        self._know_types()
        self.groups, self.modes = GroupTable(None, Clock()), RequestModeTable()
        self.tables = TableRecords(
            store, self.topics, self.groups, self.modes, lambda: None, lambda: group.now_ms / 1000
        )
        options = Options(
            peers=dict.fromkeys(group.members, ""),
            heartbeat_ms=HEARTBEAT_MS,
            election_ms=ELECTION_MS,
            sync_flush=group.sync,
            max_append_bytes=700,
            shortened_wait_ms=SHORTENED_WAIT_MS,
        )
        rng = random.Random(group.rng.random())
        member = GroupMember(self.id, options, store, files, self, lambda: group.now_ms, rng, inline)
        member.listeners = Listeners(
            self._lead, self.tables.follow, log_shrunk=self.tables.log_shrunk, reset=self._reset
        )
        member.tables_offset = lambda: self.tables.snapshot_offset
        with suppress(StopIteration):
            self.tables.catch_up(progress.tables_offset).send(
                None
            )  # everything is in memory, so the call does not wait
            raise AssertionError("the tables wait for the disk")
        self.replica.metadata_topic = TABLES_TOPIC
        self.replica.attach(self.tables)
        self.links = {each: self._link(each) for each in group.members if each != self.id}
        self.renewal = Renewal(member, self._may_renew, store.has_room_for, lambda: group.now_ms, group.renewal_ms)
        self.grants = Grants()
        member.start(progress, clean=report.clean)
        self.member = member

    async def _may_renew(self, leader: str, stored: int | None) -> Verdict | None:
        """Ask the leader whether this member may drop its log."""
        group, target = self.group, self.group.members[leader]
        await asyncio.sleep(0)
        if target.member is None or frozenset((self.id, leader)) in group.cut:
            raise RequestTimeout(f"{leader} does not respond")
        if {self.id, leader} & group.old:
            return None
        return target.grants.answer(target.member.status(), self.id, stored, group.now_ms)

    def _link(self, to: str) -> _Link:
        wire: Any = Wire(self.group, self.id, to)
        log: Any = ColdLog(self)
        return _Link(to, "g", wire, log, self._read_slowly, lambda: None, lambda *_: None, signs=True)

    async def _read_slowly(self, work: Callable[[], Any]) -> Any:
        for _ in range(self.group.cold_rng.randint(1, 5 * TURNS)):
            await asyncio.sleep(0)
        return work()

    def _lead(self) -> None:
        with suppress(StorageError):  # a full disk: the next change retries
            self.tables.lead()

    def _start_over(self, offset: int) -> None:
        self.store.start_over(offset)
        self.saved_topics.clear()

    def start_alone(self) -> None:
        """Open the store like a broker without replication."""
        self.store = MessageStore(small_config(**SETTINGS), fs=self.volume, clock=Clock())
        self.store.open()
        self.topics = TopicTable(TopicConfigTable(dict(self.saved_topics)), Clock())
        self._know_types()

    def _know_types(self) -> None:
        """Do what the broker does when a topic is created."""
        topics, store = self.topics, self.store

        def made(topic: str) -> None:
            config = topics.get(topic)
            if config is not None and config.is_batch:
                store.set_batch_topic(topic)

        topics.listen(made)
        for topic in topics.configs:
            made(topic)

    @property
    def replica(self) -> Replica:
        assert self.store.replica is not None
        return self.store.replica

    def kill(self, *, power: bool = False) -> None:
        """End the process at any point. With ``power`` the machine loses power, and with it data that is not
        flushed.
        """
        assert self.member is not None
        member = self.member
        for task in (member._persisting, member._flushing, member._saving, member._learning, self.renewal.step):
            if task is not None:
                task.cancel()
        for link in self.links.values():
            if link._reading is not None:
                link._reading.cancel()
        self.member._raft = None
        self.member = None
        if self.saves_topics:
            saved = self.topics.to_dict()["topicConfigTable"]
            self.saved_topics = {name: TopicConfig.from_dict(topic) for name, topic in saved.items()}
        self.boot += power
        self.volume = self.volume.after_power_cut(self.group.rng) if power else self.volume.after_kill()

    async def clean(self, clock: Callable[[], int] | None = None) -> None:
        """Make a checkpoint, and let retention run at the time of ``clock``."""
        assert self.store._opened is not None
        maintenance = self.store._opened.maintenance
        with suppress(StorageError):  # on a full disk
            maintenance.flush_all()
        parts = replace(maintenance.parts, clock=clock or maintenance.parts.clock)
        await replace(maintenance, parts=parts).clean(Inline(), any_hour=True)

    def send(self, message: Message) -> None:
        """Outbox: pass the message to the link, which passes it to the network."""
        if message.to in self.links:
            self.links[message.to].send(message)

    def discard_pending(self) -> None:
        """Outbox: drop the messages that wait for the disk."""
        for link in self.links.values():
            link.drop_waiting()

    async def history(self, member: str) -> LogHistory:
        """Outbox: send a request to the leader, unless the network is cut."""
        target = self.group.members[member].member
        if target is None or frozenset((self.id, member)) in self.group.cut:
            raise RequestTimeout(f"{member} does not respond")
        asked = asyncio.ensure_future(target.history())
        for _ in range(20 * TURNS):
            if asked.done():
                return LogHistory.from_json(asked.result().to_json())
            await asyncio.sleep(0)
        asked.cancel()
        raise RequestTimeout(f"{member} does not respond in time")

    def _reset(self) -> None:
        self.wants_restart = True

    @property
    def is_busy(self) -> bool:
        """Return whether a task of the member can make progress."""
        member = self.member
        assert member is not None
        reads = (link._reading for link in self.links.values())
        tasks = (member._persisting, member._flushing, member._saving, member._learning, *reads)
        step = self.renewal.step
        renews = step is not None and not step.done()
        return member._is_scheduled or renews or any(task is not None for task in tasks)

    def dispatch(self) -> None:
        while self.member is not None and self.replica.has_more:
            self.store.dispatch()
        if self.member is not None:
            self.member.dispatched()


class Group:
    """The members, the network between them, and the acknowledged messages."""

    def __init__(self, seed: int, size: int = 3, *, sync: bool = False) -> None:
        self.rng = random.Random(seed)
        self.sync = sync
        self.cold = 0.0
        """Share of the reads for other members that have to wait for the disk."""
        self.cold_rng = random.Random(f"cold {seed}")
        """A source of its own, so that other choices of a seed do not depend on these reads."""
        self.table_rng = random.Random(f"tables {seed}")
        self.now_ms = 0
        self.renewal_ms = 0
        """Time for which members keep logs that begin too late; 0 for ever."""
        self.network: list[tuple[str, str, tuple[bytes, dict[str, str]]]] = []
        self.cut: set[frozenset[str]] = set()
        self.old: set[str] = set()
        """Members of version 0.2.0, which neither send nor read optional fields."""
        self.members: dict[str, Member] = {}
        self.members = {f"n{number}": Member(self, f"n{number}") for number in range(size)}
        self.acknowledged: list[str] = []
        self.places: dict[str, int] = {}
        """Log offsets of the acknowledged messages."""
        self.refused = 0
        self.delivered: list[Message] = []
        self._number = 0

    def start(self) -> None:
        for each in self.members.values():
            each.start()

    @property
    def alive(self) -> list[Member]:
        return [each for each in self.members.values() if each.member is not None]

    @property
    def leader(self) -> Member | None:
        """Return the member that accepts messages; of several, the one with the latest term."""
        leading = [each for each in self.alive if each.member is not None and each.member.leads]
        return max(leading, key=_term_of, default=None)

    def send(self, member: Member) -> None:
        """Append messages at a member. They are acknowledged when the member confirms them."""
        texts = [
            f"{self._number + each}".ljust(self.rng.choice([1, 90, 400]), ".") for each in range(self.rng.randint(1, 3))
        ]
        self._number += len(texts)
        try:
            appended = member.store.append([message(text) for text in texts])
        except StorageError:
            self.refused += 1
            return
        places = dict(zip(texts, appended.physical_offsets, strict=True))
        member.store.on_confirmed(appended.end_offset, partial(self._confirmed, places))

    def create_topic(self, member: Member) -> None:
        """Create a topic of either queue type at a member, perhaps again, and send messages to it at once."""
        free = [name for name in TOPICS if name not in member.topics.configs]
        if not free:
            return
        name = self.rng.choice(free)
        attributes = {QUEUE_TYPE: BATCH_CQ} if self.rng.random() < 0.7 else {}
        with suppress(StorageError):
            member.topics.put(TopicConfig(name, 1, 1, int(Perm.READ | Perm.WRITE), attributes=attributes))
            for _ in range(self.rng.randint(1, 3)):
                self._send_to(member, name)

    def _send_to(self, member: Member, topic: str) -> None:
        """Append a message to a topic, or an inner batch if the topic takes one."""
        count = self.rng.randint(1, 4)
        texts = [f"{self._number + each}" for each in range(count)]
        self._number += count
        if member.topics.configs[topic].is_batch and count > 1:
            member.store.append([batch(texts, topic=topic)])
        else:
            member.store.append([message(text, topic=topic) for text in texts])

    def delete_topic(self, member: Member) -> None:
        """Delete a topic at a member, if there is one."""
        known = [name for name in TOPICS if name in member.topics.configs]
        if known:
            name = self.rng.choice(known)
            with suppress(StorageError):
                member.topics.delete(name)
                member.tables.delete_queues(name)

    def change_tables(self, member: Member) -> None:
        """Change a request mode, a consumer group and an offset at a member. Nobody waits for the changes."""
        rng, name = self.table_rng, self.table_rng.choice(TOPICS)
        member.modes.put(name, "payers", RequestMode(rng.choice((POP, PULL)), rng.randint(0, 3)))
        member.groups.put(GroupConfig(f"g{rng.randint(0, 3)}", retry_max_times=rng.randint(0, 9)))
        member.store.consumer_offsets.commit(
            "topic", "payers", 0, rng.randint(0, queue_bounds(member.store, "topic", 0)[1])
        )

    def _confirmed(self, places: dict[str, int], error: StorageError | None) -> None:
        if error is None:
            self.acknowledged += places
            self.places |= places

    async def settle(self) -> None:
        """Run all tasks for a few iterations of the event loop."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            for each in self.alive:
                each.dispatch()
            for each in self.alive:
                if each.wants_restart:
                    each.kill()
                    each.start()
            if not any(each.is_busy for each in self.alive):
                return

    def deliver(self, index: int) -> None:
        sender, to, frame = self.network.pop(index)
        target = self.members[to].member
        if target is not None and frozenset((sender, to)) not in self.cut:
            body, header = frame
            message = decode(body, {} if {sender, to} & self.old else header)
            self.delivered.append(message)
            target.step(message)

    async def deliver_all(self) -> None:
        """Deliver messages until none is left."""
        while self.network:
            self.deliver(0)
            await self.settle()

    def cut_off(self, member: Member) -> None:
        """Cut the network between a member and all others."""
        self.cut |= {frozenset((member.id, each)) for each in self.members if each != member.id}

    def tick(self) -> None:
        self.now_ms += TICK_MS
        for each in self.alive:
            assert each.member is not None
            each.member.tick()
            each.renewal.tick()
            each.tables.tick()

    async def pass_time(self, ticks: int) -> None:
        """Let time pass, and deliver all messages."""
        for _ in range(ticks):
            self.tick()
            await self.settle()
            await self.deliver_all()

    async def make_room(self) -> None:
        """Delete the files of others that fill volumes."""
        for each in self.members.values():
            each.volume.capacity = ROOM
        for each in self.alive:
            if each.store.is_volume_full:
                await each.clean()

    async def calm(self, until: Callable[[], bool], ticks: int = 600) -> None:
        """End all faults, and let time pass until a condition is true."""
        self.cut.clear()
        await self.make_room()
        for each in self.members.values():
            if each.member is None:
                each.start()
        for _ in range(ticks):
            await self.pass_time(1)
            if self.sync is False and self.now_ms % 100 == 0:
                for each in self.alive:
                    each.store.flush()
            if until():
                return
        raise AssertionError(
            f"the condition is still false: {[each.member and each.member.status() for each in self.members.values()]}"
        )

    def is_whole(self) -> bool:
        """Return whether all members have the same log, and have dispatched all of it."""
        if self.leader is None or any(each.member is None for each in self.members.values()):
            return False
        ends = {(each.store.end_offset, each.replica.dispatched_offset) for each in self.alive}
        return len(ends) == 1 and len(set(ends.pop())) == 1

    def halted(self) -> list[str]:
        return [each.member.halted for each in self.alive if each.member is not None and each.member.halted]


def _term_of(each: Member) -> int:
    status = each.member.status() if each.member is not None else None
    return status.term if status is not None and status.role is Role.LEADER else -1


def messages_of(member: Member) -> list[str]:
    """Return the messages in the queue of a member."""
    return bodies(read_queue(member.store))
