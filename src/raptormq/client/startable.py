"""`async with`: a client is started at its begin and closed at its end.

Neighbours: `producer`, `pull_consumer`, `admin`; `push_consumer` has `stop` and says so itself. Source: none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """What can be started and closed."""

    @abstractmethod
    async def start(self) -> None:
        """Make it usable; does nothing when it is."""

    @abstractmethod
    async def close(self) -> None:
        """Give back what it uses; does nothing the second time."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
