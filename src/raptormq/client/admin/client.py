"""`AdminClient`: topics, messages, groups and brokers, for operators, command lines and tests.

    async with AdminClient(name_servers="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", read_queues=8, write_queues=8)

Neighbours: `cluster.metadata` asks the name servers, `admin.message_query` finds messages; other requests go to broker
addresses. Source: RocketMQ `DefaultMQAdminExt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raptormq.client.admin.message_query import MAX_QUERY_RESULTS, FoundMessages, fetch_message, query_messages
from raptormq.client.admin.topic_requests import check_topic_arguments, create_topic_request
from raptormq.client.background import gather_all
from raptormq.client.cluster import (
    ClientInstance,
    fetch_cluster,
    fetch_route,
    fetch_topics,
    parse_route,
    require_success,
    route_request,
)
from raptormq.client.config import ClientConfig
from raptormq.client.lifecycle import Shutdown, Startable
from raptormq.client.results import TopicChange, TopicConfigs
from raptormq.client.settings import LONG_MAX
from raptormq.errors import ClientClosed, ConfigError, NoRoute, ServerError
from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.bodies.group_progress import (
    GroupConnections,
    QueueProgress,
    decode_consume_stats,
    decode_group_configs,
)
from raptormq.protocol.bodies.queue_offsets import decode_offsets
from raptormq.protocol.bodies.queues import TopicOffset, decode_kv_table, decode_topic_stats
from raptormq.protocol.bodies.route import MASTER_ID, ClusterInfo, TopicRoute
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.conversion import ConvertQueueRequestHeader
from raptormq.protocol.headers.relay import ResetOffsetRequestHeader
from raptormq.protocol.headers.route import DeleteTopicRequestHeader
from raptormq.protocol.headers.topic import ConsumeStatsRequestHeader, TopicRequestHeader
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.topic_names import check_group


class AdminClient(Startable):
    """Administers one cluster.

    Every method raises `TransportError` when a server does not answer within the request timeout, `ServerError` when it
    refuses, and `ClientClosed` when the client is not started or closed.

    Args:
        name_servers: `host:port;host:port`; default NAMESRV_ADDR, else 127.0.0.1:9876. Not together with
            `client_config`.
        client_config: shared connections.

    Raises:
        ConfigError: an address is not `host:port`.
    """

    def __init__(
        self, *, name_servers: Sequence[str] | str | None = None, client_config: ClientConfig | None = None
    ) -> None:
        self._client_config = ClientConfig.choose(client_config, name_servers)
        self._instance: ClientInstance | None = None
        self._shutdown = Shutdown("an administrator")

    async def start(self) -> None:
        """Start the client; does nothing when it is started."""
        await self._shutdown.wait()
        if self._instance is None:
            self._instance = ClientInstance.acquire(self._client_config)

    async def close(self) -> None:
        """Close the connections; does nothing when they are closed. A cancelled close continues in the background."""
        instance, self._instance = self._instance, None
        if instance is None:
            await self._shutdown.wait()
        else:
            await self._shutdown.run(instance.release())

    # --- topics ---

    async def create_topic(
        self,
        topic: str,
        read_queues: int | None = None,
        write_queues: int | None = None,
        *,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        order: bool | None = None,
    ) -> dict[str, TopicChange]:
        """Create a topic, or change it, on each of `brokers` (addresses), by default on all masters that the name
        servers return within the request timeout.

        Arguments that are not given keep their value in an existing topic, and have the default in a new one.

        Args:
            topic: its name.
            read_queues: readable queues per broker; default 8. Fewer than before hide the messages in the other queues.
            write_queues: writable queues per broker; default 8.
            perm: 6 read and write (default), 4 read, 2 write.
            attributes: such as `{"queue.type": "BatchCQ"}`; attributes that are not named stay.
            brokers: addresses `host:port`.
            order: whether the topic is meant for ordered messages; default False.

        Returns:
            The change at each broker, by address.

        Raises:
            MessageError: `topic` is not a topic name.
            ConfigError: another argument is invalid.
            NoRoute: no broker is up.
            TransportError, ServerError: at least one broker failed; all others were asked.
        """
        check_topic_arguments(topic, read_queues, write_queues, perm, attributes, order)
        given = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        changes: dict[str, TopicChange] = {}

        async def put(address: str) -> None:
            before = await self._current_config(address, topic)
            wanted = replace(before or TopicConfig(topic), **named)
            wanted.attributes = wanted.attributes | dict(attributes or {})
            # Also without a change: a broker may have a change in memory that its full disk has not stored yet.
            await self._ask_broker(
                address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, create_topic_request(wanted, attributes))
            )
            changes[address] = TopicChange.of(before, wanted)

        await gather_all(put(address) for address in await self._masters(brokers))
        return changes

    async def delete_topic(self, topic: str, *, brokers: Iterable[str] | None = None) -> None:
        """Delete a topic on each of `brokers` (addresses), by default on all masters, found as by `create_topic`, then
        on every name server.

        Raises:
            TransportError, ServerError: at least one broker or name server failed; all others were asked.
        """
        await gather_all(
            self._ask_broker(address, request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic)))
            for address in await self._masters(brokers)
        )
        if brokers is None:
            await gather_all(
                self._ask_broker(address, request(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader(topic)))
                for address in self._running().name_servers.addresses
            )

    async def topics(self) -> list[str]:
        """Return the names of all topics, system topics included, in order."""
        return sorted(await fetch_topics(self._running().name_servers))

    async def route(self, topic: str, name_server: str | None = None) -> TopicRoute | None:
        """Return the route of a topic, `None` when the name servers (or this one, `host:port`) do not know it. Waits
        for unresponsive name servers as long as a request may take.
        """
        if name_server is None:
            return await fetch_route(self._running().name_servers, topic)
        return parse_route(await self._ask_server(name_server, route_request(topic)), name_server)

    async def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic at a broker, `None` when the broker does not have it."""
        command = request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        instance = self._running()
        response = await instance.pool.request(broker_addr, command, instance.config.request_timeout)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicConfig.from_json(require_success(response, broker_addr).body)

    async def topic_configs(self, broker_addr: str) -> TopicConfigs:
        """Return how a broker serves every topic that it has, system topics included (GET_ALL_TOPIC_CONFIG, 21)."""
        response = await self._ask_broker(broker_addr, request(RequestCode.GET_ALL_TOPIC_CONFIG))
        return TopicConfigs(response.body)

    async def put_topics(self, broker_addr: str, topics: Sequence[TopicConfig]) -> None:
        """Create topics on one broker or change them, all with one request (UPDATE_AND_CREATE_TOPIC_LIST, 18).

        Everything but the attributes is taken as it stands in `topics`. Attributes that are not named stay.

        Raises:
            ServerError: the broker refuses one of them, and has changed none.
        """
        listed = []
        for topic in topics:
            check_topic_arguments(
                topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, int(topic.perm), topic.attributes, None
            )
            listed.append(topic.to_dict() | {"attributes": {f"+{key}": text for key, text in topic.attributes.items()}})
        body = dumps({"topicConfigList": listed})
        await self._ask_broker(broker_addr, request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body))

    async def convert_queue(
        self, broker_addr: str, topic: str, action: str, to: str | None = None
    ) -> QueueConversionState:
        """Start (`to` is `"BatchCQ"` or `"SimpleCQ"`), stop or describe (`"status"`) the conversion of the queues of a
        topic at a broker; it runs in the background.

        Returns the state after that.

        Raises:
            ServerError: 29 and 604 when the broker refuses, 17 without the topic, 3 from brokers other than RaptorMQ's.
        """
        header = ConvertQueueRequestHeader(topic, action, to)
        response = await self._ask_broker(broker_addr, request(RequestCode.CONVERT_QUEUE, header))
        return QueueConversionState.from_json(response.body)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic.

        Raises:
            NoRoute: the topic does not exist, or no broker that has it is up.
        """
        found = await self._running().routes.refresh(topic)
        if found is None:
            raise NoRoute.to(topic)
        stats: dict[MessageQueue, TopicOffset] = {}
        for broker_name in sorted(found.brokers):
            address = found.replica(broker_name)
            if address is not None:
                command = request(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic))
                stats |= decode_topic_stats((await self._ask_broker(address, command)).body)
        return stats

    # --- messages ---

    async def find_messages(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = LONG_MAX, count: int = MAX_QUERY_RESULTS
    ) -> FoundMessages:
        """Return the newest messages of a topic, at most `count` (1 to 64), that have a key or a unique id
        (`message_id`) and were stored between two times, in ms since 1970; ordered by store time. Brokers that did not
        answer, or refused, are in its `failures`, even if nothing was found.

        Raises:
            TransportError, ServerError: no broker answered.
            NoRoute: the topic does not exist, or no broker that has it is up.
            ServerError: 14 when only batches that are encrypted as a whole have the key.
            RecordError, KeyMissing: a message cannot be decrypted, decompressed or decoded.
            ConfigError: an argument is invalid.
        """
        return await query_messages(self._running(), topic, key, begin_ms, end_ms, count)

    async def message(self, offset_message_id: str) -> MessageExt | None:
        """Return the message with the id that a broker gave (`offset_message_id`: address and position), of a batch its
        first message, `None` when it is not stored any more. The request goes to the address in the id.

        Raises:
            MessageError: the id is not valid.
            ServerError, RecordError, KeyMissing: as in `find_messages`.
        """
        return await fetch_message(self._running(), offset_message_id, await self.cluster_info())

    # --- consumer groups ---

    async def groups(self) -> list[str]:
        """Return the names of all consumer groups that a broker knows, including RocketMQ's own, in order."""
        return sorted(set().union(*await self._group_configs(await self._brokers())))

    async def group_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueProgress]:
        """Return the offsets of a group in every queue of a topic, by default of all topics in which it has committed
        an offset; nothing for an unknown group. Brokers that do not return the minimum offset, such as Apache
        RocketMQ's, are asked for it too: only stored messages count as lag. Raises `NoRoute` while no broker is
        registered, `MessageError` for an invalid group name.
        """
        check_group(group)
        brokers = await self._brokers()
        found = await asyncio.gather(*(self._progress(address, group, topic) for address in brokers))
        begun = set() if topic else {queue.topic for here in found for queue in here}
        # A broker returns the topics with commits there; messages in its queues of the other topics are lag, too.
        more = [
            self._progress(address, group, other)
            for address, here in zip(brokers, found, strict=True)
            for other in begun - {queue.topic for queue in here}
        ]
        return {queue: each for here in (*found, *await asyncio.gather(*more)) for queue, each in here.items()}

    async def _progress(self, broker: str, group: str, topic: str | None) -> dict[MessageQueue, QueueProgress]:
        command = request(RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(group, topic))
        found = decode_consume_stats((await self._ask_broker(broker, command)).body)
        for each in sorted({queue.topic for queue, progress in found.items() if progress.min_offset is None}):
            command = request(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(each))
            for queue, bounds in decode_topic_stats((await self._ask_broker(broker, command)).body).items():
                if queue in found:
                    found[queue] = replace(found[queue], min_offset=bounds.min_offset)
        return found

    async def group_connections(self, group: str) -> GroupConnections | None:
        """Return the connected members of a group and their subscriptions, `None` when there are none. Clients without
        heartbeats, such as pull consumers and Spark, are not included. Raises `NoRoute` while no broker is registered.
        """
        found: GroupConnections | None = None
        instance = self._running()
        for address in await self._brokers():
            command = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader(group))
            response = await instance.pool.request(address, command, instance.config.request_timeout)
            if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            here = GroupConnections.from_json(require_success(response, address).body)
            if found is None:
                found = here
                continue
            known = {member.client_id for member in found.members}
            found.members += [member for member in here.members if member.client_id not in known]
            found.subscriptions |= here.subscriptions
        return found

    async def reset_group(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Reset the offsets of a group in every queue of a topic to the first message stored at or after a time, in ms
        since 1970; 0 is the oldest message, -1 the end. Connected members continue there as well. A broker that has the
        topic and does not know the group gets the group with the settings that it has elsewhere.

        Returns the new offsets.

        Raises:
            NoRoute: the topic does not exist, or one of its brokers has no master; no broker was asked.
            TransportError, ServerError: a broker failed (26: none knows the group); others may have been reset, and
                repeating the call does no harm.
        """
        found = await self._running().routes.refresh(topic)
        if found is None:
            raise NoRoute.to(topic)
        masters = [address for name in sorted(found.brokers) if (address := found.master(name))]
        if not masters or len(masters) < len(found.brokers):
            raise NoRoute(f"topic {topic}: one of its brokers has no master")
        await self._copy_group_config(group, masters)
        offsets: dict[MessageQueue, int] = {}

        async def reset(address: str) -> None:
            header = ResetOffsetRequestHeader(group, topic, timestamp_ms, is_force=True)
            response = await self._ask_broker(address, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
            offsets.update(decode_offsets(response.body))

        await gather_all(map(reset, masters))
        return offsets

    async def _copy_group_config(self, group: str, brokers: Sequence[str]) -> None:
        """Copy the configuration of a group to those of the brokers that do not know it."""
        tables = await self._group_configs(brokers)
        config = next((table[group] for table in tables if group in table), None)
        for address, table in zip(brokers, tables, strict=True):
            if config is not None and group not in table:
                command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config))
                await self._ask_broker(address, command)

    async def _group_configs(self, brokers: Sequence[str]) -> list[dict[str, Any]]:
        """Return the groups of each of these brokers with their settings."""

        async def ask(address: str) -> dict[str, Any]:
            response = await self._ask_broker(address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            return decode_group_configs(response.body)

        return await asyncio.gather(*map(ask, brokers))

    # --- brokers ---

    async def cluster_info(self, name_server: str | None = None) -> ClusterInfo:
        """Return all brokers as the name servers (or this one, `host:port`) know them."""
        if name_server is None:
            return await fetch_cluster(self._running().name_servers)
        response = await self._ask_server(name_server, request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return ClusterInfo.from_json(require_success(response, name_server).body)

    async def runtime_info(self, broker_addr: str) -> dict[str, str]:
        """Return the figures of a broker by name, as `mqadmin brokerStatus` shows them."""
        response = await self._ask_broker(broker_addr, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_kv_table(response.body)

    # --- inside ---

    async def _masters(self, brokers: Iterable[str] | None) -> list[str]:
        if isinstance(brokers, str):
            raise ConfigError(f"brokers are a list of addresses, not {brokers!r}")
        if brokers is not None:
            return list(brokers)
        info = await fetch_cluster(
            self._running().name_servers, full_timeout=True
        )  # a broker that is missed would not be changed
        masters = sorted(
            broker.broker_addrs[MASTER_ID] for broker in info.brokers.values() if MASTER_ID in broker.broker_addrs
        )
        if not masters:
            raise NoRoute("no broker is registered")
        return masters

    async def _brokers(self) -> list[str]:
        """Return one address of each broker, its master's if there is one."""
        groups = (await self.cluster_info()).brokers.values()
        found = sorted(group.broker_addrs[min(group.broker_addrs)] for group in groups if group.broker_addrs)
        if not found:
            raise NoRoute("no broker is registered")
        return found

    async def _current_config(self, address: str, topic: str) -> TopicConfig | None:
        try:
            return await self.topic_config(address, topic)
        except ServerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        # Brokers before RocketMQ 5 have no request for a single topic.
        response = await self._ask_broker(address, request(RequestCode.GET_ALL_TOPIC_CONFIG))
        return TopicConfigTable.from_json(response.body).topics.get(topic)

    async def _ask_server(self, address: str, command: RemotingCommand) -> RemotingCommand:
        instance = self._running()
        return await instance.pool.request(address, command, instance.config.request_timeout)

    async def _ask_broker(self, address: str, command: RemotingCommand) -> RemotingCommand:
        return require_success(await self._ask_server(address, command), address)

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise ClientClosed("the admin client is not started, or closed")
        return self._instance
