"""Whether a member has every entry that was committed when it began to follow its leader.

The member requests a read index from the leader (Raft thesis, section 6.4). The commit position in a heartbeat is not
sufficient, because a leader that was replaced and has not detected it also sends heartbeats. The member repeats the
request when the leader changes or was silent.
"""

from __future__ import annotations

from random import Random

from raptormq.raft import Position, ReadState, Status, Suffrage


class CatchUp:
    """Tracks one read-index request of one member."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._context = ""
        self.barrier: Position | None = None
        """The read index; None until the leader has responded."""
        self.is_done = False

    def begin(self) -> None:
        """Begin a new request, because the member has started or its leader has changed."""
        self._context = f"caught-up:{self._rng.getrandbits(62):x}"
        self.barrier = None
        self.is_done = False

    @property
    def due_context(self) -> str:
        """Context of the read-index request that must be sent; empty if none is due."""
        return "" if self.is_done or self.barrier is not None else self._context

    def on_response(self, read: ReadState) -> None:
        """Handle a response of the leader. A response to an earlier request is ignored."""
        if read.context == self._context:
            self.barrier = read.position

    def update(self, status: Status, dispatched: int) -> None:
        """Set :attr:`is_done` if the member has reached the read index.

        Args:
            status: status of the member.
            dispatched: log offset up to which the member has built its queues.
        """
        own = status.configuration.get(status.id)
        if (
            self.barrier is not None
            and status.applied >= self.barrier
            and dispatched >= self.barrier.offset
            and own is not None
            and own.incarnation == status.incarnation
            and own.suffrage is not Suffrage.JOINING
        ):
            self.is_done = True
