"""Administration queries about one group: 303 (store times), 314 (copy of the offsets), 343 (topics), 345
(subscription) (``AdminBrokerProcessor``).

:mod:`raptormq.broker.handlers.consumers` returns offsets and lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.config import Identity
from raptormq.broker.cooperative import written
from raptormq.broker.metrics import NO_TIMESTAMP, stored_at
from raptormq.broker.tables import ChangeBarrier, TopicTable
from raptormq.broker.validation import require_topic
from raptormq.protocol.bodies.queues import queue_to_dict
from raptormq.protocol.bodies.route import TopicList
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.topic import (
    CloneGroupOffsetRequestHeader,
    GroupAndTopicRequestHeader,
    GroupRequestHeader,
)
from raptormq.protocol.message import MessageQueue
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router


class GroupProgressHandlers:
    """Handles queries about groups and copies their offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        registry: ClientRegistry[Connection],
        barrier: ChangeBarrier,
        identity: Identity,
        address: str,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._registry = registry
        self._barrier = barrier
        self._broker_name = identity.broker_name
        self._address = address
        self._clock = clock

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.QUERY_CONSUME_TIME_SPAN, GroupAndTopicRequestHeader, self.time_spans)
        router.add(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader, self.clone)
        router.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, GroupRequestHeader, self.topics)
        router.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, GroupAndTopicRequestHeader, self.subscription)

    async def time_spans(
        self, _: Connection, command: RemotingCommand, header: GroupAndTopicRequestHeader
    ) -> RemotingCommand:
        """303: return for each queue the store times of the first, the last and the last consumed message, and the age
        of the first unconsumed message.
        """
        count = require_topic(self._topics, header.topic).write_queue_nums
        spans = [
            await self._time_span(header.group, MessageQueue(header.topic, self._broker_name, queue_id))
            async for queue_id in cooperatively(range(count))
        ]
        body = {"consumeTimeSpanSet": spans}
        return response_to(command, body=await written(lambda: dumps(body), len(spans)))

    async def _time_span(self, group: str, queue: MessageQueue) -> dict[str, Any]:
        topic, queue_id = queue.topic, queue.queue_id
        low, high = await self._store.queue_bounds(topic, queue_id)
        progress = max(self._store.consumer_offsets.get(topic, group, queue_id) or 0, low)
        first = await stored_at(self._store, topic, queue_id, low)
        last = await stored_at(self._store, topic, queue_id, high - 1) if high > low else NO_TIMESTAMP
        consumed = await stored_at(self._store, topic, queue_id, progress - 1) if progress > low else first
        waiting = await stored_at(self._store, topic, queue_id, progress) if progress < high else NO_TIMESTAMP
        return {
            "consumeTimeStamp": consumed,
            "consumeTimeStampStr": _text(consumed),
            "delayTime": self._clock() - waiting if waiting != NO_TIMESTAMP else 0,
            "maxTimeStamp": last,
            "maxTimeStampStr": _text(last),
            "messageQueue": queue_to_dict(queue),
            "minTimeStamp": first,
            "minTimeStampStr": _text(first),
        }

    async def clone(
        self, _: Connection, command: RemotingCommand, header: CloneGroupOffsetRequestHeader
    ) -> RemotingCommand:
        """314: copy the offsets of one group to another. Deleted topics are skipped."""
        change = self._barrier.begin()
        offsets = self._store.consumer_offsets
        known = self._registry.consumers.get(header.src_group)
        subscribed = known.subscriptions if known is not None and not header.offline else {}
        for topic, row in list(offsets.of_group(header.src_group)):
            wanted = topic in self._topics.configs and header.topic in (topic, "", None)
            if wanted and (not subscribed or topic in subscribed):
                for queue_id, offset in row.items():
                    offsets.commit(topic, header.dest_group, queue_id, offset)
        await change.confirmed()
        return response_to(command)

    def topics(self, _: Connection, command: RemotingCommand, header: GroupRequestHeader) -> RemotingCommand:
        """343: return the topics in which a group has committed an offset."""
        names = sorted(topic for topic, _ in self._store.consumer_offsets.of_group(header.group))
        return response_to(command, body=TopicList(names, self._address).to_json())

    def subscription(
        self, _: Connection, command: RemotingCommand, header: GroupAndTopicRequestHeader
    ) -> RemotingCommand:
        """345: return the subscription of a group to a topic, if a connected member subscribes."""
        body: dict[str, Any] = {"group": header.group, "topic": header.topic}
        found = self._registry.subscription(header.group, header.topic)
        if found is not None:
            body["subscriptionData"] = found.to_dict()
        return response_to(command, body=dumps(body))


def _text(timestamp: int) -> str:
    seconds, milliseconds = divmod(timestamp, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{milliseconds:03}"
