"""Waits for the completion of an administrator's change before the response."""

from __future__ import annotations

from typing import Protocol


class ChangeBarrier(Protocol):
    """Waits until changes are durable and visible to clients."""

    async def passed(self) -> None:
        """Wait until all previous changes are saved and registered with the reachable name servers.

        Raises:
            StorageError: a table could not be saved.
        """
