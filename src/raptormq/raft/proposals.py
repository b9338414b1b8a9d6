"""Proposals, the arguments of :meth:`~.raft.Raft.propose`, and the error for a refused one."""

from __future__ import annotations

from typing import NamedTuple

from .log import Suffrage


class ProposalRefused(Exception):
    """Raised for a proposal that the member does not accept; the text contains the reason.

    Attributes:
        leader: id of the leader, to which the proposal may be sent instead; empty if the leader is unknown or would
            refuse it, too.
    """

    def __init__(self, reason: str, leader: str = "") -> None:
        super().__init__(reason)
        self.leader = leader


class LacksData(ProposalRefused):
    """Raised for the promotion of a learner that lacks committed data at this moment; the next attempt may succeed."""


class DataAppended(NamedTuple):
    """Report that the leader's commit log has grown to ``end``, a record boundary. Requires ``Raft.accepts_data``."""

    end: int


class AddMember(NamedTuple):
    """Add a member from which the leader has received Hello, or change the address of a member.

    A new member starts as a learner. With ``suffrage`` VOTER or JOINING the leader promotes it when it has caught up.
    """

    id: str
    suffrage: Suffrage = Suffrage.JOINING
    address: str = ""


class PromoteMember(NamedTuple):
    """Make a learner a voter. Refused while the learner lacks committed data."""

    id: str


class RemoveMember(NamedTuple):
    """Remove a member from the group. A leader that is removed steps down when its removal is committed."""

    id: str


class TransferLeadership(NamedTuple):
    """Transfer leadership to a voter. The attempt is abandoned after an election timeout."""

    to: str


class ReadIndex(NamedTuple):
    """Request a position that includes everything committed before the call.

    :attr:`~.effects.Ready.reads` contains the result. Request or response may be lost, so the caller repeats the
    request after a timeout.
    """

    context: str


Proposal = DataAppended | AddMember | PromoteMember | RemoveMember | TransferLeadership | ReadIndex
