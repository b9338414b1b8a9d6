"""Calls the rebalance listener of the application when queues of a consumer are assigned, revoked or lost.

    assigned   on_queues_assigned --> the first pull
    revoked    no call begins any more --> running calls end --> on_queues_revoked --> commit --> the lock is released,
               and another member may read the queue
    lost       another member reads the queue already: on_queues_lost

Calls are made sequentially, and each is cancelled after `ConsumerConfig.hand_over_timeout`, because a listener must not
block queues for all members. Exceptions are logged. The retry topic of the group is excluded.

See also: `consumer.rebalance` assigns, `consumer.handover` revokes, `consumer.queue_reader` waits for the first call.
Source: Kafka `ConsumerRebalanceListener`; RocketMQ's `MessageQueueListener` is called after the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from raptormq.client.background import CANCELLED_S, background, cancel_all
from raptormq.client.interceptors import ConsumeChain, QueueChange
from raptormq.client.rebalance_listener import RebalanceListener
from raptormq.logs import get_logger
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import RETRY_PREFIX

log = get_logger(__name__)

_SHOWN = 5
"""Number of queues that an error names."""

Call = Callable[[Sequence[MessageQueue]], Coroutine[Any, Any, None]]


class RebalanceCalls:
    """Calls the listener of one consumer.

    Args:
        listener: the listener; `None` for a consumer without one.
        group: the consumer group.
        timeout: seconds that a call may take.
        interceptors: called before the listener.
    """

    def __init__(
        self, listener: RebalanceListener | None, group: str, timeout: float, interceptors: ConsumeChain
    ) -> None:
        self._listener = listener
        self._group = group
        self._timeout = timeout
        self._interceptors = interceptors
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def assigned(self, queues: Iterable[MessageQueue]) -> asyncio.Task[None] | None:
        """Notify the listener of assigned queues. Return the task; the first pulls must wait for its end."""
        known = self._tell_interceptors(QueueChange.ASSIGNED, queues)
        if self._listener is None or not known:
            return None
        return self._soon("on_queues_assigned", self._listener.on_queues_assigned, known)

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Notify the listener of revoked queues, and wait for it."""
        known = self._tell_interceptors(QueueChange.REVOKED, queues)
        if self._listener is not None and known:
            await self._call("on_queues_revoked", self._listener.on_queues_revoked, known)

    def lost(self, queues: Iterable[MessageQueue]) -> None:
        """Notify the listener of queues that another member has taken over."""
        known = self._tell_interceptors(QueueChange.LOST, queues)
        if self._listener is not None and known:
            self._soon("on_queues_lost", self._listener.on_queues_lost, known)

    async def wait(self) -> None:
        """Wait for the pending calls."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _tell_interceptors(self, change: QueueChange, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Notify the interceptors of queues, except those of the retry topic. Return these queues in order."""
        known = sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))
        self._interceptors.rebalanced(change, known)
        return known

    def _soon(self, name: str, call: Call, queues: Sequence[MessageQueue]) -> asyncio.Task[None]:
        task = background(self._call(name, call, queues), f"{name} of {self._group}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call(self, name: str, call: Call, queues: Sequence[MessageQueue]) -> None:
        async with self._lock:
            # A task of its own, because code of the application may ignore its cancellation.
            calling = asyncio.create_task(call(queues), name=f"{name} of {self._group}")
            await asyncio.wait([calling], timeout=self._timeout)
            if not calling.done():
                log.error(
                    "%s of group %s was cancelled after %g s (hand_over_timeout), called with %d queues from %s",
                    *(name, self._group, self._timeout, len(queues), queues[0]),
                )
                await cancel_all([calling], CANCELLED_S)
            elif not calling.cancelled() and (error := calling.exception()) is not None:
                log.error("%s of group %s failed for %s", name, self._group, _listed(queues), exc_info=error)


def _listed(queues: Sequence[MessageQueue]) -> str:
    shown = ", ".join(map(str, queues[:_SHOWN]))
    return shown if len(queues) <= _SHOWN else f"{shown} and {len(queues) - _SHOWN} more queues"
