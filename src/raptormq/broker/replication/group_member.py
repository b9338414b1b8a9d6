"""Drives the Raft library for one member: the only one that touches :class:`~raptormq.raft.Raft`.

::

    links --step--> +-------------+ --ready--> member files (fsync, in a thread)
    timer --tick--> | GroupMember |            replica.write, replica.truncate
    store --------> +-------------+            links (messages; may be lost)
      on_appended                              replica.confirm --> producers, dispatch

All of it is on the event loop. A ``Ready`` that needs no fsync, which is every one with messages of producers, is
carried out at once, so that ranges follow one another without waiting. One that does is carried out by a task, and what
arrives meanwhile is taken by the library and waits for the next ``Ready``.

The gate of the store is open only while the library accepts data: it is brought in line before control leaves any
method here. What was appended is proposed before the library hears anything else.

When something cannot be done to the disk, the member forgets what it had in memory and begins again from the disk after
:data:`RESTART_S`, as a process would that starts. When the library contradicts itself, the member stops for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol, TypeVar

from raptormq.broker.replication.member_files import MemberFiles, Progress
from raptormq.errors import NotLeader, OutOfResources, RecordError, StorageError
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
    Ready,
    Reset,
    Role,
    Saved,
    Status,
    Truncate,
)
from raptormq.storage.replica import Replica
from raptormq.storage.store import MessageStore

logger = get_logger(__name__)

T = TypeVar("T")

RESTART_S = 1.0
"""How long a member waits after a failure of its disk before it begins again."""
_SAVE_PROGRESS_MS = 2_000
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Outbox(Protocol):
    """Sends messages to other members."""

    def send(self, message: Message) -> None:
        """Send, or lose, a message. Must neither wait nor raise."""

    def log_is_cut(self) -> None:
        """Drop the messages that wait for bytes of the log, which is about to be truncated."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """What others do when the member's role changes; called on the loop, must not raise."""

    leading: Callable[[], None] = lambda: None
    """It leads: messages are taken from now on."""
    following: Callable[[], None] = lambda: None
    """It leads no longer."""


class GroupMember:
    """One member of a group, with its store.

    ``in_thread`` runs what waits for the disk; ``clock`` returns monotonic milliseconds.
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
        self.tables_offset: Callable[[], int] = lambda: 0
        """Returns what :attr:`Progress.tables_offset` is now."""
        self._options = options
        self._store = store
        self._replica: Replica = store.replica
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._in_thread = in_thread
        self._raft: Raft | None = None
        self._hard_state = HardState()
        self._entries: tuple[Entry, ...] = ()
        self._led_term = 0
        self._proposed = 0
        self._is_paused = False
        self._is_scheduled = False
        self._carrying: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._flush_begun: FlushMark | None = None
        self._progress = self._saved_progress = Progress()
        self._progress_due_ms = 0
        self._saving: asyncio.Task[None] | None = None
        self._restart_at_ms: int | None = None
        self._told_conflict = ""
        self._told_leader = ""
        self.halted = ""
        """Why the member has stopped for good; empty while it runs."""

    # --- life ---

    def start(self, progress: Progress, *, clean: bool) -> None:
        """Begin from what is on the disk; the store is open and follows. ``clean`` tells that it was closed well.

        Raises:
            StoreDamaged: the files of the member cannot be read.
            ValueError: what they say does not fit together.
        """
        state = self._files.load()
        self._progress = self._saved_progress = progress
        self._hard_state, self._entries = state.hard_state, state.entries
        sync = self._options.sync_flush
        self._begin(forgetful=not sync and not clean and self._files.lost_power(state))
        self._replica.on_appended = self._appended

    def _begin(self, *, forgetful: bool = False) -> None:
        replica = self._replica
        if self._options.sync_flush:
            self._store.flush()
        shape = EpochLog(replica.start_offset, replica.end_offset, self._entries)
        # Whatever is dispatched was confirmed, the entries before its last byte included.
        dispatched = replica.dispatched_offset
        entries = sum(entry.offset < dispatched for entry in self._entries)
        commit = max(self._progress.commit, shape.prefix(dispatched, entries))
        saved = Saved(self._hard_state, self._entries, replica.start_offset, replica.end_offset, commit, forgetful)
        self._raft = Raft(self.id, saved, self._options, self._rng, replica.align)
        self._flush_begun = None
        self._restart_at_ms = None

    async def stop(self) -> None:
        """End. What was committed is saved; the store is still open."""
        self._drop_raft("this broker is going down")
        for task in (self._carrying, self._flushing, self._saving):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)
        try:
            await self._in_thread(lambda: self._files.save_progress(self._progress))
        except OSError as error:
            logger.warning("cannot save what the group has committed: %s", error)

    # --- what happens ---

    def step(self, message: Message) -> None:
        """Take a message of another member."""
        self._do(lambda raft: raft.step(message))

    def tick(self) -> None:
        """Let time pass; at least every heartbeat interval."""
        now = self._clock()
        if self._raft is None:
            if self._restart_at_ms is not None and now >= self._restart_at_ms and self._carrying is None:
                self._restart()
            return
        self._raft.starts_at(self._replica.start_offset)
        self._raft.eligible = self._may_lead()
        self._do(lambda raft: raft.tick(now))
        self._tell_changes()
        self._save_progress(now)

    def propose(self, proposal: Proposal) -> Position | None:
        """Ask for something that is not the append of data.

        Raises:
            ProposalRefused: it cannot be done here and now.
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

        self._do(ask)
        if refusals:
            raise refusals[0]
        return found[0]

    def dispatched(self) -> None:
        """More of the log is in the queues: the member may be able to lead now."""
        if self._raft is not None and self._raft.accepts_data and not self._replica.leads:
            self._bring_gate_in_line()

    def status(self) -> Status | None:
        """Return the member's view of the group; None while it does not run."""
        return self._raft.status() if self._raft is not None else None

    @property
    def leads(self) -> bool:
        """Whether the member takes messages of clients, or will again in a moment."""
        return self._replica.leads

    @property
    def leader(self) -> str:
        """Id of the leader, empty if none is known."""
        return self._raft.leader if self._raft is not None else ""

    def not_leader(self) -> NotLeader:
        """Return the error for what only a leader does."""
        leader = self.leader
        if self.halted:
            return NotLeader(f"member {self.id} of this broker's group has stopped: {self.halted}")
        if not leader or leader == self.id:
            return NotLeader(f"the group of this broker has no leader at the moment; member {self.id} is asked")
        address = self._options.peers.get(leader, "")
        return NotLeader(f"member {leader} ({address}) leads the group of this broker, not {self.id}: send to it")

    # --- driving ---

    def _do(self, act: Callable[[Raft], None]) -> None:
        raft = self._raft
        if raft is None:
            return
        try:
            self._propose_appended(raft)
            act(raft)
            self._bring_gate_in_line()
        except Exception as error:  # noqa: BLE001 - the member stops, and the broker goes on
            self._halt(error)
            return
        self._schedule()

    def _appended(self) -> None:
        self._schedule()

    def _propose_appended(self, raft: Raft) -> None:
        """Tell the library what was appended since; before it hears anything else."""
        end = self._replica.end_offset
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
        if raft is None or self._carrying is not None:
            return
        try:
            self._propose_appended(raft)
            while (ready := raft.ready()) is not None:
                if ready.hard_state is not None or not all(isinstance(effect, AppendData) for effect in ready.log):
                    self._carrying = asyncio.get_running_loop().create_task(self._carry_out_durably(raft, ready))
                    return
                for effect in ready.log:
                    assert isinstance(effect, AppendData)
                    self._write(effect)
                self._finish(raft, ready)
        except (OSError, StorageError, RecordError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the member stops, and the broker goes on
            self._halt(error)
        self._flush_soon()

    async def _carry_out_durably(self, raft: Raft, ready: Ready) -> None:
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
                    case Reset(end):
                        raise StorageError(
                            f"the leader no longer has what member {self.id} lacks: its log starts at {end.offset}, and"
                            f" this one ends at {self._replica.end_offset}; copy the store of another member that is"
                            " stopped, without config/dledger*"
                        )
            if not is_saved:
                await self._save_state()
            if raft is self._raft:
                self._finish(raft, ready)
        except (OSError, StorageError, RecordError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the member stops, and the broker goes on
            self._halt(error)
        finally:
            self._carrying = None
        self._schedule()

    async def _save_state(self) -> None:
        state, entries = self._hard_state, self._entries
        await self._in_thread(lambda: self._files.save(state, entries))

    async def _truncate(self, end: Position) -> None:
        """Cut the bytes first: entries that are missing would give bytes another term."""
        self._outbox.log_is_cut()
        self._replica.discard_pending()
        logger.info("the log of member %s is cut from %d to %d", self.id, self._replica.end_offset, end.offset)
        await self._in_thread(lambda: self._replica.truncate(end.offset))
        self._entries = self._entries[: end.entries]
        await self._save_state()

    def _write(self, effect: AppendData) -> None:
        size = effect.end - effect.start
        self._replica.write(effect.start, bytes(memoryview(effect.data)[effect.skip : effect.skip + size]))

    def _finish(self, raft: Raft, ready: Ready) -> None:
        for message in ready.messages:
            self._outbox.send(message)
        if ready.commit is not None:
            self._progress = self._progress._replace(commit=ready.commit)
        raft.advance(ready)
        # Only now: whoever is told may append at once.
        if ready.commit is not None:
            self._replica.confirm(ready.commit.offset)
        self._bring_gate_in_line()

    # --- flushing ---

    def _flush_soon(self) -> None:
        """Under SYNC_FLUSH bytes count when they are flushed."""
        raft = self._raft
        if self._options.sync_flush and raft is not None and self._flushing is None and self._is_unflushed(raft):
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    def _is_unflushed(self, raft: Raft) -> bool:
        """Return whether something was written since the last flush began, perhaps in the place of what was cut."""
        mark = raft.flush_mark()
        return mark != self._flush_begun and mark.offset > 0

    async def _flush(self) -> None:
        try:
            while (raft := self._raft) is not None and self._is_unflushed(raft):
                self._flush_begun = mark = raft.flush_mark()
                await self._in_thread(self._store.flush)
                if raft is self._raft:
                    self._do(lambda raft, mark=mark: raft.flushed(mark))  # type: ignore[misc]
        except (OSError, StorageError) as error:
            self._fail(error)
        finally:
            self._flushing = None

    # --- roles ---

    def _bring_gate_in_line(self) -> None:
        raft, replica = self._raft, self._replica
        if raft is None:
            return
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
                replica.pause(NotLeader("the leader of this broker's group takes no messages for a moment; try again"))
        elif raft.accepts_data and replica.dispatched_offset == replica.end_offset:
            replica.lead()
            self._led_term, self._proposed = raft.term, replica.end_offset
            self._is_paused = False
            logger.warning("member %s leads the group, in term %d", self.id, raft.term)
            self.listeners.leading()

    def _may_lead(self) -> bool:
        """Return whether the disk of this member takes messages, as far as is known."""
        try:
            self._store.check_writable()
        except NotLeader:
            return True
        except OutOfResources:
            return False
        except StorageError:
            return False
        return True

    def _tell_changes(self) -> None:
        raft = self._raft
        if raft is None:
            return
        status = raft.status()
        if status.conflict and status.conflict != self._told_conflict:
            logger.error("member %s: %s", self.id, status.conflict)
        self._told_conflict = status.conflict
        if raft.leader != self._told_leader:
            self._told_leader = raft.leader
            if raft.leader != self.id:
                logger.info("member %s follows %s, in term %d", self.id, raft.leader or "nobody", raft.term)
            if not self._replica.leads:
                self._replica.pause(self.not_leader())  # the refusal names the leader

    # --- when something fails ---

    def _drop_raft(self, reason: str) -> None:
        self._raft = None
        if self._replica.leads:
            self._replica.follow(NotLeader(reason))
            self._is_paused = False
            self.listeners.following()

    def _fail(self, error: Exception) -> None:
        if self._raft is not None:
            logger.error("member %s begins again from its disk: %s", self.id, error)
            self._drop_raft(f"a copy of the log failed: {error}")
            self._restart_at_ms = self._clock() + int(RESTART_S * 1000)

    def _restart(self) -> None:
        try:
            state = self._files.load()
            self._hard_state, self._entries = state.hard_state, state.entries
            self._begin()
        except (OSError, StorageError) as error:
            logger.error("member %s cannot begin again: %s", self.id, error)
            self._restart_at_ms = self._clock() + int(RESTART_S * 1000)

    def _halt(self, error: Exception) -> None:
        """Stop for good: the member might confirm what is not there."""
        self.halted = f"{type(error).__name__}: {error}"
        kind = "contradicts itself" if isinstance(error, InvariantViolated) else "failed"
        logger.critical("member %s %s and has stopped: %s", self.id, kind, error, exc_info=error)
        self._drop_raft(f"a member of the group has stopped: {error}")

    # --- what was committed ---

    def _save_progress(self, now: int) -> None:
        if now < self._progress_due_ms or self._saving is not None:
            return
        self._progress_due_ms = now + _SAVE_PROGRESS_MS
        self._progress = self._progress._replace(tables_offset=self.tables_offset())
        if self._progress != self._saved_progress:
            self._saving = asyncio.get_running_loop().create_task(self._write_progress(self._progress))

    async def _write_progress(self, progress: Progress) -> None:
        try:
            await self._store.wait_flushed(progress.commit.offset)
            await self._in_thread(lambda: self._files.save_progress(progress))
            self._saved_progress = progress
        except (OSError, StorageError) as error:
            logger.warning("cannot save what the group has committed: %s", error)
        finally:
            self._saving = None
