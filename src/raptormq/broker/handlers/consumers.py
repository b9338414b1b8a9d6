"""What tools ask about consumers: 203 (connections), 208, 317 (progress), 300 (groups of a topic)
(``AdminBrokerProcessor``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raptormq.broker.clients import ClientRegistry, Member
from raptormq.broker.config import Identity
from raptormq.broker.topics import TopicTable
from raptormq.protocol.bodies.queues import queue_to_dict
from raptormq.protocol.bodies.tolerant_json import dump_object_keyed, dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.topic import ConsumeStatsRequestHeader, TopicRequestHeader
from raptormq.protocol.language import BY_CODE
from raptormq.protocol.message import MessageQueue
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class ConsumerHandlers:
    """Describes consumer groups and their progress."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, registry: ClientRegistry[Connection], identity: Identity
    ) -> None:
        self._store = store
        self._topics = topics
        self._registry = registry
        self._identity = identity

    def register(self, router: Router) -> None:
        """Enter the handlers into the table."""
        router.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader, self.connections)
        router.add(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader, self.progress)
        router.add(RequestCode.GET_BROKER_CONSUME_STATS, None, self.all_progress)
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

    def progress(self, _: Connection, command: RemotingCommand, header: ConsumeStatsRequestHeader) -> RemotingCommand:
        """208: the group's offset and the broker's in every queue of its topics."""
        queues = self._progress(header.consumer_group, self._topics_of(header))
        return response_to(command, body=_consume_stats(queues))

    def all_progress(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """317: the same of every group that has consumed anything."""
        offsets = self._store.consumer_offsets
        table: dict[str, list[bytes]] = {}
        lag = 0
        for topic in self._topics.configs:
            for group in offsets.groups_of_topic(topic):
                queues = self._progress(group, [topic])
                lag += sum(each["brokerOffset"] - each["consumerOffset"] for _, each in queues)
                table.setdefault(group, []).append(_consume_stats(queues))
        groups = b",".join(b"{%b:[%b]}" % (dumps(group), b",".join(stats)) for group, stats in table.items())
        figures = b'"totalDiff":%d,"totalInflightDiff":0' % lag
        address = dumps(self._identity.broker_name)
        return response_to(command, body=b'{"brokerAddr":%b,"consumeStatsList":[%b],%b}' % (address, groups, figures))

    def groups_of_topic(self, _: Connection, command: RemotingCommand, header: TopicRequestHeader) -> RemotingCommand:
        """300: the groups that consume a topic now, or have committed an offset in it."""
        groups = {
            name for name, group in self._registry.consumers.items() if header.topic in group.subscriptions
        } | set(self._store.consumer_offsets.groups_of_topic(header.topic))
        return response_to(command, body=dumps({"groupList": sorted(groups)}))

    def _progress(self, group: str, topics: Iterable[str]) -> list[tuple[dict[str, Any], dict[str, int]]]:
        found: list[tuple[dict[str, Any], dict[str, int]]] = []
        for topic in topics:
            config = self._topics.get(topic)
            for queue_id in range(config.read_queue_nums if config is not None else 0):
                queue = MessageQueue(topic, self._identity.broker_name, queue_id)
                found.append((queue_to_dict(queue), self._queue_progress(group, queue)))
        return found

    def _topics_of(self, header: ConsumeStatsRequestHeader) -> Iterable[str]:
        if header.topic:
            return [header.topic]
        topics = {topic for topic, _ in self._store.consumer_offsets.of_group(header.consumer_group)}
        group = self._registry.consumers.get(header.consumer_group)
        return sorted(topics | (group.subscriptions.keys() if group is not None else set()))

    def _queue_progress(self, group: str, queue: MessageQueue) -> dict[str, int]:
        low, high = self._store.queue_bounds(queue.topic, queue.queue_id)
        consumed = self._store.consumer_offsets.get(queue.topic, group, queue.queue_id)
        return {
            "brokerOffset": high,
            "consumerOffset": low if consumed is None else consumed,
            "lastTimestamp": 0,
            "pullOffset": low if consumed is None else consumed,
        }


def _consume_stats(queues: list[tuple[dict[str, Any], dict[str, int]]]) -> bytes:
    return b'{"consumeTps":0.0,"offsetTable":' + dump_object_keyed(queues) + b"}"


def member_to_dict(member: Member[Connection]) -> dict[str, Any]:
    """Return the JSON object of a connected client."""
    language = BY_CODE.get(member.language)
    return {
        "clientAddr": member.connection.peer_name,
        "clientId": member.client_id,
        "language": language.name if language is not None else "OTHER",
        "version": member.version,
    }
