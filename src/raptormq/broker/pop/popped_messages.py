"""The unacknowledged messages of a broker: checkpoints of the revive log, and the last pops of orderly groups."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.broker.pop.orderly_pops import OrderlyPops
from raptormq.broker.pop.revive_log import ReviveLog


@dataclass(frozen=True, slots=True)
class PoppedMessages:
    """Popped and unacknowledged messages. ``orderly`` records orderly pops, ``revive_log`` all other pops."""

    revive_log: ReviveLog
    orderly: OrderlyPops

    async def loaded(self) -> None:
        """Wait until the checkpoints of earlier runs are loaded.

        Raises:
            NotLeader: this member no longer leads its Dledger group.
        """
        await self.revive_log.loading.wait()

    def clear(self) -> None:
        """Discard all state, because another member of the Dledger group leads."""
        self.orderly.clear()
        self.revive_log.outstanding.clear()

    def forget_topic(self, topic: str) -> None:
        """Discard the state of a deleted topic."""
        self.orderly.forget_topic(topic)
        self.revive_log.outstanding.forget_topic(topic)
