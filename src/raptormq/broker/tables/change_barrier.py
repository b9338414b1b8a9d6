"""What an administrator's change has to wait for before it is answered: the file, and the name servers."""

from __future__ import annotations

from typing import Protocol


class ChangeBarrier(Protocol):
    """A change is settled when it would survive a crash and clients can see it."""

    async def passed(self) -> None:
        """Wait until the changes made so far are saved and the reachable name servers know them.

        Raises:
            StorageError: they could not be saved.
        """
