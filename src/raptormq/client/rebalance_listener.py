"""`RebalanceListener`: notifies an application of assigned and revoked queues. `consumer.rebalance_calls` calls it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from raptormq.errors import ConfigError
from raptormq.protocol.message import MessageQueue

METHODS = ("on_queues_assigned", "on_queues_revoked", "on_queues_lost")


class RebalanceListener:
    """Base class of listeners for the queues of a consumer; override the methods that you need.

        class Caches(RebalanceListener):
            async def on_queues_assigned(self, queues: Sequence[MessageQueue]) -> None:
                await load(queues)

            async def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:
                await store(queues)

        ConsumerConfig(rebalance_listener=Caches())

    The calls are made sequentially. A call that takes longer than `ConsumerConfig.hand_over_timeout` (5 s) is cancelled
    and logged. Its exceptions are logged, too, and the rebalance continues. One change may cause several calls.
    """

    async def on_queues_assigned(self, queues: Sequence[MessageQueue]) -> None:
        """Called before the first message of these queues is fetched."""

    async def on_queues_revoked(self, queues: Sequence[MessageQueue]) -> None:
        """Called when these queues are revoked: after the last listener call with their messages, before their offsets
        are committed and another member may read them. Also called on `stop`.
        """

    async def on_queues_lost(self, queues: Sequence[MessageQueue]) -> None:
        """Called when another member has already taken over these queues, for example after a long pause of the
        process. That member may have consumed messages in the meantime.
        """


def check_rebalance_listener(listener: RebalanceListener | None) -> None:
    """Check the methods of a rebalance listener.

    Raises:
        ConfigError: a method is a plain function.
    """
    for name in METHODS if listener is not None else ():
        if not inspect.iscoroutinefunction(getattr(listener, name)):
            raise ConfigError(f"{type(listener).__name__}.{name} must be async def")
