"""Queue locks of ordered consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42) (``AdminBrokerProcessor``)."""

from __future__ import annotations

from collections.abc import Callable

from raptormq.broker.queue_locks import QueueLocks
from raptormq.protocol.bodies.queues import QueueLockRequest, encode_locked_queues
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router


class LockHandlers:
    """Grants and takes back locks."""

    def __init__(self, locks: QueueLocks, clock: Callable[[], int]) -> None:
        self._locks = locks
        self._clock = clock

    def register(self, router: Router) -> None:
        """Enter the handlers into the table."""
        router.add(RequestCode.LOCK_BATCH_MQ, None, self.lock)
        router.add(RequestCode.UNLOCK_BATCH_MQ, None, self.unlock)

    def lock(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """41: the queues among those asked for that the client owns now."""
        wanted = QueueLockRequest.from_json(command.body)
        held = self._locks.lock(wanted.consumer_group, wanted.client_id, wanted.queues, self._clock())
        return response_to(command, body=encode_locked_queues(held))

    def unlock(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """42: give locks back."""
        given = QueueLockRequest.from_json(command.body)
        self._locks.unlock(given.consumer_group, given.client_id, given.queues)
        return response_to(command)
