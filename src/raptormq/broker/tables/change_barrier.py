"""The wait before an administrator's change is answered."""

from __future__ import annotations

from typing import Protocol


class ChangeBarrier(Protocol):
    """Waits until changes survive a crash and are visible to clients."""

    async def passed(self) -> None:
        """Wait until all changes so far are saved and registered with the reachable name servers.

        Raises:
            StorageError: a table could not be saved.
        """
