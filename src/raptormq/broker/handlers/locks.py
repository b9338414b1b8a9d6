"""Queue locks of orderly consumption: LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42) (``AdminBrokerProcessor``).

The RaptorMQ client also locks queues that are not consumed in order. These locks use the name of the group's retry
topic and become void when their owner leaves the group. The locks of orderly consumers remain valid after a
disconnection, because the client may still be processing messages.

The leader of a Dledger group responds after a majority has confirmed its leadership, because another member may have
replaced it without its knowledge and may grant the same locks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from raptormq.broker.clients import ClientRegistry, QueueLocks
from raptormq.broker.cooperative import LARGE_BODY_BYTES, run_cooperatively, written
from raptormq.broker.roles import ConfirmLeadership
from raptormq.protocol.bodies.queues import QueueLockRequest, encode_locked_queues
from raptormq.protocol.bodies.steps import Steps, run_steps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import RETRY_PREFIX
from raptormq.transport.connection import Connection
from raptormq.transport.router import Answer, Router


class LockHandlers:
    """Grants and releases queue locks."""

    def __init__(
        self,
        locks: QueueLocks,
        registry: ClientRegistry[Connection],
        clock: Callable[[], int],
        confirm_leadership: ConfirmLeadership | None = None,
    ) -> None:
        """``confirm_leadership`` is None without a group."""
        self._confirm_leadership = confirm_leadership
        self._locks = locks
        self._registry = registry
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.LOCK_BATCH_MQ, None, self.lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, None, self.unlock)

    def lock(self, _: Connection, command: RemotingCommand, __: None) -> Answer | Awaitable[Answer]:
        """41: lock queues. Return the requested queues that the client has locked."""
        if self._waits(command):
            return self._lock_and_wait(command)
        return response_to(command, body=encode_locked_queues(run_steps(self._locking(command.body))))

    def _waits(self, command: RemotingCommand) -> bool:
        return len(command.body) >= LARGE_BODY_BYTES or self._confirm_leadership is not None

    async def _lock_and_wait(self, command: RemotingCommand) -> RemotingCommand:
        held = await run_cooperatively(self._locking(command.body))
        if self._confirm_leadership is not None:
            await self._confirm_leadership()
        return response_to(command, body=await written(lambda: encode_locked_queues(held), len(held)))

    def _locking(self, body: bytes) -> Steps[list[MessageQueue]]:
        wanted = yield from QueueLockRequest.read_steps(body)
        name, held = wanted.consumer_group, list[MessageQueue]()
        group = name.removeprefix(RETRY_PREFIX)

        def is_gone(owner: str) -> bool:
            return group != name and owner not in self._registry.client_ids(group)

        for queue in wanted.queues:
            held += self._locks.lock(name, wanted.client_id, (queue,), self._clock(), is_gone)
            yield
        return held

    def unlock(self, _: Connection, command: RemotingCommand, __: None) -> Answer | Awaitable[Answer]:
        """42: release locks."""
        if self._waits(command):
            return self._unlock_and_wait(command)
        run_steps(self._unlocking(command.body))
        return response_to(command)

    async def _unlock_and_wait(self, command: RemotingCommand) -> RemotingCommand:
        await run_cooperatively(self._unlocking(command.body))
        if self._confirm_leadership is not None and not command.is_oneway:
            await self._confirm_leadership()
        return response_to(command)

    def _unlocking(self, body: bytes) -> Steps[None]:
        given = yield from QueueLockRequest.read_steps(body)
        for queue in given.queues:
            self._locks.unlock(given.consumer_group, given.client_id, (queue,))
            yield
