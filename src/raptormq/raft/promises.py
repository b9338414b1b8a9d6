"""Detects a disk that was replaced by an older copy of itself, for example by a restored snapshot.

Such a disk lacks records, terms and votes that its member has confirmed, and nothing on the disk shows this. Members
therefore remember what each disk has promised. The leader learns promises from responses, the other members from the
leader's heartbeats. A process that starts on a used disk tells the other members what it has found, and they respond
with what they remember.

A copy is not detected while all members that know of its missing data are unreachable. These are the members that have
received a heartbeat since the copy was made, or only the leader if it failed before its next heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .log import ZERO, Position


class Promise(NamedTuple):
    """The least that the disk of a member must contain. Promises of one disk are totally ordered.

    Attributes:
        boot: the boot number of the process.
        term: the disk records this term or a later one, so the member cannot vote twice in a term up to this one.
        last_term, end: last term and end of the log that the member had stored in ``term``. A member truncates data
            that it has confirmed to a leader only in a later term.
    """

    boot: int = 0
    term: int = 0
    last_term: int = 0
    end: Position = ZERO

    def is_broken_by(self, start: Promise, *, lost_power: bool) -> bool:
        """Return whether a process has found less on its disk than this promise, so that the disk is an older copy.

        Args:
            start: what was on the disk when the process started.
            lost_power: whether the member knows that it may have lost bytes that it had confirmed. Terms and votes are
                durable nonetheless.
        """
        if start.boot <= self.boot:
            return start.boot < self.boot
        return start.term < self.term or (not lost_power and start[1:] < self[1:])

    def renewed(self, start: Promise, *, lost_power: bool) -> Promise:
        """Return the promise of the disk after a new process has started on it without breaking this promise.

        The promise does not include the log that the process has found. The leader may lack the end of that log and
        truncate it in the same term.
        """
        own = Promise(start.boot, start.term)
        return own if lost_power else max(own, self._replace(boot=start.boot))


NOTHING = Promise()


class MemberPromise(NamedTuple):
    """The promise of the disk ``incarnation`` of a member."""

    id: str
    incarnation: int
    promise: Promise


@dataclass(slots=True)
class StartCheck:
    """Decides when enough members have confirmed that the disk of this process has all that it has promised.

    A member may vote when all other voters have responded or, after the first election timeout, when a majority has. It
    may follow a leader that has responded when a majority has responded or the first election timeout is over. A member
    that did not wait could store a larger term. The next process on its disk would then report that term, and no member
    could detect the loss.

    Attributes:
        start: what was on the disk when the process started.
        lost_power: whether the member knew at its start that it may have lost bytes.
        is_new: whether the disk was never used before. A new disk has promised nothing.
        responded: ids of the members that have responded.
        is_done: whether the member may vote. Once true, it stays true.
    """

    start: Promise
    lost_power: bool
    is_new: bool
    responded: set[str] = field(default_factory=set)
    is_done: bool = False

    def __post_init__(self) -> None:
        self.is_done = self.is_new

    def needs(self, others: set[str]) -> bool:
        """Return whether the response of another voter is missing. That voter may know of lost data."""
        return not self.is_new and not others <= self.responded

    def update(self, others: set[str], *, is_late: bool) -> None:
        """Set :attr:`is_done` if enough members have responded. ``others`` are the ids of the other voters. ``is_late``
        is true after the first election timeout of the process.
        """
        self.is_done = self.is_done or others <= self.responded or (is_late and self._have_enough(others))

    def lets_follow(self, leader: str, others: set[str], *, is_late: bool) -> bool:
        """Return whether the member may follow ``leader``."""
        return self.is_done or (leader in self.responded and (is_late or self._have_enough(others)))

    def _have_enough(self, others: set[str]) -> bool:
        """Return whether the members that have responded form a majority with this member. Any member counts, because
        all members receive heartbeats, and the voters may have changed since the last entry in this member's log.
        """
        return len(self.responded) >= (len(others) + 1) // 2
