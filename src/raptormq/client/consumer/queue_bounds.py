"""Queries about queues, assigned or not: which queues a topic has, and where they start and end.

See also: `consumer.pull_consumer` reads the queues, `cluster.broker_call` sends the requests. Source: RocketMQ
`MQAdminImpl`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from raptormq.client.cluster import InstanceClient, call_broker
from raptormq.client.settings import Milliseconds, check_setting
from raptormq.errors import ClientError
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_ids import TOPIC_ID_QUERY

T = TypeVar("T")


class QueueQueries(InstanceClient):
    """The queries of a pull consumer; errors are those of `PullConsumer.pull`.

    With a `topic_id` (returned by the method of that name) the result is about the topic with this id, or, at brokers
    without ids, about the topic with this name. `ServerError` 31002 means that the topic was deleted and recreated.
    """

    _group: str | None

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in order.

        Raises:
            NoRoute: the topic does not exist, or no broker that has it is up.
            TransportError: no name server responds.
            ClientClosed: not started, or closed.
        """
        return list((await self._started_instance().routes.find(topic)).read_queues)

    async def topic_id(self, queue: MessageQueue) -> str | None:
        """Return the id that the broker of a queue has given to its topic; a topic that is deleted and recreated gets
        another id. `None` if the topic has no id: Apache RocketMQ has no ids.
        """
        offsets = self._started_instance().offsets
        return (await self._call_broker(queue, lambda address: offsets.max_offset(address, queue))).topic_id

    async def min_offset(self, queue: MessageQueue, *, topic_id: str | None = None) -> int:
        """Return the offset of the queue's first message."""
        offsets, meant = self._started_instance().offsets, topic_id or TOPIC_ID_QUERY
        return (await self._call_broker(queue, lambda address: offsets.min_offset(address, queue, meant))).offset

    async def max_offset(self, queue: MessageQueue, *, topic_id: str | None = None) -> int:
        """Return the offset that the queue's next message will get."""
        offsets, meant = self._started_instance().offsets, topic_id or TOPIC_ID_QUERY
        return (await self._call_broker(queue, lambda address: offsets.max_offset(address, queue, meant))).offset

    async def offset_by_time(self, queue: MessageQueue, timestamp_ms: int, *, topic_id: str | None = None) -> int:
        """Return the offset of the first message stored at or after a time (ms since 1970), or the maximum offset if
        there is none; raises `ConfigError` for a value that is not a time.
        """
        check_setting("timestamp_ms", timestamp_ms, Milliseconds)
        offsets, meant = self._started_instance().offsets, topic_id or TOPIC_ID_QUERY

        async def ask(address: str) -> int:
            return (await offsets.offset_by_time(address, queue, timestamp_ms, meant)).offset

        return await self._call_broker(queue, ask)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group; `None` if the group never committed in this queue. Brokers before
        RocketMQ 5 return 0 instead on a young topic. Raises the errors of `commit`, too.
        """
        offsets, group = self._started_instance().offsets, self._require_group()
        found = await self._call_broker(queue, lambda address: offsets.committed(address, group, queue))
        return None if found is None else found.offset

    async def members(self, queue: MessageQueue) -> list[str]:
        """Return the client ids of the group's members that are connected to the broker of a queue. Pull consumers are
        no members. Raises the errors of `commit`, too.
        """
        offsets, group = self._started_instance().offsets, self._require_group()
        return await self._call_broker(queue, lambda address: offsets.members(address, group))

    async def _call_broker(self, queue: MessageQueue, call: Callable[[str], Awaitable[T]]) -> T:
        return await call_broker(self._started_instance().routes, queue, call)

    def _require_group(self) -> str:
        if self._group is None:
            raise ClientError("this consumer has no group, so it has no offsets to commit")
        return self._group
