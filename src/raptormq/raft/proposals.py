"""What a shell may ask of a member: the argument of :meth:`~.raft.Raft.propose`, and the refusal."""

from __future__ import annotations

from typing import NamedTuple

from .log import Suffrage


class ProposalRefused(Exception):
    """A proposal cannot be accepted here and now; the text says why and what to do.

    Attributes:
        leader: id of the member to ask instead; empty when that would not help or no leader is known.
    """

    def __init__(self, reason: str, leader: str = "") -> None:
        super().__init__(reason)
        self.leader = leader


class DataAppended(NamedTuple):
    """The commit log of the leader ends at ``end`` now, a record's end. Only while ``Raft.accepts_data``."""

    end: int


class AddMember(NamedTuple):
    """Add a member that has said hello, or give a known one another address or incarnation.

    It starts as a learner. With ``suffrage`` VOTER or JOINING the leader promotes it as soon as it has caught up.
    """

    id: str
    suffrage: Suffrage = Suffrage.JOINING
    address: str = ""


class PromoteMember(NamedTuple):
    """Make a learner a voter. Refused while it lacks committed data."""

    id: str


class RemoveMember(NamedTuple):
    """Take a member out of the group. A leader that is removed steps down when that is committed."""

    id: str


class TransferLeadership(NamedTuple):
    """Move leadership to a voter; given up after an election time-out."""

    to: str


class ReadIndex(NamedTuple):
    """Ask for a position that holds everything committed up to now; the answer is in :attr:`~.effects.Ready.reads`.

    The answer may be lost; ask again after some time.
    """

    context: str


Proposal = DataAppended | AddMember | PromoteMember | RemoveMember | TransferLeadership | ReadIndex
