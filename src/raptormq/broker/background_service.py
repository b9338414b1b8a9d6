"""What works beside the requests: delivery of delayed messages, check-back of transactions, revival of popped ones."""

from __future__ import annotations

from typing import Protocol


class BackgroundService(Protocol):
    """Started once the store serves and before clients can find the broker; stopped before the store closes."""

    def start(self) -> None:
        """Begin, inside the running loop; must not wait and must not raise."""

    async def stop(self) -> None:
        """End soon and finish what is half done; may be called without a start, and must not raise."""
