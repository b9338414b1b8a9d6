"""Administration queries about consumers: 203 (connections), 208, 317 (progress), 300 (groups of a topic)
(``AdminBrokerProcessor``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from raptormq.broker.clients import ClientRegistry, Member
from raptormq.broker.cooperative import written
from raptormq.broker.metrics import Statistics, stored_at
from raptormq.broker.tables import TopicTable
from raptormq.protocol.bodies.group_progress import (
    GroupConnections,
    GroupMember,
    QueueProgress,
    encode_consume_stats,
)
from raptormq.protocol.bodies.tolerant_json import dumps
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
from raptormq.storage.background import cooperatively
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class ConsumerHandlers:
    """Handles queries about consumer groups and their progress."""

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
        """Register the request codes with the router."""
        router.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader, self.connections)
        router.add(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader, self.progress)
        router.add(RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader, self.all_progress)
        router.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader, self.groups_of_topic)

    def connections(
        self, _: Connection, command: RemotingCommand, header: ConsumerGroupRequestHeader
    ) -> RemotingCommand:
        """203: return the members and subscriptions of a group, or code 206 if no member is connected."""
        group = self._registry.consumers.get(header.consumer_group)
        if group is None:
            remark = f"no consumer of group {header.consumer_group} is connected"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        connections = GroupConnections(
            [described(member) for member in group.members.values()],
            group.subscriptions,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return response_to(command, body=connections.to_json())

    async def progress(
        self, _: Connection, command: RemotingCommand, header: ConsumeStatsRequestHeader
    ) -> RemotingCommand:
        """208: return the group's offset and the end offset of every queue of its topics."""
        group = header.consumer_group
        queues: list[tuple[MessageQueue, QueueProgress]] = []
        tps = 0.0
        async for topic in cooperatively(self._topics_of(header)):
            queues += await self._progress(group, topic)
            tps += self._statistics.group_tps(topic, group)
        return response_to(command, body=await written(lambda: encode_consume_stats(queues, tps), len(queues)))

    async def all_progress(
        self, _: Connection, command: RemotingCommand, header: BrokerConsumeStatsRequestHeader
    ) -> RemotingCommand:
        """317: return the progress of every group that has committed an offset."""
        table: dict[str, list[bytes]] = {}
        lag = inflight = 0
        async for topic, group in cooperatively(self._store.consumer_offsets.topics_and_groups()):
            config = self._topics.get(topic)
            if config is None or (header.is_order and not config.order):
                continue
            queues = await self._progress(group, topic)
            lag += sum(each.lag for _, each in queues)
            inflight += sum(each.in_flight for _, each in queues)
            write = partial(encode_consume_stats, queues, self._statistics.group_tps(topic, group))
            table.setdefault(group, []).append(await written(write, len(queues)))
        groups = b",".join(b"{%b:[%b]}" % (dumps(group), b",".join(stats)) for group, stats in table.items())
        figures = b'"totalDiff":%d,"totalInflightDiff":%d' % (lag, inflight)
        address = dumps(self._address)
        return response_to(command, body=b'{"brokerAddr":%b,"consumeStatsList":[%b],%b}' % (address, groups, figures))

    def groups_of_topic(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """300: return the groups that subscribe to the topic or have committed an offset in it."""
        groups = {
            name for name, group in self._registry.consumers.items() if header.topic in group.subscriptions
        } | set(self._store.consumer_offsets.groups_of_topic(header.topic))
        return response_to(command, body=dumps({"groupList": sorted(groups)}))

    async def _progress(self, group: str, topic: str) -> list[tuple[MessageQueue, QueueProgress]]:
        config = self._topics.get(topic)
        found: list[tuple[MessageQueue, QueueProgress]] = []
        async for queue_id in cooperatively(range(config.read_queue_nums if config is not None else 0)):
            queue = MessageQueue(topic, self._broker_name, queue_id)
            found.append((queue, await self._queue_progress(group, queue)))
        return found

    def _topics_of(self, header: ConsumeStatsRequestHeader) -> Iterable[str]:
        """Return the topics of the request, without topics that a connected group no longer subscribes to."""
        group = header.consumer_group
        committed = self._store.consumer_offsets.of_group(group)
        topics = [header.topic] if header.topic else sorted(topic for topic, _ in committed)
        consumers = self._registry.consumers.get(group)
        if consumers is None or not consumers.subscriptions:
            return topics
        return [topic for topic in topics if topic in consumers.subscriptions]

    async def _queue_progress(self, group: str, queue: MessageQueue) -> QueueProgress:
        topic, queue_id = queue.topic, queue.queue_id
        low, high = await self._store.queue_bounds(topic, queue_id)
        committed = self._store.consumer_offsets.get(topic, group, queue_id)
        consumed = low if committed is None else committed
        stored_last = await stored_at(self._store, topic, queue_id, consumed - 1) if consumed > low else 0
        pulled = max(consumed, self._statistics.pull_offsets.get((topic, group, queue_id), 0))
        return QueueProgress(high, consumed, pulled, max(stored_last, 0), low)


def described(member: Member[Connection]) -> GroupMember:
    """Return the description of a connected client for administration queries."""
    language = BY_CODE.get(member.language)
    name = language.name if language is not None else "OTHER"
    return GroupMember(member.client_id, member.connection.peer_name, name, member.version)
