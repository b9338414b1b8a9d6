"""A pull on its way through the broker, and why it is served."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from raptormq.protocol.command import RemotingCommand
from raptormq.protocol.headers.pull import PullFlag, PullMessageRequestHeader
from raptormq.storage.read import ReadOptions
from raptormq.transport.connection import Connection

_SUSPEND = int(PullFlag.SUSPEND)


class Attempt(Enum):
    """Why a pull is served, which decides how long it may still wait."""

    FIRST = "first"
    """The request has just arrived. It may be held, and it may be coalesced with others."""
    ARRIVAL = "arrival"
    """The pull was held and its queue has grown. It may be held again, because its filter may reject the message."""
    LAST = "last"
    """The pull is answered with whatever there is: its time is up, its topic has changed, or the broker stops."""


@dataclass(slots=True)
class PullRequest:
    """A pull that has passed its checks. It has one owner at any time: the service, or the table of held pulls."""

    connection: Connection
    command: RemotingCommand
    header: PullMessageRequestHeader
    offset: int
    """Queue offset of the next read. It moves past the header's when the filter rejects messages during a hold."""
    options: ReadOptions
    topic_id: str | None
    """Id of the topic that the answer must be about, when the client named it or asked for it."""
    deadline_ms: int = 0
    """End of the hold on the steady clock; 0 before the pull was held for the first time."""

    def may_suspend(self) -> bool:
        """Return whether the client allows the broker to hold the pull."""
        return bool(self.header.sys_flag & _SUSPEND)
