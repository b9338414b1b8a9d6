"""Waits for the completion of an administrator's change before the response."""

from __future__ import annotations

from typing import Protocol


class Change(Protocol):
    """One request of an administrator that changes tables."""

    def check(self) -> None:
        """Raise an error if the request must change no more tables. Called in loops that yield to the event loop.

        Raises:
            NotLeader: this member of a Dledger group has ceased to lead since the change began.
        """

    async def confirmed(self) -> None:
        """Wait until a majority of the Dledger group has all previous changes, including those of consumer offsets.

        Raises:
            StorageError: this broker has ceased to lead its group since the change began.
        """

    async def passed(self) -> None:
        """Wait until all previous changes are saved, confirmed by the Dledger group and registered with the reachable
        name servers.

        Raises:
            StorageError: a table could not be saved, or this broker has ceased to lead its group since the change
                began, even if it leads again.
        """


class ChangeBarrier(Protocol):
    """Waits until changes are durable and visible to clients."""

    def delete_queues(self, topic: str) -> None:
        """Delete the queues of a topic that is not in the topic table. A member of a group deletes them when a majority
        has the change.
        """

    def begin(self) -> Change:
        """Begin a change. Called before the first table is changed."""

    async def registered(self) -> None:
        """Wait until the reachable name servers know the settings and topics of this broker. Unlike
        :meth:`Change.passed`, this method needs no majority of a group, because each member has its own settings.

        Raises:
            StorageError: a table could not be saved.
        """
