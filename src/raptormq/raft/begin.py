"""Where the log of a group begins: decided by its leader, because every member deletes old bytes of its own copy.

A leader that begins to lead keeps the begin that it knows, and moves it forward when its retention has deleted bytes.
It sends the begin with every heartbeat. The other members delete only bytes before it, so all of them have the log from
the begin on. A member whose log begins later is shortened, for example because somebody has deleted files. If it led,
consumers would skip messages that the other members have. A shortened member therefore neither campaigns nor gets a
vote or the leadership until there has been no leader for :attr:`~.raft.Options.shortened_wait_ms`. If it leads then,
the log of the group begins where its log does, and the range before is lost (:class:`LostRange`).

The begin is part of the hard state, so a member that has confirmed the start of a term does not forget the begin of
that term. A later decision wins: that of the later term, and in one term the one with the larger offset. A candidate
sends the decision that it knows, so a voter that has missed it does not refuse a candidate that has deleted what the
leader allowed.
"""

from __future__ import annotations

from typing import NamedTuple


class Begin(NamedTuple):
    """A decision about the begin of the log. Decisions are totally ordered.

    Attributes:
        term: term of the leader that decided; 0 if no leader has, as before the first leader of a version that decides.
            The begin is then that of the own log.
        offset: log offset from which on all members keep the log.
    """

    term: int = 0
    offset: int = 0


class LostRange(NamedTuple):
    """The part ``[begin, end)`` of the log that the group lost when a shortened member became its leader."""

    begin: int
    end: int
