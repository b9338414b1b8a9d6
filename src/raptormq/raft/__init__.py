"""Raft as a pure library: the state machine of one member, without a socket, a clock, a file or a thread.

The replicated log is the broker's commit log: its bytes are not copied into entries (:mod:`~.log` shows the layout).
The library computes with offsets and terms. The shell, the code that drives it, reads, writes and sends the bytes. The
package imports nothing else of RaptorMQ.

How a shell drives a member::

    raft = Raft("n0", saved, options, Random(), align)    # saved: the state on the disk, see Saved
    loop:
        raft.step(message)          for each message that has arrived
        raft.tick(monotonic_ms)     at least every heartbeat
        raft.propose(...)           DataAppended(end), AddMember, ReadIndex, ...
        while (ready := raft.ready()) is not None:
            1. hard_state   write it and flush it (fsync)
            2. log          apply each effect in order; an effect on entries is durable before the next effect
            3. messages     send them; attach the bytes of an Append from the commit log; messages may be lost,
                            delayed or duplicated
            4. commit       records up to commit.offset are confirmed: answer producers and dispatch the records
            5. reads        answer each read once its position is applied
            raft.advance(ready)

- All calls are made in one thread. ``step``, ``tick``, ``propose`` and ``flushed`` are also allowed between ``ready``
  and ``advance``, so steps 1 and 2 may run in another thread while messages arrive. Only the next ``ready`` has to
  wait for ``advance``.
- The leader's shell writes records without an effect: if ``raft.accepts_data``, it appends them to the commit log and
  calls ``propose(DataAppended(end))`` without an await in between. A record is confirmed when a later
  ``Ready.commit.offset`` has reached its end and the member has been leader of the same term since the append
  (``status().term``). The tail of a leader that steps down may be truncated, so pending confirmations have to fail.
- The shell sends an :class:`Append` with the bytes ``[previous.offset, end.offset)`` in :attr:`Append.data`, an object
  of any type. The receiver gets the object in :class:`AppendData`, with the number of bytes to skip. Ranges begin and
  end at record boundaries, which ``align`` finds. If a later Ready has a Truncate or a Reset, unsent messages whose
  bytes are not attached yet must be dropped: the bytes at these offsets may have changed.
- With ``Options.sync_flush`` bytes count as stored when they are flushed: ``mark = raft.flush_mark()``, flush,
  ``raft.flushed(mark)``. Repeat while ``flush_mark().offset`` is larger than at the start of the last flush. Without
  ``sync_flush`` bytes count as stored when they are written (leader: ``propose``; follower: ``advance``).
- The shell writes ``Ready.commit`` to the disk from time to time (:attr:`Saved.commit`). No step waits for that write.
- After :class:`InvariantViolated` the member must stop and send no further messages.

Start: on an empty disk the shell first writes ``HardState(incarnation=<random 63 bits>)``. ``Options.peers`` names the
members of the first group. The group is formed once each of them has sent :class:`Hello`; at most one of them may have
data. A disk that belongs to a group ignores ``Options.peers``. A new or wiped disk sends Hello until the leader adds
it. The leader adds a disk with a known id automatically; a new id needs :class:`AddMember`.

Power loss: if the machine may have lost records that the member had confirmed, the member starts with
``Saved.may_have_lost_data``. Until it has caught up with the commit position at its restart, its vote counts only if
all voters grant theirs. Therefore a group whose majority lost power elects a leader only when all voters are back, and
then the one with the most complete log.

Older copies: members remember what the others have stored durably (:attr:`Raft.promises`), and the shell saves this
from time to time. A disk that lacks part of it at a start was replaced by an older copy of itself (:mod:`~.promises`).
Its member is outdated (:attr:`HardState.outdated`) and takes no part in its group.

Retention: the shell of a follower deletes only bytes before :attr:`HardState.begin`, when that is durable.
:mod:`~.begin` has the reason. The shell of a leader deletes what it likes and calls
:meth:`Raft.starts_at`.
"""

from .begin import Begin, LostRange
from .effects import (
    AppendData,
    AppendEntry,
    Contact,
    FlushMark,
    HardState,
    LogEffect,
    MemberStatus,
    ReadState,
    Ready,
    Reset,
    Role,
    Saved,
    Status,
    Truncate,
)
from .log import ZERO, Configuration, Entry, EpochLog, Member, Position, Suffrage
from .messages import (
    OPTIONAL,
    Append,
    AppendResponse,
    Hello,
    HelloResponse,
    Install,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .promises import MemberPromise, Promise
from .proposals import (
    AddMember,
    DataAppended,
    LacksData,
    PromoteMember,
    Proposal,
    ProposalRefused,
    ReadIndex,
    RemoveMember,
    TransferLeadership,
)
from .raft import InvariantViolated, Options, Raft

__all__ = [
    "OPTIONAL",
    "ZERO",
    "AddMember",
    "Append",
    "AppendData",
    "AppendEntry",
    "AppendResponse",
    "Begin",
    "Configuration",
    "Contact",
    "DataAppended",
    "Entry",
    "EpochLog",
    "FlushMark",
    "HardState",
    "Hello",
    "HelloResponse",
    "Install",
    "InvariantViolated",
    "LacksData",
    "LogEffect",
    "LostRange",
    "Member",
    "MemberPromise",
    "MemberStatus",
    "Message",
    "Options",
    "Position",
    "Promise",
    "PromoteMember",
    "Proposal",
    "ProposalRefused",
    "Raft",
    "ReadIndex",
    "ReadIndexRequest",
    "ReadIndexResponse",
    "ReadState",
    "Ready",
    "RemoveMember",
    "Reset",
    "Role",
    "Saved",
    "Status",
    "Suffrage",
    "TimeoutNow",
    "TransferLeadership",
    "Truncate",
    "VoteRequest",
    "VoteResponse",
]
