"""Finds a disk that was replaced by an older copy of itself, for example by a restored snapshot.

Such a disk has forgotten records that it has confirmed, and terms and votes, and does not know it. Members therefore
remember what each disk has promised: the leader from the responses, the others from its heartbeats. A process that
starts on a disk that was used before tells the others what it has found, and they respond with what they remember.

A response is not possible from who is away. The copy is not found if all who know more than it has are away: those that
have heard from the leader since the copy was made, or only the leader itself, within the heartbeat in which it failed.
No member that is left can tell the copy from the disk then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .log import ZERO, Position


class Promise(NamedTuple):
    """What the disk of a member has at least. Promises of one disk are totally ordered.

    Attributes:
        boot: the number of the process.
        term: a term that the member has seen. It has forgotten no vote up to it.
        last_term, end: the log that the member had stored while it was in ``term``, as its end and last term. A member
            truncates what it has confirmed to a leader only in a later term.
    """

    boot: int = 0
    term: int = 0
    last_term: int = 0
    end: Position = ZERO

    def is_broken_by(self, start: Promise, *, lost_power: bool) -> bool:
        """Return whether a disk that has promised this cannot be the one that a process has found at its start.

        Args:
            start: what was on the disk when the process started.
            lost_power: whether the member knows that it may have lost bytes that it had confirmed. Terms and votes are
                durable nonetheless.
        """
        if start.boot <= self.boot:
            return start.boot < self.boot
        return start.term < self.term or (not lost_power and start[1:] < self[1:])

    def renewed(self, start: Promise, *, lost_power: bool) -> Promise:
        """Return what the disk has promised once a process has started that does not break this promise.

        The log that the process found is no promise: the leader may lack its end, and truncates it in the same term.
        """
        own = Promise(start.boot, start.term)
        return own if lost_power else max(own, self._replace(boot=start.boot))


NOTHING = Promise()


class MemberPromise(NamedTuple):
    """What a member has promised with the disk ``incarnation``."""

    id: str
    incarnation: int
    promise: Promise


@dataclass(slots=True)
class StartCheck:
    """Whether enough members have said that the disk of this process has what it has promised.

    A member votes when all other voters have responded, or enough for a majority within the first election timeout. It
    follows a leader that has responded when enough have. The next process of a member that did not wait might find a
    larger term on its disk, and nobody could tell any more what was lost before.

    Attributes:
        start: what was on the disk when the process started.
        lost_power: whether the member may have lost bytes, as it knew at the start.
        is_new: whether the disk was never used before. It has promised nothing then.
        responded: the members that have responded.
        is_done: whether the member may vote. It stays so.
    """

    start: Promise
    lost_power: bool
    is_new: bool
    responded: set[str] = field(default_factory=set)
    is_done: bool = False

    def __post_init__(self) -> None:
        self.is_done = self.is_new

    def needs(self, others: set[str]) -> bool:
        """Return whether one of the other voters has not responded yet, which may know of something lost."""
        return not self.is_new and not others <= self.responded

    def update(self, others: set[str], *, is_late: bool) -> None:
        """Set :attr:`is_done`, if it is the case. ``others`` are the other voters; ``is_late`` says that the first
        election timeout is over.
        """
        self.is_done = self.is_done or others <= self.responded or (is_late and self._have_enough(others))

    def lets_follow(self, leader: str, others: set[str], *, is_late: bool) -> bool:
        """Return whether the member may follow ``leader``."""
        return self.is_done or (leader in self.responded and (is_late or self._have_enough(others)))

    def _have_enough(self, others: set[str]) -> bool:
        """Return whether a majority has responded, with this member. Who is a voter may have changed since the last
        entry in its log, so any member counts: all of them hear from the leader.
        """
        return len(self.responded) >= (len(others) + 1) // 2
