"""Drives the Raft library for one member. No other module calls :class:`~raptormq.raft.Raft`.

::

    links --step--> +-------------+ --ready--> member files (fsync, in a thread)
    timer --tick--> | GroupMember |            replica.write, replica.truncate
    store --------> +-------------+            links (messages; may be lost)
      on_appended                              replica.confirm --> producers, dispatch

All methods run on the event loop. A ``Ready`` that needs no fsync is executed at once. This includes every ``Ready``
with messages of producers, so consecutive ranges are not delayed. A ``Ready`` that needs an fsync is executed by a
task. The library processes input that arrives meanwhile and returns its effects in the next ``Ready``.

The write gate of the store is open only while the library accepts data. Every method updates the gate before it
returns. Appended records are proposed before any other input is passed to the library.

A member with empty queues confirms nothing until it has received the history of the topics from the leader
(:mod:`~raptormq.broker.replication.log_history`).

A member that receives damaged records writes nothing of their range, restarts in the same way, and receives the range
again (:mod:`~raptormq.broker.replication.refused_range`).

After a disk error the member discards its state in memory and restarts from the disk after :data:`RESTART_S`, like a
process that starts. A member whose disk has no room for ranges of the log then votes, and copies nothing for a time
that grows with each attempt; without room for its state it takes no part for that time (:mod:`~.room`).

A member stops permanently after a violated invariant of the library, and after a failed write, flush or truncation of
the commit log, because the page cache may contain bytes that the disk has lost. A leader first transfers leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import ERROR, INFO, WARNING
from random import Random
from typing import Any, Protocol, TypeVar

from raptormq.broker.replication.catch_up import CatchUp
from raptormq.broker.replication.copied_ranges import CopiedRanges
from raptormq.broker.replication.duplicate_ids import DuplicateIdDetector
from raptormq.broker.replication.log_history import LogHistory
from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.broker.replication.read_barrier import ReadBarrier
from raptormq.broker.replication.refused_range import RefusedRange
from raptormq.broker.replication.room import Room
from raptormq.broker.replication.waiting import Waiting, shortage_of
from raptormq.errors import NotLeader, OutOfResources, RaptorMQError, RecordError, StorageError, StoreReadOnly
from raptormq.log_throttle import LogThrottle
from raptormq.logs import get_logger
from raptormq.raft import (
    AppendData,
    AppendEntry,
    DataAppended,
    Entry,
    EpochLog,
    FlushMark,
    HardState,
    InvariantViolated,
    Message,
    Options,
    Position,
    Proposal,
    ProposalRefused,
    Raft,
    ReadIndex,
    Ready,
    Reset,
    Role,
    Saved,
    Status,
    Truncate,
)
from raptormq.storage.queue import AppendResult
from raptormq.storage.records import valid_end
from raptormq.storage.replica import Replica
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

T = TypeVar("T")

RESTART_S = 1.0
"""Time in seconds that a member waits after a disk error before it restarts."""
_SAVE_PROGRESS_MS = 2_000
_LATE_MS = 60_000
"""Age in ms from which on a received record counts as copied from the disk of the leader. It covers the difference
between the clocks of two machines; within it no disk loses a record that it still has in memory."""
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Outbox(Protocol):
    """Sends messages to other members."""

    def send(self, message: Message) -> None:
        """Send a message. The message may be lost. Must neither block nor raise."""

    def discard_pending(self) -> None:
        """Drop the messages that wait for bytes of the log, because the log is about to be truncated."""

    async def history(self, member: str) -> LogHistory:
        """Request the topic history of the leader ``member`` (:meth:`GroupMember.history`).

        Raises:
            RaptorMQError: the leader did not respond in time, or its response is not a history.
        """


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for changes of the member's role. They run on the event loop and must not raise."""

    leading: Callable[[], None] = lambda: None
    """The member leads and accepts messages."""
    following: Callable[[], None] = lambda: None
    """The member no longer leads."""
    handing_over: Callable[[], None] = lambda: None
    """The member has stopped accepting messages, because a transfer of leadership has begun."""
    log_shrunk: Callable[[], None] = lambda: None
    """Retention has deleted the beginning of the log. New members receive only the rest."""
    range_refused: Callable[[RefusedRange], None] = lambda _refused: None
    """The leader has sent damaged records."""
    damage_found: Callable[[int, int], None] = lambda _offset, _size: None
    """The log of this member may be damaged within a range, given by offset and size."""
    reset: Callable[[], None] = lambda: None
    """The leader has deleted the entries that this member needs next. The store must be emptied and opened again
    (:meth:`~raptormq.broker.replication.member_files.MemberFiles.finish_reset`)."""


class GroupMember:
    """One member of a Dledger group, with its store.

    ``in_thread`` runs blocking disk operations. ``clock`` returns monotonic milliseconds.
    """

    def __init__(
        self,
        member_id: str,
        options: Options,
        store: MessageStore,
        files: MemberFiles,
        outbox: Outbox,
        clock: Callable[[], int],
        rng: Random,
        in_thread: InThread,
    ) -> None:
        assert store.replica is not None
        self.id = member_id
        self.listeners = Listeners()
        self.catch_up = CatchUp(rng)
        self.tables_offset: Callable[[], int] = lambda: 0
        """Returns the current value of :attr:`Progress.tables_offset`."""
        self.difference: Callable[[], str] = lambda: ""
        """Returns which setting of another member makes this one drop its messages."""
        self.prepares_transfer = False
        """Whether this member is about to propose a transfer of leadership, and takes no requests any more."""
        self.can_dispatch: Callable[[], bool] = lambda: True
        """Returns whether confirmed records can be added to the queues. A leader serves after it has dispatched them.
        """
        self._options = options
        self._store = store
        self._repeated: LogThrottle[str] = LogThrottle()
        """A member whose disk fails for a time restarts repeatedly."""
        self._room_for_ranges, self._room_for_state = Room(), Room()
        self._replica: Replica = store.replica
        self.reads = ReadBarrier(rng, self._read_index, lambda: self._replica.dispatched_offset)
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._in_thread = in_thread
        self._raft: Raft | None = None
        self._hard_state = HardState()
        self._entries: tuple[Entry, ...] = ()
        self._led_term = self._proposed = self._reported_start = 0
        self._is_paused = False
        self._is_scheduled = False
        self._persisting: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._flush_begun: FlushMark | None = None
        self._progress = self._saved_progress = Progress()
        self._progress_due_ms = self._unconfirmed = 0
        self._saving: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._restart_at_ms: int | None = None
        self._duplicate_ids = DuplicateIdDetector(options.election_ms)
        self._known_leader = ""
        self.refused: RefusedRange | None = None
        """The range with damaged records for which the member waits."""
        self._waiting = Waiting(options.peers, options.election_ms, options.shortened_wait_ms)
        self._shortage = self._withdrawn = ""
        self.shortage_remedy = ""
        """Why the log of the member, which begins too late, is not replaced; empty if nothing prevents it."""
        self.conflict = ""
        """Reason why the member last refused an operation that would have lost or mixed data; empty if it refused none
        recently.
        """
        self.halted = ""
        """Reason why the member has stopped permanently; empty while it runs."""

    # --- start and stop ---

    def start(self, progress: Progress, *, clean: bool) -> None:
        """Start from the state on the disk. The store must be open and in the role of a follower.

        Args:
            progress: the saved progress.
            clean: whether the store was shut down cleanly.

        Raises:
            StoreDamaged: the files of the member cannot be read.
            ValueError: the files contradict each other.
        """
        state = self._files.load()
        self._progress = self._saved_progress = progress
        self._hard_state, self._entries = state.hard_state, state.entries
        if self.left:
            logger.error("%s", self.left)
        unknown_from = 0 if progress.copied is None else progress.commit.offset
        self._add_copied(unknown_from, self._store.end_offset)
        self._replica.group_begin = state.hard_state.begin.offset
        dispatched = self._replica.dispatched_offset
        self._replica.knows_topics = progress.history_end <= dispatched != self._store.start_offset
        self._begin(may_have_lost_data=not clean and self._files.may_have_lost_data(state))
        self._replica.on_appended = self._appended

    def _begin(self, *, may_have_lost_data: bool = False) -> None:
        store, replica = self._store, self._replica
        if self._options.sync_flush:
            store.flush()
        shape = EpochLog(store.start_offset, store.end_offset, self._entries)
        # Dispatched records were committed, and so were the entries before their last byte.
        dispatched = replica.dispatched_offset
        entries = sum(entry.offset < dispatched for entry in self._entries)
        commit = max(self._progress.commit, shape.prefix(dispatched, entries))
        saved = Saved(
            self._hard_state, self._entries, store.start_offset, store.end_offset, commit, may_have_lost_data,
            self._progress.promises,
        )  # fmt: skip
        self._raft = Raft(self.id, saved, self._options, self._rng, self._align)
        self._flush_begun = None
        self._restart_at_ms = None
        self._reported_start = store.start_offset
        self._known_leader = ""
        self.catch_up.begin()

    def _align(self, start: int, limit: int) -> int:
        """Return the end of a record (:meth:`Replica.align`), or ``start`` if the record there cannot be read."""
        try:
            return self._replica.align(start, limit)
        except StorageError as error:
            self._repeated.log(logger, ERROR, "send", "member %s cannot send its log: %s", self.id, error)
            self.listeners.damage_found(start, limit - start)
            return start

    async def stop(self) -> None:
        """Stop, and save the commit position. The store must still be open."""
        self._drop_raft("this broker is shutting down")
        if self._learning is not None:
            self._learning.cancel()
        await self._end_tasks()
        try:
            await self._in_thread(lambda: self._files.save_progress(self._progress))
        except OSError as error:
            logger.warning("cannot save the commit position: %s", error)

    async def _end_tasks(self) -> None:
        for task in (self._persisting, self._flushing, self._saving, self._learning):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)

    # --- renewal ---

    async def withdraw(self, reason: str) -> int:
        """Take no part in the group until :meth:`take_part`. Return the end of the log: the member confirms nothing
        beyond it. ``reason`` is part of the remark.
        """
        self._withdrawn = f"member {self.id} {reason}"
        self._drop_raft(self._withdrawn)
        self._restart_at_ms = None
        await self._end_tasks()
        return self._store.end_offset

    def take_part(self) -> None:
        """Take part again after :meth:`withdraw`."""
        if not self.halted:
            self._withdrawn, self._restart_at_ms = "", self._clock()

    async def renew(self) -> None:
        """Give a member that has left the group a new identity: the next start empties its store, whose disk is then a
        new one for the group.

        Raises:
            OSError: the identity could not be saved.
        """
        logger.warning("%s", self._withdrawn)
        await self._in_thread(self._files.renew)
        self.listeners.reset()

    # --- input ---

    def step(self, message: Message) -> None:
        """Process a message of another member."""
        self._step(lambda raft: raft.step(message))

    def receive(self, messages: Sequence[Message]) -> None:
        """Process messages that arrived together, and execute the resulting work immediately. An iteration of the event
        loop may take milliseconds, and the response to a client depends on three such messages.
        """
        was_scheduled, self._is_scheduled = self._is_scheduled, True
        for message in messages:
            self.step(message)
        if not was_scheduled:
            self._run()

    def process_ended(self, member: str) -> None:
        """Handle the end of another member's process."""
        self._step(lambda raft: raft.process_ended(member))

    def tick(self) -> None:
        """Advance the clock of the library. Must be called at least every heartbeat interval."""
        now = self._clock()
        if self._raft is None:
            if self._restart_at_ms is not None and now >= self._restart_at_ms and self._persisting is None:
                self._restart()
            return
        self._raft.eligible = self._may_lead()
        self._raft.accepts_ranges = not self._store.is_volume_full and now >= self._room_for_ranges.due_ms
        self._step(lambda raft: raft.tick(now))
        self._check_disk()
        self._log_changes()
        self._catch_up()
        self.reads.repeat()
        if not self._replica.knows_topics and self._learning is None and self.leader not in ("", self.id):
            self._learning = asyncio.get_running_loop().create_task(self._learn_history(self.leader))
        self._save_progress(now)

    def propose(self, proposal: Proposal) -> Position | None:
        """Pass a proposal other than :class:`~raptormq.raft.DataAppended` to the library. Return the position of its
        entry, or None if it adds no entry.

        Raises:
            ProposalRefused: the proposal is not possible in the current state.
        """
        if self._raft is None:
            raise ProposalRefused("the member does not run")
        refusals: list[ProposalRefused] = []
        found: list[Position | None] = [None]

        def ask(raft: Raft) -> None:
            try:
                found[0] = raft.propose(proposal)
            except ProposalRefused as refusal:
                refusals.append(refusal)

        self._step(ask)
        if refusals:
            raise refusals[0]
        return found[0]

    def dispatched(self) -> None:
        """Handle progress of the dispatch. A new leader accepts messages once its whole log is dispatched."""
        self.reads.dispatched()
        if self._raft is not None and self._raft.accepts_data and not self._replica.leads:
            self._update_gate()

    def status(self) -> Status | None:
        """Return the status of the member; None while it does not run."""
        return self._raft.status() if self._raft is not None else None

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The terms of the log with the offset of the first byte of each, oldest first."""
        begins: dict[int, int] = {}
        for entry in self._entries:
            begins.setdefault(entry.term, entry.offset)
        return list(begins.items())

    @property
    def leads(self) -> bool:
        """Whether the member leads. A leader may have paused accepting messages."""
        return self._replica.leads

    @property
    def hands_over(self) -> bool:
        """Whether a transfer of leadership is being prepared or is in progress. What this member then changes might not
        reach the next leader.
        """
        return self.prepares_transfer or (self._raft is not None and self._raft.is_transferring)

    @property
    def takes_messages(self) -> bool:
        """Whether the member leads and accepts messages now."""
        return self._replica.leads and not self._is_paused and not self.hands_over

    @property
    def leader(self) -> str:
        """Id of the leader, empty if none is known."""
        return self._raft.leader if self._raft is not None else ""

    @property
    def left(self) -> str:
        """What a broker without the group has done to the store of this member; empty if nothing."""
        left = self._files.left
        if left is None or self._hard_state.group:
            return ""
        return (
            f"a broker with replication mode {left.mode} has written to the store of member {self.id} since it was in"
            f" the group, from offset {left.end} of the log on, and the group does not have these messages: to go on"
            " with them, stop all members and empty the disks of the others; to go on without them, empty the disk of"
            f" {self.id}"
        )

    @property
    def diverged(self) -> str:
        """Why the store of this member does not fit its group; empty if it does."""
        diverged = self._raft.status().diverged if self._raft is not None else ""
        return "; ".join(filter(None, (diverged, self.left))) if diverged else ""

    @property
    def remark(self) -> str:
        """What an administrator should know of this member: why it does not run, or a conflict, refused records, for
        whom it waits, what its log lacks, and whether its disk is full; empty if nothing.
        """
        refused = "" if self.refused is None else self.refused.text
        if self._raft is None:
            return (
                self.halted
                or self._withdrawn
                or refused
                or self._lack_of_room
                or "its disk failed; it restarts shortly"
            )
        return "; ".join(
            filter(
                None,
                (
                    self.conflict or refused,
                    self.left,
                    self._waiting.remark,
                    self._shortage,
                    self.shortage_remedy,
                    self._lack_of_room,
                ),
            )
        )

    @property
    def lacks_room(self) -> bool:
        """Whether the disk is full, so that the member copies or accepts nothing."""
        return bool(self._lack_of_room)

    @property
    def _lack_of_room(self) -> str:
        ranges, state = self._room_for_ranges.lack, self._room_for_state.lack
        if state:
            return f"member {self.id} cannot save its state, and takes no part in the group until it can: {state}"
        if ranges:
            return f"member {self.id} cannot write its log, and copies nothing until it can: {ranges}"
        if self._store.is_volume_full:
            stopped = "copies nothing" if not self.leads else "accepts no messages"
            return f"the disk of member {self.id} is full: it {stopped} until there is room"
        return ""

    def not_leader(self) -> NotLeader:
        """Return the error for a request that only the leader handles."""
        leader = self.leader
        if self.halted:
            return NotLeader(f"member {self.id} of this broker's group has stopped: {self.halted}")
        if not leader or leader == self.id:
            why = self._waiting.cause or "retry"
            return NotLeader(f"the group of this broker has no leader now (member {self.id}): {why}")
        address = self._options.peers.get(leader, "")
        return NotLeader(f"member {leader} ({address}) leads the group of this broker, not {self.id}: send to it")

    # --- driving ---

    def _step(self, act: Callable[[Raft], None]) -> None:
        raft = self._raft
        if raft is None:
            return
        try:
            self._propose_appended(raft)
            act(raft)
            self._update_gate()
        except Exception as error:  # noqa: BLE001 - the member stops, the broker continues
            self._halt(error)
            return
        self._schedule()

    def _appended(self) -> None:
        self._schedule()

    def _propose_appended(self, raft: Raft) -> None:
        """Pass appended and deleted ranges to the library before any other input."""
        start = self._store.start_offset
        if start > self._reported_start:
            self._reported_start = start
            self.listeners.log_shrunk()
            raft.starts_at(start)
        end = self._store.end_offset
        if self._replica.leads and end > self._proposed:
            self._proposed = end
            raft.propose(DataAppended(end))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        raft = self._raft
        if raft is None or self._persisting is not None:
            return
        try:
            self._propose_appended(raft)
            while (ready := raft.ready()) is not None:
                if ready.hard_state is not None or not all(isinstance(effect, AppendData) for effect in ready.log):
                    self._persisting = asyncio.get_running_loop().create_task(self._persist(raft, ready))
                    return
                for effect in ready.log:
                    assert isinstance(effect, AppendData)
                    self._write(effect)
                self._finish(raft, ready)
        except (OSError, StorageError, RecordError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the member stops, the broker continues
            self._halt(error)
        self._flush_soon()

    async def _persist(self, raft: Raft, ready: Ready) -> None:
        try:
            if ready.hard_state is not None:
                self._hard_state = ready.hard_state
            is_saved = ready.hard_state is None
            for effect in ready.log:
                if isinstance(effect, AppendEntry):
                    self._entries = (*self._entries, effect.entry)
                    is_saved = False
                    continue
                if not is_saved:
                    await self._save_state()
                    is_saved = True
                match effect:
                    case AppendData():
                        self._write(effect)
                    case Truncate(end):
                        await self._truncate(end)
                    case Reset():
                        await self._reset(effect)
                        return
            if not is_saved:
                await self._save_state()
            if raft is self._raft:
                self._finish(raft, ready)
        except (OSError, StorageError, RecordError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the member stops, the broker continues
            self._halt(error)
        finally:
            self._persisting = None
        self._schedule()

    async def _save_state(self) -> None:
        state = self._hard_state
        await self._save(state, self._entries)
        self._replica.group_begin = state.begin.offset

    async def _save(self, state: HardState, entries: tuple[Entry, ...], reset: Position | None = None) -> None:
        sync_flush = self._options.sync_flush
        try:
            await self._in_thread(lambda: self._files.save(state, entries, sync_flush=sync_flush, reset=reset))
        except OSError as error:
            self._room_for_state.failed(error, self._clock())
            raise
        self._room_for_state.written()

    async def _truncate(self, end: Position) -> None:
        """Truncate the log, then the entries: without its entry, a byte would belong to another term."""
        self._outbox.discard_pending()
        self._replica.discard_pending()
        logger.info("the log of member %s is truncated from %d to %d", self.id, self._store.end_offset, end.offset)
        await self._in_thread(lambda: self._replica.truncate(end.offset))
        self._entries = self._entries[: end.entries]
        await self._save_state()

    async def _reset(self, effect: Reset) -> None:
        """Save a reset: the next start empties the store, and the log then begins at ``effect.end``."""
        logger.warning(
            "member %s needs a part of the log that the leader has deleted: its log, which ends at %d, is replaced by"
            " one that begins at %d",
            self.id, self._store.end_offset, effect.end.offset,
        )  # fmt: skip
        await self._save(self._hard_state, effect.entries, reset=effect.end)
        self._drop_raft("the store of this member is being reset")
        self.listeners.reset()

    def _write(self, effect: AppendData) -> None:
        size = effect.end - effect.start
        data = bytes(memoryview(effect.data)[effect.skip : effect.skip + size])
        try:
            written = self._replica.write(effect.start, data)
        except RecordError as error:
            self._refuse(effect.start, data, error)
            raise
        except (OSError, StorageError) as error:
            self._room_for_ranges.failed(error, self._clock())
            raise
        self._room_for_ranges.written()
        if self._is_late(written):
            self._add_copied(effect.start, effect.end)

    def _is_late(self, written: list[AppendResult]) -> bool:
        oldest = next((batch.store_timestamps[0] for batch in written if batch.sizes), None)
        return oldest is not None and self._store.age_ms(oldest) > _LATE_MS

    def _refuse(self, start: int, data: bytes, error: RecordError) -> None:
        """Record that the leader has sent a range with a damaged record."""
        begin, _ = valid_end(data, start, self._replica.segment_size)
        refused = RefusedRange(self.leader, begin, start + len(data), str(error))
        if not refused.is_same(self.refused):
            self.refused = refused
            logger.error("member %s: %s", self.id, refused.text)
        assert self.refused is not None
        self.listeners.range_refused(self.refused)

    def _finish(self, raft: Raft, ready: Ready) -> None:
        for message in ready.messages:
            self._outbox.send(message)
        if ready.commit is not None:
            self._progress = self._progress._replace(commit=ready.commit)
        for read in ready.reads:
            self.catch_up.on_response(read)
            self.reads.on_response(read)
        raft.advance(ready)
        # After advance: a notified waiter may append at once.
        if ready.commit is not None:
            self._unconfirmed = ready.commit.offset
            self._confirm()
        self._update_gate()

    def _confirm(self) -> None:
        if self._replica.knows_topics:
            self._replica.confirm(self._unconfirmed)

    # --- the own copy of the log ---

    @property
    def _copied(self) -> CopiedRanges:
        return CopiedRanges(self._progress.copied or ())

    def _add_copied(self, begin: int, end: int) -> None:
        start = self._store.start_offset
        copied = self._copied.with_range(begin, end).within(start, max(start, end, self._store.end_offset))
        self._progress = self._progress._replace(copied=copied.ranges)

    async def note_copied(self, begin: int, end: int) -> None:
        """Note that ``[begin, end)`` of the log is about to be overwritten with the copy of another member. The note is
        durable on return, unless the log of the broker has a warning.
        """
        self._add_copied(begin, end)
        while self._saving is not None:
            await asyncio.wait([self._saving])
        await asyncio.wait([self._start_saving()])

    def copied(self, begin: int, end: int) -> CopiedRanges:
        """Return the parts of ``[begin, end)`` that this member has copied from the disk of another one. It has
        received the others when they were new, or has written them as the leader.
        """
        own = self._hard_state.incarnation
        joined = next(
            (
                entry.offset
                for entry in self._entries
                if entry.configuration is not None
                and (member := entry.configuration.get(self.id)) is not None
                and member.incarnation == own
            ),
            end,
        )
        return self._copied.with_range(0, joined).within(begin, end)

    def log_identity(self, end: int) -> str:
        """Return a text that two members have in common only if their logs are those of one group and equal up to the
        committed offset ``end``, as far as they were written correctly.
        """
        count = sum(entry.offset < end for entry in self._entries)
        term = self._entries[count - 1].term if count else 0
        return f"{self._hard_state.group}:{term}:{count}"

    # --- flushing ---

    def _flush_soon(self) -> None:
        """Start a flush under SYNC_FLUSH, where only flushed bytes count as stored."""
        raft = self._raft
        if self._options.sync_flush and raft is not None and self._flushing is None and self._is_unflushed(raft):
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    def _is_unflushed(self, raft: Raft) -> bool:
        """Return whether bytes were written since the last flush began, possibly in place of truncated ones."""
        mark = raft.flush_mark()
        return mark != self._flush_begun and mark.offset > 0

    async def _flush(self) -> None:
        try:
            while (raft := self._raft) is not None and self._is_unflushed(raft):
                self._flush_begun = mark = raft.flush_mark()
                await self._in_thread(self._store.flush)
                if raft is self._raft:
                    self._step(lambda raft, mark=mark: raft.flushed(mark))  # type: ignore[misc]
        except (OSError, StorageError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the member stops, the broker continues
            self._halt(error)
        finally:
            self._flushing = None

    # --- history ---

    async def history(self) -> LogHistory:
        """Return the history of the topics for a member with empty queues. Waits until the history is committed.

        Raises:
            StorageError: this member does not lead, or no longer leads.
        """
        if not self._replica.leads:
            raise self.not_leader()
        found = LogHistory(self._store.end_offset, self._store.topic_history())
        await self._store.wait_confirmed(found.end)
        return found

    async def _learn_history(self, leader: str) -> None:
        try:
            found = await self._outbox.history(leader)
            if self._raft is None or self._replica.knows_topics:
                return
            self._store.adopt_history(found.topics)
            progress = self._progress._replace(history_end=found.end)
            await self._in_thread(lambda: self._files.save_progress(progress))
            self._progress = self._progress._replace(history_end=found.end)
            self._replica.knows_topics = True
            self._confirm()
        except (OSError, RaptorMQError) as error:
            logger.info(
                "member %s could not read the history of the topics from the leader; retrying: %s", self.id, error
            )
        except Exception as error:  # noqa: BLE001 - the member stops, the broker continues
            self._halt(error)
        finally:
            self._learning = None

    # --- roles ---

    def _update_gate(self) -> None:
        raft, replica = self._raft, self._replica
        if raft is None:
            return
        if not replica.knows_topics and raft.role is Role.LEADER:  # no other source is left, and the log has most of it
            replica.knows_topics = True
            self._confirm()
        if replica.leads and (raft.role is not Role.LEADER or raft.term != self._led_term):
            logger.warning("member %s no longer leads the group, in term %d", self.id, raft.term)
            replica.follow(self.not_leader())
            self._is_paused = False
            self.listeners.following()
        if replica.leads:
            if raft.accepts_data and self._is_paused:
                self._is_paused = False
                replica.resume()
            elif not raft.accepts_data and not self._is_paused:
                self._is_paused = True
                if raft.status().transferring_to:
                    self.listeners.handing_over()
                replica.pause(NotLeader("the leader of this broker's group does not accept messages now: retry"))
        elif raft.accepts_data and replica.dispatched_offset == self._store.end_offset:
            replica.lead()
            self._led_term, self._proposed = raft.term, self._store.end_offset
            self._is_paused = False
            logger.warning("member %s leads the group, in term %d", self.id, raft.term)
            self.listeners.leading()

    def _may_lead(self) -> bool:
        """Return whether the store can accept messages: the disk is not full and has not failed, and the dispatch
        works.
        """
        if not self.can_dispatch():
            return False
        try:
            self._store.check_writable()
        except NotLeader:
            return True
        except OutOfResources:
            return False
        except StorageError:
            return False
        return True

    def _log_changes(self) -> None:
        raft = self._raft
        if raft is None:
            return
        status = raft.status()
        if self.refused is not None and (self.refused.begin < self._store.end_offset or self._replica.leads):
            logger.info("member %s has received the record at offset %d", self.id, self.refused.begin)
            self.refused = None
        conflict = status.conflict or self.difference() or self._duplicate_ids.check(status, self._clock())
        if conflict and conflict != self.conflict:
            logger.error("member %s: %s", self.id, conflict)
        if self.conflict and not conflict:
            logger.info("member %s: the conflict is over", self.id)
        self.conflict = conflict
        self._waiting.update(status, self._clock())
        if (shortage := shortage_of(status)) != self._shortage:
            self._shortage = shortage
            if shortage:
                logger.warning("%s", shortage)
        if raft.leader != self._known_leader:
            self._known_leader = raft.leader
            self.catch_up.begin()
            if raft.leader != self.id:
                text, leader = "member %s follows %s, in term %d", raft.leader or "nobody"
                self._repeated.log(logger, INFO, f"{leader} {raft.term}", text, self.id, leader, raft.term)
            if not self._replica.leads:
                self._replica.pause(self.not_leader())  # the error names the new leader

    def _read_index(self, context: str) -> None:
        with suppress(ProposalRefused):  # no leader is known; the next tick retries
            self.propose(ReadIndex(context))

    def _catch_up(self) -> None:
        """Advance the check whether this member has every entry committed when it began to follow."""
        raft, catch_up = self._raft, self.catch_up
        if raft is None or catch_up.is_done or self._replica.leads:
            return
        if catch_up.due_context and raft.leader and raft.leader != self.id:
            self._read_index(catch_up.due_context)
        if (status := self.status()) is not None:
            catch_up.update(status, self._replica.dispatched_offset)

    # --- failures ---

    def _drop_raft(self, reason: str) -> None:
        self._collect_promises()
        self._raft = None
        if self._replica.leads:
            self._replica.follow(NotLeader(reason))
            self._is_paused = False
            self.listeners.following()

    def _check_disk(self) -> None:
        """Stop if a write or a flush of the log has failed, unless the member leads. A leader then accepts no messages
        and transfers leadership.
        """
        if self._raft is not None and self._raft.role is not Role.LEADER:
            self._stop_if_disk_failed()

    def _stop_if_disk_failed(self) -> bool:
        """Stop permanently if a write or a flush of the log has failed, and return whether one has."""
        try:
            self._store.check_writable()
        except StoreReadOnly as failure:
            self.halted = f"its disk failed, and the broker must be restarted: {failure}"
            logger.critical("member %s has stopped: %s", self.id, self.halted)
            self._restart_at_ms = None
            self._drop_raft(f"the disk of the leader failed: {failure}")
            return True
        except StorageError:
            return False
        return False

    def _fail(self, error: Exception) -> None:
        if self._raft is None or self._stop_if_disk_failed():
            return
        self._restart_at_ms = max(self._clock() + int(RESTART_S * 1000), self._room_for_state.due_ms)
        if self._room_for_ranges.lack or self._room_for_state.lack:
            self._repeated.log(logger, ERROR, "room", "%s", self._lack_of_room)
        elif not isinstance(error, RecordError):
            self._repeated.log(logger, ERROR, "restart", "member %s restarts from its disk: %s", self.id, error)
        self._drop_raft(f"the disk of the leader failed: {error}")

    def _restart(self) -> None:
        if self._stop_if_disk_failed():
            return
        try:
            state = self._files.load()
            self._hard_state, self._entries = state.hard_state, state.entries
            self._begin()
        except (OSError, StorageError) as error:
            text = "member %s cannot restart from its disk; retrying: %s"
            self._repeated.log(logger, ERROR, "no restart", text, self.id, error)
            self._restart_at_ms = self._clock() + int(RESTART_S * 1000)
        except Exception as error:  # noqa: BLE001 - the log and the saved state do not match: the member stops
            self._halt(error)

    def _halt(self, error: Exception) -> None:
        """Stop permanently, because the member might confirm records that are lost."""
        self.halted = f"{type(error).__name__}: {error}"
        self._restart_at_ms = None
        kind = "violated an invariant" if isinstance(error, InvariantViolated) else "failed"
        logger.critical("member %s %s and has stopped: %s", self.id, kind, error, exc_info=error)
        self._drop_raft(f"a member of the group has stopped: {error}")

    # --- saved progress ---

    def _save_progress(self, now: int) -> None:
        if now < self._progress_due_ms or self._saving is not None:
            return
        self._progress_due_ms = now + _SAVE_PROGRESS_MS
        self._collect_promises()
        self._progress = self._progress._replace(tables_offset=self.tables_offset())
        if self._progress != self._saved_progress:
            self._start_saving()

    def _start_saving(self) -> asyncio.Task[None]:
        self._saving = saving = asyncio.get_running_loop().create_task(self._write_progress(self._progress))
        return saving

    def _collect_promises(self) -> None:
        if self._raft is not None:
            self._progress = self._progress._replace(promises=self._raft.promises)

    async def _write_progress(self, progress: Progress) -> None:
        try:
            await self._store.wait_flushed(progress.commit.offset)
            await self._in_thread(lambda: self._files.save_progress(progress))
            self._saved_progress = progress
        except (OSError, StorageError) as error:
            self._repeated.log(logger, WARNING, "progress", "cannot save the commit position: %s", error)
        finally:
            self._saving = None
