"""Waits until this member has every record that its group had confirmed when the wait began.

The end of a queue that a member then returns was valid during the request, so reads are linearizable on every member.
The leader waits too, because another member may have replaced it without its knowledge, for example while its process
was stopped.

The position comes from the leader, which sends it after a majority has confirmed its leadership (read index, Raft
thesis, section 6.4). Waits that begin during a request share the next one, so a member has at most one request in
flight, regardless of the number of readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from raptormq.raft import ReadState

Waits = list[asyncio.Future[None]]


class ReadBarrier:
    """The waits of one member. Used from the event loop only."""

    def __init__(self, rng: Random, ask: Callable[[str], None], dispatched: Callable[[], int]) -> None:
        """Create the barrier.

        Args:
            rng: source of the contexts of requests.
            ask: sends a read-index request with this context. The request may be lost.
            dispatched: returns the log offset up to which the member has built its queues.
        """
        self._rng = rng
        self._ask = ask
        self._dispatched_offset = dispatched
        self._context = ""
        self._asked: Waits = []
        self._next: Waits = []
        self._behind: list[tuple[int, Waits]] = []

    async def passed(self, seconds: float) -> bool:
        """Wait until the member has every record that was confirmed at the call. Return False after ``seconds``, for
        example without a leader.
        """
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next.append(wait)
        if not self._context:
            self.repeat()
        try:
            async with asyncio.timeout(seconds):
                await wait
        except TimeoutError:
            return False
        return True

    def repeat(self) -> None:
        """Repeat the current request, because it or its response may be lost. If no wait depends on it any more, send
        the next request.
        """
        self.dispatched()
        self._asked = _pending(self._asked)
        if not self._asked:
            self._asked, self._next = _pending(self._next), []
            self._context = f"read:{self._rng.getrandbits(62):x}" if self._asked else ""
        if self._context:
            self._ask(self._context)

    def on_response(self, read: ReadState) -> None:
        """Handle a response of the leader. A response to an earlier request is ignored."""
        if read.context != self._context or not self._context:
            return
        self._behind.append((read.position.offset, self._asked))
        self._asked, self._context = [], ""
        self.dispatched()
        if self._next:
            asyncio.get_running_loop().call_soon(self.repeat)

    def dispatched(self) -> None:
        """Complete the waits whose records are dispatched."""
        if not self._behind:
            return
        reached = self._dispatched_offset()
        for _, waits in (each for each in self._behind if each[0] <= reached):
            for wait in _pending(waits):
                wait.set_result(None)
        self._behind = [(offset, left) for offset, waits in self._behind if (left := _pending(waits))]


def _pending(waits: Waits) -> Waits:
    return [wait for wait in waits if not wait.done()]
