"""A listener of a push consumer that records its messages and lets a test wait for them."""

from __future__ import annotations

import asyncio

from raptormq.client import ConsumeResult, MessageExt


class Listener:
    """Consumes every message except those with the body "no"."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._changed = asyncio.Event()

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.bodies += [message.body for message in messages]
        self._changed.set()
        return ConsumeResult.RECONSUME_LATER if messages[0].body == b"no" else ConsumeResult.SUCCESS

    async def until(self, count: int) -> None:
        """Wait until the listener has received this number of messages."""
        while len(self.bodies) < count:
            self._changed.clear()
            await self._changed.wait()
