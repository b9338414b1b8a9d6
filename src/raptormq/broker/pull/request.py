"""A pull request, and the reason for an attempt to serve it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.headers.pull import PullFlag, PullMessageRequestHeader
from raptormq.storage.read import ReadOptions
from raptormq.transport.connection import Connection

_SUSPEND = int(PullFlag.SUSPEND)


class Attempt(Enum):
    """Reason for an attempt to serve a pull. The reason determines whether the pull may wait."""

    FIRST = "first"
    """The request has arrived. The pull may be held or coalesced with others."""
    ARRIVAL = "arrival"
    """A message has arrived for a held pull. The pull may be held again, because its filter may reject the message."""
    LAST = "last"
    """The pull must be answered: it has expired or its topic has changed."""
    CAUGHT_UP = "caught up"
    """The pull must be answered. This member of a Dledger group has everything that was confirmed when the pull
    arrived, so the response may contain the end of a queue.
    """


@dataclass(slots=True)
class PullRequest:
    """A validated pull. Its owner is either the service or the table of held pulls."""

    connection: Connection
    command: RemotingCommand
    header: PullMessageRequestHeader
    offset: int
    """Queue offset of the next read. It may be higher than in the header, if the filter has rejected messages."""
    options: ReadOptions
    topic_id: str | None
    """Topic id that the client sent or queried. A pull is refused if the topic no longer has it."""
    deadline_ms: int = 0
    """End of the hold (monotonic clock), 0 before the first hold."""

    def may_suspend(self) -> bool:
        """Return whether the client allows the broker to hold the pull."""
        return bool(self.header.sys_flag & _SUSPEND)
