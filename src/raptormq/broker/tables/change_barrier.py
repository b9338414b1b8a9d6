"""Waits for the completion of an administrator's change before the response."""

from __future__ import annotations

from typing import Protocol


class ChangeBarrier(Protocol):
    """Waits until changes are durable and visible to clients."""

    def delete_queues(self, topic: str) -> None:
        """Delete the queues of a topic that is not in the topic table. A member of a group deletes them when a majority
        has the change.
        """

    async def passed(self) -> None:
        """Wait until all previous changes are saved, confirmed by the Dledger group and registered with the reachable
        name servers.

        Raises:
            StorageError: a table could not be saved, or this broker does not lead its group any more.
        """

    async def registered(self) -> None:
        """Wait until the reachable name servers know the settings and topics of this broker. Unlike :meth:`passed`,
        this method needs no majority of a group, because each member has its own settings.

        Raises:
            StorageError: a table could not be saved.
        """
