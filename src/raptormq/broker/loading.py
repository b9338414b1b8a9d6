"""State that a service loads from the log before requests may use it."""

from __future__ import annotations

import asyncio

from raptormq.errors import NotLeader


class Loading:
    """Progress of the loading. Requests wait for its end with :meth:`wait`."""

    def __init__(self) -> None:
        self._is_done = False
        self._refusal = ""
        self._changed = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether the state is loaded."""
        return self._is_done

    def begin(self) -> None:
        """Record that the state is being loaded, so that requests wait."""
        self._is_done, self._refusal = False, ""
        self._changed.clear()

    def finish(self) -> None:
        """Record that the state is loaded."""
        self._is_done, self._refusal = True, ""
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """Record that this member does not lead. Waiting requests fail until :meth:`begin`."""
        self._is_done, self._refusal = False, reason
        self._changed.set()

    async def wait(self) -> None:
        """Wait until the state is loaded.

        Raises:
            NotLeader: this member no longer leads its Dledger group.
        """
        while not self._is_done:
            if self._refusal:
                raise NotLeader(self._refusal)
            await self._changed.wait()
