"""What tools ask about consumers: 203 (connections), 208, 317 (progress), 300 (groups of a topic)
(``AdminBrokerProcessor``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from raptormq.broker.clients import ClientRegistry, Member
from raptormq.broker.queue_ages import stored_at
from raptormq.broker.statistics import Statistics
from raptormq.broker.topics import TopicTable
from raptormq.broker.turns import in_turns, written
from raptormq.protocol.bodies.queues import queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.topic import (
    BrokerConsumeStatsRequestHeader,
    ConsumeStatsRequestHeader,
    TopicRequestHeader,
)
from raptormq.protocol.language import BY_CODE
from raptormq.protocol.message import MessageQueue
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_QueueProgress = tuple[dict[str, Any], dict[str, int]]
"""A queue, and where broker and group stand in it."""


class ConsumerHandlers:
    """Describes consumer groups and their progress."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        registry: ClientRegistry[Connection],
        statistics: Statistics,
        broker_name: str,
        address: str,
    ) -> None:
        self._store = store
        self._topics = topics
        self._registry = registry
        self._statistics = statistics
        self._broker_name = broker_name
        self._address = address

    def register(self, router: Router) -> None:
        """Enter the handlers into the table."""
        router.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader, self.connections)
        router.add(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader, self.progress)
        router.add(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader, self.all_progress)
        router.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader, self.groups_of_topic)

    def connections(
        self, _: Connection, command: RemotingCommand, header: ConsumerGroupRequestHeader
    ) -> RemotingCommand:
        """203: members and subscriptions of a group; 206 when nobody is there."""
        group = self._registry.consumers.get(header.consumer_group)
        if group is None:
            remark = f"no consumer of group {header.consumer_group} is connected"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = {
            "connectionSet": [member_to_dict(member) for member in group.members.values()],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {name: each.to_dict() for name, each in group.subscriptions.items()},
        }
        return response_to(command, body=dumps(body))

    async def progress(
        self, _: Connection, command: RemotingCommand, header: ConsumeStatsRequestHeader
    ) -> RemotingCommand:
        """208: the group's offset and the broker's in every queue of its topics."""
        group = header.consumer_group
        queues: list[_QueueProgress] = []
        tps = 0.0
        for topic in self._topics_of(header):
            queues += await self._progress(group, topic)
            tps += self._statistics.group_tps(topic, group)
        return response_to(command, body=await written(lambda: _consume_stats(queues, tps), len(queues)))

    async def all_progress(
        self, _: Connection, command: RemotingCommand, header: BrokerConsumeStatsRequestHeader
    ) -> RemotingCommand:
        """317: the same of every group that has consumed anything."""
        table: dict[str, list[bytes]] = {}
        lag = inflight = 0
        for topic, group in self._store.consumer_offsets.topics_and_groups():
            config = self._topics.get(topic)
            if config is None or (header.is_order and not config.order):
                continue
            queues = await self._progress(group, topic)
            lag += sum(each["brokerOffset"] - each["consumerOffset"] for _, each in queues)
            inflight += sum(each["pullOffset"] - each["consumerOffset"] for _, each in queues)
            write = partial(_consume_stats, queues, self._statistics.group_tps(topic, group))
            table.setdefault(group, []).append(await written(write, len(queues)))
        groups = b",".join(b"{%b:[%b]}" % (dumps(group), b",".join(stats)) for group, stats in table.items())
        figures = b'"totalDiff":%d,"totalInflightDiff":%d' % (lag, inflight)
        address = dumps(self._address)
        return response_to(command, body=b'{"brokerAddr":%b,"consumeStatsList":[%b],%b}' % (address, groups, figures))

    def groups_of_topic(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """300: the groups that consume a topic now, or have committed an offset in it."""
        groups = {
            name for name, group in self._registry.consumers.items() if header.topic in group.subscriptions
        } | set(self._store.consumer_offsets.groups_of_topic(header.topic))
        return response_to(command, body=dumps({"groupList": sorted(groups)}))

    async def _progress(self, group: str, topic: str) -> list[_QueueProgress]:
        config = self._topics.get(topic)
        found: list[_QueueProgress] = []
        async for queue_id in in_turns(range(config.read_queue_nums if config is not None else 0)):
            queue = MessageQueue(topic, self._broker_name, queue_id)
            found.append((queue_to_dict(queue), await self._queue_progress(group, queue)))
        await asyncio.sleep(0)  # many topics of a few queues must not hold up the others, either
        return found

    def _topics_of(self, header: ConsumeStatsRequestHeader) -> Iterable[str]:
        if header.topic:
            return [header.topic]
        return sorted(topic for topic, _ in self._store.consumer_offsets.of_group(header.consumer_group))

    async def _queue_progress(self, group: str, queue: MessageQueue) -> dict[str, int]:
        topic, queue_id = queue.topic, queue.queue_id
        low, high = self._store.queue_bounds(topic, queue_id)
        committed = self._store.consumer_offsets.get(topic, group, queue_id)
        consumed = low if committed is None else committed
        stored_last = await stored_at(self._store, topic, queue_id, consumed - 1) if consumed > low else 0
        return {
            "brokerOffset": high,
            "consumerOffset": consumed,
            "lastTimestamp": max(stored_last, 0),
            "pullOffset": max(consumed, self._statistics.pulled.get((topic, group, queue_id), 0)),
        }


def _consume_stats(queues: list[_QueueProgress], tps: float) -> bytes:
    return b'{"consumeTps":%b,"offsetTable":%b}' % (dumps(tps), dump_object_keyed(queues))


def member_to_dict(member: Member[Connection]) -> dict[str, Any]:
    """Return the JSON object of a connected client."""
    language = BY_CODE.get(member.language)
    return {
        "clientAddr": member.connection.peer_name,
        "clientId": member.client_id,
        "language": language.name if language is not None else "OTHER",
        "version": member.version,
    }
