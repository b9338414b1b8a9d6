"""A client that works during a fault of the broker or of another client, and fails if it is affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from raptormq.broker.broker import Broker
from tests.broker.harness import Peer, bodies, connected

TOPIC = "neighbour"


class Neighbour:
    """Sends numbered messages and pulls them back."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.rounds = 0

    async def work(self) -> None:
        """Send a message and pull it back. It must be unchanged and at its offset."""
        body = b"message %d" % self.rounds
        sent = await self._peer.send(TOPIC, body)
        assert (sent.code, sent.ext_fields["queueOffset"]) == (0, str(self.rounds)), sent
        assert bodies(await self._peer.pull(TOPIC, self.rounds)) == [body]
        self.rounds += 1

    async def work_forever(self) -> None:
        """Repeat rounds until cancelled."""
        while True:
            await self.work()


@asynccontextmanager
async def neighbour(broker: Broker) -> AsyncIterator[Neighbour]:
    """Run a neighbour during the block. Its failure fails the test."""
    async with connected(broker) as peer:
        worker = Neighbour(peer)
        await worker.work()
        task = asyncio.ensure_future(worker.work_forever())
        try:
            yield worker
        finally:
            if not task.done():
                task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError), results
        seen = 0
        async with connected(broker) as again:
            while seen < worker.rounds:
                found = bodies(await again.pull(TOPIC, seen, count=10_000, maxMsgBytes=1 << 20))
                assert found == [b"message %d" % number for number in range(seen, seen + len(found))] != []
                seen += len(found)
