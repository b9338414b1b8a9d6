"""QUERY_CONSUME_QUEUE (321): items of a consume queue, for debugging (``QueryConsumeQueueResponseBody``,
``ConsumeQueueData``).
"""

from __future__ import annotations

from typing import Any

from raptormq.broker.clients import ClientRegistry
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.query import QueryConsumeQueueRequestHeader
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

MAX_ITEMS = 10_000
"""Maximum number of items in a response, about 1 MB of JSON."""


class QueueItemHandlers:
    """Returns items of consume queues."""

    def __init__(self, store: MessageStore, registry: ClientRegistry[Connection]) -> None:
        self._store = store
        self._registry = registry

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader, self.items)

    async def items(
        self, _: Connection, command: RemotingCommand, header: QueryConsumeQueueRequestHeader
    ) -> RemotingCommand:
        """321: return the bounds and items of a queue, or code 1 for a queue that never had a message."""
        topic, queue_id, index = header.topic, header.queue_id, header.index
        if queue_id not in self._store.queue_ids(topic):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        count = min(max(header.count, 0), MAX_ITEMS)
        found = await self._store.queue_items(topic, queue_id, index, count) if count else []
        lowest, highest = await self._store.queue_bounds(topic, queue_id)
        body: dict[str, Any] = {"maxQueueIndex": highest, "minQueueIndex": lowest}
        if header.consumer_group is not None:
            body |= self._wanted(header.consumer_group, topic)
        if not lowest <= index < highest:
            return response_to(command, remark=f"Index {index} of {queue_id}@{topic} is not exist!", body=dumps(body))
        body["queueData"] = [
            {"eval": False, "physicOffset": physical, "physicSize": size, "tagsCode": code}
            for physical, size, code in found
        ]
        return response_to(command, body=dumps(body))

    def _wanted(self, group: str, topic: str) -> dict[str, Any]:
        subscription = self._registry.subscription(group, topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"subscriptionData": subscription.to_dict(), "filterData": "null"}
