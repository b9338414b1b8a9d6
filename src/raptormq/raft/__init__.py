"""Raft as a pure library: the state machine of one member, without a socket, a clock, a file or a thread.

The replicated log is the broker's commit log: its bytes are not copied into entries (:mod:`~.log` draws it). The
library knows offsets and terms; the shell around it moves bytes. Nothing of RaptorMQ is imported here.

How a shell drives a member::

    raft = Raft("n0", saved, options, Random(), align)    # saved: what is on the disk, see Saved
    loop:
        raft.step(message)          for each message that has arrived
        raft.tick(monotonic_ms)     at least every heartbeat
        raft.propose(...)           for each wish: DataAppended(end), AddMember, ReadIndex, ...
        while (ready := raft.ready()) is not None:
            1. hard_state   write it and flush it (fsync)
            2. log          do each effect in order; what concerns entries is durable before the next one
            3. messages     send them; may be lost, late or twice; attach the bytes of an Append from the commit log
            4. commit       records up to commit.offset are confirmed: answer producers, dispatch, serve
            5. reads        answer reads, once what they name is applied
            raft.advance(ready)

- Everything happens in one thread. ``step``, ``tick``, ``propose`` and ``flushed`` are also allowed between ``ready``
  and ``advance``, so that 1 and 2 may run in a thread while messages arrive; only the next ``ready`` has to wait.
- The leader writes records itself: if ``raft.accepts_data``, append them to the commit log and call
  ``propose(DataAppended(end))`` without awaiting anything in between. A record is confirmed when a later
  ``Ready.commit.offset`` is at or behind its end and the member has led the same term all the while
  (``status().term``). A leader that loses its role may have its tail truncated: whoever waits for it is told so.
- An :class:`Append` travels with the bytes ``[previous.offset, end.offset)``, in :attr:`Append.data`, whatever type
  the shell likes; they come back in :class:`AppendData`, which says how many of them to skip. Ranges begin and end at
  record boundaries, as ``align`` says. Messages that wait to be sent when a later Ready has a Truncate or a Reset are
  dropped, unless their bytes were attached before: a lost message does no harm, other bytes in it would.
- With ``Options.sync_flush`` bytes count when they are flushed: ``mark = raft.flush_mark()``, flush,
  ``raft.flushed(mark)``. Flush as long as ``flush_mark().offset`` is above what the last flush began with. Without it
  bytes count when they are written (leader: ``propose``; follower: ``advance``).
- ``Ready.commit`` is written to the disk now and then (:attr:`Saved.commit`), never waited for.
- An :class:`InvariantViolated` stops the member: it must not answer any more.

Start: on an empty disk ``HardState(incarnation=<random 63 bits>)`` is written first, and ``Options.peers`` names the
members of the first group. The group is formed once all of them have said :class:`Hello`; one of them may have data. A
disk that belongs to a group does not vote by the list. A new or wiped disk says hello until the leader takes it in; for
a known id it does so by itself, a new id needs :class:`AddMember`.

Power loss: a member whose machine may have forgotten what it had confirmed starts with ``Saved.forgetful``. Its vote
does not count until it has what was committed when it came back, unless all voters agree. So a majority that lost
power elects the best log that is left once everybody is back, and not before.
"""

from .effects import (
    AppendData,
    AppendEntry,
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
    Append,
    AppendResponse,
    Hello,
    Install,
    Message,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from .proposals import (
    AddMember,
    DataAppended,
    PromoteMember,
    Proposal,
    ProposalRefused,
    ReadIndex,
    RemoveMember,
    TransferLeadership,
)
from .raft import InvariantViolated, Options, Raft

__all__ = [
    "ZERO",
    "AddMember",
    "Append",
    "AppendData",
    "AppendEntry",
    "AppendResponse",
    "Configuration",
    "DataAppended",
    "Entry",
    "EpochLog",
    "FlushMark",
    "HardState",
    "Hello",
    "Install",
    "InvariantViolated",
    "LogEffect",
    "Member",
    "MemberStatus",
    "Message",
    "Options",
    "Position",
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
