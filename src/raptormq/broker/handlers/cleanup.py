"""On-demand cleanup of queues (306), deleted topics (316) and the log (329), and the replication status (907)
(``AdminBrokerProcessor``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raptormq.broker.tables import ChangeBarrier, TopicTable
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router


class CleanupHandlers:
    """Cleans up the store on request."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        barrier: ChangeBarrier,
        address: str,
        group_status: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """Create the handlers. A broker with replication passes ``group_status``, which returns fields of the response
        to 907.
        """
        self._group_status = group_status
        self._store = store
        self._barrier = barrier
        self._topics = topics
        self._address = address

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, None, self.clean_queues)
        router.add(RequestCode.CLEAN_UNUSED_TOPIC, None, self.clean_topics)
        router.add(RequestCode.DELETE_EXPIRED_COMMITLOG, None, self.clean_log)
        router.add(RequestCode.GET_BROKER_HA_STATUS, None, self.replication)

    async def clean_queues(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """306: delete obsolete queue files. The response follows after the deletion."""
        await self._store.clean(any_hour=False)
        return response_to(command)

    async def clean_log(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """329: delete segments older than ``fileReservedTime`` immediately, at any hour."""
        await self._store.clean(any_hour=True)
        return response_to(command)

    async def clean_topics(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """316: delete the queues of topics that are not in the topic table."""
        change = self._barrier.begin()
        for topic in self._store.topics():
            if topic not in self._topics.configs:
                self._barrier.delete_queues(topic)
        await self._store.save_deletions()
        await change.passed()
        return response_to(command)

    def replication(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """907: return the replication status. A broker without replication is reported as a master without slaves."""
        group = self._group_status() if self._group_status is not None else {}
        return response_to(
            command,
            body=dumps(
                {
                    "haClientRuntimeInfo": {
                        "activated": False,
                        "lastReadTimestamp": 0,
                        "lastWriteTimestamp": 0,
                        "masterFlushOffset": 0,
                        "maxOffset": 0,
                        "transferredByteInSecond": 0,
                    },
                    "haConnectionInfo": [],
                    "inSyncSlaveNums": 0,
                    "master": True,
                    "masterAddr": self._address,
                    "masterCommitLogMaxOffset": self._store.end_offset,
                }
                | group
            ),
        )
