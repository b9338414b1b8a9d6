"""`AdminClient`: administration of topics, messages, groups and brokers.

    async with AdminClient(name_servers="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", read_queues=8, write_queues=8)

See also: `cluster.metadata` asks the name servers, `admin.message_query` finds messages; other requests go to broker
addresses. Source: RocketMQ `DefaultMQAdminExt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from raptormq.client.admin.access_requests import (
    create_user_request,
    delete_acl_request,
    delete_user_request,
    list_acls_request,
    list_users_request,
    put_acl_request,
    update_user_request,
)
from raptormq.client.admin.group_settings import GroupSettings
from raptormq.client.admin.message_query import MAX_QUERY_RESULTS, FoundMessages, fetch_message, query_messages
from raptormq.client.admin.topic_requests import check_topic_arguments, create_topic_request
from raptormq.client.background import gather_all
from raptormq.client.cluster import (
    InstanceClient,
    fetch_cluster,
    fetch_route,
    fetch_topics,
    parse_route,
    require_success,
    route_request,
)
from raptormq.client.config import ClientConfig
from raptormq.client.results import TopicChange, TopicConfigs
from raptormq.client.settings import LONG_MAX, check_setting
from raptormq.config_file import format_properties
from raptormq.errors import ConfigError, NoRoute, ServerError
from raptormq.protocol.bodies.access import Acl, AclEntry, UserInfo
from raptormq.protocol.bodies.conversion import QueueConversionState
from raptormq.protocol.bodies.group_progress import (
    GroupConnections,
    QueueProgress,
    decode_consume_stats,
    decode_group_configs,
)
from raptormq.protocol.bodies.queue_offsets import decode_offsets
from raptormq.protocol.bodies.queues import TopicOffset, decode_kv_table, decode_topic_stats
from raptormq.protocol.bodies.replication import ReplicationState
from raptormq.protocol.bodies.route import MASTER_ID, ClusterInfo, TopicRoute
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.bodies.topic_config import TopicConfig, TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request
from raptormq.protocol.headers.client import ConsumerGroupRequestHeader
from raptormq.protocol.headers.conversion import ConvertQueueRequestHeader
from raptormq.protocol.headers.ha import PromoteRequestHeader, PromoteResponseHeader
from raptormq.protocol.headers.relay import ResetOffsetRequestHeader
from raptormq.protocol.headers.replication import (
    ChangeMembersRequestHeader,
    DescribeReplicationRequestHeader,
    TransferLeadershipRequestHeader,
)
from raptormq.protocol.headers.route import DeleteTopicRequestHeader
from raptormq.protocol.headers.topic import (
    AllTopicsRequestHeader,
    ConsumeStatsRequestHeader,
    DeleteGroupRequestHeader,
    TopicRequestHeader,
)
from raptormq.protocol.message import MessageExt, MessageQueue
from raptormq.protocol.schema import decode_header
from raptormq.protocol.topic_names import check_group


class AdminClient(InstanceClient):
    """Client for the administration of one cluster.

    Every method raises `TransportError` if a server does not respond within the request timeout, `ServerError` if it
    refuses, and `ClientClosed` if the client is not started or closed.

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
        super().__init__("admin client", ClientConfig.choose(client_config, name_servers))

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
        """Create or update a topic on each of `brokers` (addresses); by default on all masters that the name servers
        return within the request timeout.

        Omitted arguments keep their values in an existing topic, and use the defaults in a new one.

        Args:
            topic: its name.
            read_queues: readable queues per broker; default 8. A smaller number than before hides the messages in the
                other queues.
            write_queues: writable queues per broker; default 8.
            perm: 6 read and write (default), 4 read, 2 write.
            attributes: attributes to set, such as `{"queue.type": "BatchCQ"}`; all others keep their values.
            brokers: addresses `host:port`.
            order: whether the topic is meant for ordered messages; default False.

        Returns:
            The change at each broker, by address.

        Raises:
            MessageError: `topic` is not a topic name.
            ConfigError: another argument is invalid.
            NoRoute: no broker is up.
            TransportError, ServerError: at least one broker failed; the request was sent to all others.
        """
        check_topic_arguments(topic, read_queues, write_queues, perm, attributes, order)
        given = {"read_queue_nums": read_queues, "write_queue_nums": write_queues, "perm": perm, "order": order}
        named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        changes: dict[str, TopicChange] = {}

        async def put(address: str) -> None:
            before = await self._current_config(address, topic)
            wanted = replace(before or TopicConfig(topic), **named)
            wanted.attributes = wanted.attributes | dict(attributes or {})
            # Send the request even without a change, because the broker may not have stored an earlier change on its
            # full disk.
            await self._ask_broker(
                address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, create_topic_request(wanted, attributes))
            )
            changes[address] = TopicChange.of(before, wanted)

        await gather_all(put(address) for address in await self._masters(brokers))
        return changes

    async def delete_topic(self, topic: str, *, brokers: Iterable[str] | None = None) -> None:
        """Delete a topic on each of `brokers` (addresses), by default on all masters as in `create_topic`, and then on
        every name server.

        Raises:
            TransportError, ServerError: at least one broker or name server failed; the request was sent to all others.
        """
        await gather_all(
            self._ask_broker(address, request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic)))
            for address in await self._masters(brokers)
        )
        if brokers is None:
            await gather_all(
                self._ask_broker(address, request(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader(topic)))
                for address in self._started_instance().name_servers.addresses
            )

    async def topics(self) -> list[str]:
        """Return the names of all topics, including system topics, sorted."""
        return sorted(await fetch_topics(self._started_instance().name_servers))

    async def route(self, topic: str, name_server: str | None = None) -> TopicRoute | None:
        """Return the route of a topic from all name servers, or from the given one (`host:port`); None if the topic
        does not exist. Waits for unresponsive name servers up to the request timeout.
        """
        if name_server is None:
            return await fetch_route(self._started_instance().name_servers, topic)
        return parse_route(await self._ask_server(name_server, route_request(topic)), name_server)

    async def topic_config(self, broker_addr: str, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic on a broker; None if the broker does not have the topic."""
        command = request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        instance = self._started_instance()
        response = await instance.pool.request(broker_addr, command, instance.config.request_timeout)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicConfig.from_json(require_success(response, broker_addr).body)

    async def topic_configs(self, broker_addr: str, *, unreadable: bool = False) -> TopicConfigs:
        """Return the configurations of all topics of a broker, including system topics (GET_ALL_TOPIC_CONFIG, 21).

        With `unreadable`, the result includes the messages in queues that consumers do not read.
        """
        header = AllTopicsRequestHeader(with_unreadable=True) if unreadable else None
        response = await self._ask_broker(broker_addr, request(RequestCode.GET_ALL_TOPIC_CONFIG, header))
        return TopicConfigs(response.body)

    async def put_topics(self, broker_addr: str, topics: Sequence[TopicConfig]) -> None:
        """Create or update topics on one broker with one request (UPDATE_AND_CREATE_TOPIC_LIST, 18).

        All values except attributes are replaced with those in `topics`. Attributes that are not named are kept.

        Raises:
            ServerError: The broker rejected a topic and has changed none.
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
        """Start, stop or describe the conversion of the queues of a topic at a broker. The conversion runs in the
        background.

        Args:
            broker_addr: address of the broker.
            topic: the topic.
            action: `"start"`, `"stop"` or `"status"`.
            to: with `"start"`, the new queue type: `"BatchCQ"` or `"SimpleCQ"`.

        Returns:
            The state of the conversion after the action.

        Raises:
            ServerError: 29 and 604 when the broker refuses, 17 without the topic, 3 from brokers other than RaptorMQ's.
        """
        header = ConvertQueueRequestHeader(topic, action, to)
        response = await self._ask_broker(broker_addr, request(RequestCode.CONVERT_QUEUE, header))
        return QueueConversionState.from_json(response.body)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the minimum and maximum offset of every queue of a topic.

        Raises:
            NoRoute: the topic does not exist, or no broker that has it is up.
        """
        found = await self._started_instance().routes.refresh(topic)
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
        (`message_id`) and were stored between two times, in ms since 1970. The messages are ordered by store time. The
        `failures` of the result contain the brokers that did not respond or refused, even if nothing was found.

        Raises:
            TransportError, ServerError: no broker responded.
            NoRoute: the topic does not exist, or no broker that has it is up.
            ServerError: 14 when only batches that are encrypted as a whole have the key.
            RecordError, KeyMissing: a message cannot be decrypted, decompressed or decoded.
            ConfigError: an argument is invalid.
        """
        return await query_messages(self._started_instance(), topic, key, begin_ms, end_ms, count)

    async def message(self, offset_message_id: str) -> MessageExt | None:
        """Return the message with an id that a broker assigned (`offset_message_id`: broker address and log position);
        None if the message is no longer stored. The id of a batch returns the first message of the batch. The request
        is sent to the address in the id.

        Raises:
            MessageError: the id is not valid.
            ServerError, RecordError, KeyMissing: as in `find_messages`.
        """
        return await fetch_message(self._started_instance(), offset_message_id, await self.cluster_info())

    # --- consumer groups ---

    async def groups(self) -> list[str]:
        """Return the names of the consumer groups of all brokers, including RocketMQ's system groups, sorted."""
        return sorted(set().union(*await self._group_configs(await self._brokers())))

    async def group_settings(self, group: str, *, brokers: Iterable[str] | None = None) -> dict[str, GroupSettings]:
        """Return the settings of a group at each broker that has the group, by broker address. Queries `brokers`
        (addresses), by default all masters.

        Raises:
            NoRoute: no broker is up.
        """
        addresses = await self._masters(brokers)
        tables = await self._group_configs(addresses)
        return {
            address: GroupSettings.from_dict(table[group])
            for address, table in zip(addresses, tables, strict=True)
            if group in table
        }

    async def create_group(
        self,
        group: str,
        *,
        consume: bool | None = None,
        broadcast: bool | None = None,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        brokers: Iterable[str] | None = None,
    ) -> dict[str, TopicChange]:
        """Create or update a consumer group on each of `brokers` (addresses), by default on all masters. Omitted
        arguments keep their values in an existing group, and use the defaults of the broker in a new one.

        Args:
            group: its name.
            consume: whether members may consume; default True.
            broadcast: whether members may consume in broadcasting mode; default True.
            max_retries: number of deliveries after the first one, before a message becomes a dead letter; default 16.
            retry_queues: number of queues of the retry topic; default 1.
            brokers: addresses `host:port`.

        Returns:
            The change at each broker, by address.

        Raises:
            MessageError: `group` is not a group name.
            ConfigError: another argument is invalid.
            NoRoute: no broker is up.
            TransportError, ServerError: at least one broker failed; all others were asked.
        """
        check_group(group)
        wanted = GroupSettings.changes(consume, broadcast, max_retries, retry_queues)
        addresses = await self._masters(brokers)
        tables = await self._group_configs(addresses)
        changes: dict[str, TopicChange] = {}

        async def put(address: str, before: dict[str, Any] | None) -> None:
            after = {"groupName": group} | (before or {}) | wanted
            body = dumps(after | {"attributes": {}})  # only changes of attributes are sent, and there are none
            await self._ask_broker(address, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
            changes[address] = TopicChange.of(before, after)

        await gather_all(put(address, table.get(group)) for address, table in zip(addresses, tables, strict=True))
        return changes

    async def delete_group(
        self, group: str, *, clean_offsets: bool = True, brokers: Iterable[str] | None = None
    ) -> None:
        """Delete a consumer group, with `clean_offsets` also its progress, on each of `brokers` (addresses), by default
        on all masters. A broker without the group changes nothing. Connected members create the group again.

        Raises:
            NoRoute: no broker is up.
            TransportError, ServerError: at least one broker failed; all others were asked.
        """
        check_group(group)
        header = DeleteGroupRequestHeader(group, clean_offsets)
        await self._ask_servers(lambda: request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header), brokers)

    async def group_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueProgress]:
        """Return the offsets of a group in every queue of a topic, by default of all topics with a committed offset;
        empty for an unknown group. The minimum offset is queried separately from brokers that do not return it, such as
        Apache RocketMQ's, so that only stored messages count as lag. Raises `NoRoute` while no broker is registered,
        `MessageError` for an invalid group name.
        """
        check_group(group)
        brokers = await self._brokers()
        found = await asyncio.gather(*(self._progress(address, group, topic) for address in brokers))
        begun = set() if topic else {queue.topic for here in found for queue in here}
        # A broker returns only topics with commits on that broker, but messages in its queues of other topics are lag,
        # too.
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
        """Return the connected members of a group and their subscriptions; None if there are none. Clients without
        heartbeats, such as pull consumers and Spark, are not included. Raises `NoRoute` while no broker is registered.
        """
        found: GroupConnections | None = None
        instance = self._started_instance()
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
        since 1970; 0 is the oldest message, -1 the end. Connected members continue at the new offsets. On a broker that
        has the topic but not the group, the group is created with its settings from another broker.

        Returns the new offsets.

        Raises:
            NoRoute: the topic does not exist, or one of its brokers has no master; no request was sent.
            TransportError, ServerError: a broker failed (26: no broker knows the group). Other brokers may have been
                reset; the call can be repeated safely.
        """
        found = await self._started_instance().routes.refresh(topic)
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
        """Copy the configuration of a group to those of the brokers that lack it."""
        tables = await self._group_configs(brokers)
        config = next((table[group] for table in tables if group in table), None)
        for address, table in zip(brokers, tables, strict=True):
            if config is not None and group not in table:
                command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=dumps(config))
                await self._ask_broker(address, command)

    async def _group_configs(self, brokers: Sequence[str]) -> list[dict[str, Any]]:
        """Return the settings of all groups by name, for each of `brokers`."""

        async def ask(address: str) -> dict[str, Any]:
            response = await self._ask_broker(address, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            return decode_group_configs(response.body)

        return await asyncio.gather(*map(ask, brokers))

    # --- brokers ---

    async def cluster_info(self, name_server: str | None = None) -> ClusterInfo:
        """Return all brokers from all name servers, or from the given one (`host:port`)."""
        if name_server is None:
            return await fetch_cluster(self._started_instance().name_servers)
        response = await self._ask_server(name_server, request(RequestCode.GET_BROKER_CLUSTER_INFO))
        return ClusterInfo.from_json(require_success(response, name_server).body)

    async def lost_brokers(self) -> dict[str, dict[str, int]]:
        """Return the broker groups that are not registered any more, with their number of readable queues by topic.

        Name servers remember them for 72 hours, until they are restarted. Name servers of Apache RocketMQ know none.
        """
        return (await fetch_cluster(self._started_instance().name_servers, full_timeout=True, with_lost=True)).lost

    async def masters(self) -> list[str]:
        """Return the addresses of the masters of all brokers, and of the leaders of Dledger groups, in order.

        Raises:
            NoRoute: no broker is up.
        """
        # Waits for all name servers: a missing broker would not be changed.
        info = await fetch_cluster(self._started_instance().name_servers, full_timeout=True)
        masters = sorted(
            broker.broker_addrs[MASTER_ID] for broker in info.brokers.values() if MASTER_ID in broker.broker_addrs
        )
        if not masters:
            raise NoRoute("no broker is registered")
        return masters

    async def runtime_info(self, broker_addr: str) -> dict[str, str]:
        """Return the runtime information of a broker by name, as shown by `mqadmin brokerStatus`."""
        response = await self._ask_broker(broker_addr, request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_kv_table(response.body)

    async def broker_settings(self, broker_addr: str) -> dict[str, str]:
        """Return the current settings of a broker by key, as in broker.conf."""
        response = await self._ask_broker(broker_addr, request(RequestCode.GET_BROKER_CONFIG))
        # Unlike a settings file, the response has one line for each setting and no escapes.
        lines = response.body.decode(errors="replace").split("\n")
        return {key: value for key, _, value in (line.partition("=") for line in lines) if key}

    async def update_broker_settings(self, broker_addr: str, settings: Mapping[str, str]) -> str:
        """Change settings of a broker, all or none; the broker writes them to its settings file.

        Returns which of them take effect only at the next start, as a sentence of the broker; empty if all are in
        effect.

        Raises:
            ServerError: 29 if a key or a value is invalid, 16 if no request may change a key.
        """
        check_setting("settings", settings, Mapping)
        command = request(RequestCode.UPDATE_BROKER_CONFIG, body=format_properties(settings).encode())
        return (await self._ask_broker(broker_addr, command)).remark or ""

    async def replication(self, broker_addr: str, *, restarting: str | None = None) -> ReplicationState:
        """Return the replication status of a broker and its group. Only the leader has the lag of the other members.
        With `restarting`, the id of a member, the leader also returns whether that member may be restarted.

        Raises:
            ServerError: 3 from brokers other than RaptorMQ's.
        """
        header = DescribeReplicationRequestHeader(restarting)
        response = await self._ask_broker(broker_addr, request(RequestCode.DESCRIBE_REPLICATION, header))
        return ReplicationState.from_json(response.body)

    async def transfer_leadership(self, broker_addr: str, to: str | None = None) -> ReplicationState:
        """Request a transfer of leadership from the leader of a group to the member `to` (such as `"n1"`), or to the
        member with the longest log. Returns when that member is the leader, at most after 2 s.

        Raises:
            ServerError: 14 if the broker is not the leader, 604 if leadership cannot be transferred to that member.
        """
        header = TransferLeadershipRequestHeader(to)
        response = await self._ask_broker(broker_addr, request(RequestCode.TRANSFER_LEADERSHIP, header))
        return ReplicationState.from_json(response.body)

    async def change_members(self, broker_addr: str, action: str, member: str) -> ReplicationState:
        """Request a membership change from the leader of a group: `"add"` a member (which votes when it has caught up),
        `"addLearner"`, `"promote"` a learner, or `"remove"` a member. A new member must be in `dLegerPeers` of all
        members and run with an empty disk. Only one change may be in progress. Returns when a majority has the change.

        Raises:
            ServerError: 14 if the broker is not the leader, 604 if the change is not possible.
        """
        header = ChangeMembersRequestHeader(member, action)
        response = await self._ask_broker(broker_addr, request(RequestCode.CHANGE_MEMBERS, header))
        return ReplicationState.from_json(response.body)

    # --- users and their permissions ---

    async def users(self, text: str = "", *, servers: Iterable[str] | None = None) -> dict[str, list[UserInfo]]:
        """Return the users whose name contains `text`, by the address of the server. Asks `servers` (addresses of
        brokers or name servers), by default all masters. Each server has users of its own.

        Raises:
            NoRoute: no broker is up.
        """
        responses = await self._ask_servers(lambda: list_users_request(text), servers)
        return {address: UserInfo.list_from_json(response.body) for address, response in responses.items()}

    async def create_user(
        self,
        username: str,
        password: str,
        *,
        user_type: str = "Normal",
        status: str = "enable",
        servers: Iterable[str] | None = None,
    ) -> None:
        """Create a user on each of `servers` (addresses of brokers or name servers), by default on all masters.

        Args:
            username: its name, the access key of its clients.
            password: the secret key of its clients. The request contains it in clear text, so use TLS.
            user_type: `"Normal"`, or `"Super"` for all permissions.
            status: `"enable"` or `"disable"`.
            servers: addresses `host:port`.

        Raises:
            ConfigError: an argument is invalid.
            NoRoute: no broker is up.
            TransportError, ServerError: at least one server failed, such as one that has the user (16); all others were
                asked.
        """
        await self._ask_servers(lambda: create_user_request(username, password, user_type, status), servers)

    async def update_user(
        self,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        status: str | None = None,
        servers: Iterable[str] | None = None,
    ) -> None:
        """Change a user on each of `servers`, by default on all masters. None keeps a value.

        Raises: as `create_user`; a server without the user refuses with 16.
        """
        await self._ask_servers(lambda: update_user_request(username, password, user_type, status), servers)

    async def delete_user(self, username: str, *, servers: Iterable[str] | None = None) -> None:
        """Delete a user and its ACL on each of `servers`, by default on all masters. A server without the user changes
        nothing.

        Raises: as `create_user`.
        """
        await self._ask_servers(lambda: delete_user_request(username), servers)

    async def acls(self, text: str = "", *, servers: Iterable[str] | None = None) -> dict[str, list[Acl]]:
        """Return the ACLs of the users whose name contains `text`, by the address of the server.

        Raises: as `users`.
        """
        responses = await self._ask_servers(lambda: list_acls_request(text), servers)
        found = {address: Acl.list_from_json(response.body) for address, response in responses.items()}
        return {address: [acl for acl in acls if text in acl.username] for address, acls in found.items()}

    async def put_acl(
        self, username: str, entries: Sequence[AclEntry], *, servers: Iterable[str] | None = None
    ) -> None:
        """Add entries to the ACL of a user on each of `servers`, by default on all masters. An entry replaces the one
        of the same policy and resource.

        Raises: as `create_user`; a server without the user refuses with 16.
        """
        await self._ask_servers(lambda: put_acl_request(username, entries), servers)

    async def delete_acl(
        self,
        username: str,
        resource: str | None = None,
        *,
        policy: str | None = None,
        servers: Iterable[str] | None = None,
    ) -> None:
        """Delete the ACL of a user, or its entry for `resource` in `policy` (default `"Custom"`), on each of `servers`,
        by default on all masters.

        Raises: as `create_user`; a server without the user or the ACL refuses with 16.
        """
        await self._ask_servers(lambda: delete_acl_request(username, resource, policy), servers)

    # --- inside ---

    async def _ask_servers(
        self, make: Callable[[], RemotingCommand], servers: Iterable[str] | None
    ) -> dict[str, RemotingCommand]:
        """Send a request of its own to each server, by default to all masters, and return the responses by address.
        Raises the first error after all servers have responded or failed.
        """
        make()  # an invalid argument is an error even where no broker is up
        responses: dict[str, RemotingCommand] = {}

        async def ask(address: str) -> None:
            responses[address] = await self._ask_broker(address, make())

        await gather_all(ask(address) for address in await self._masters(servers))
        return responses

    async def _masters(self, brokers: Iterable[str] | None) -> list[str]:
        if isinstance(brokers, str):
            raise ConfigError(f"brokers must be a list of addresses, not {brokers!r}")
        if brokers is not None:
            return list(brokers)
        return await self.masters()

    async def _brokers(self) -> list[str]:
        """Return one address of each broker, preferably that of its master."""
        groups = (await self.cluster_info()).brokers.values()
        found = sorted(group.broker_addrs[min(group.broker_addrs)] for group in groups if group.broker_addrs)
        if not found:
            raise NoRoute("no broker is registered")
        return found

    async def promote_slave(self, broker_addr: str, *, force: bool = False) -> tuple[int, int]:
        """Promote a slave to master (31022). Return the end offset of its log, and the last known end offset of its
        master's log.

        Args:
            broker_addr: address of the slave.
            force: promote even if its master responds; both then accept messages.

        Raises:
            ServerError: The broker is not a slave, its master responds, or its settings file cannot be written.
        """
        response = await self._ask_broker(broker_addr, request(RequestCode.PROMOTE, PromoteRequestHeader(force)))
        found = decode_header(PromoteResponseHeader, response.ext_fields)
        return found.log_end, found.master_end

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
        instance = self._started_instance()
        return await instance.pool.request(address, command, instance.config.request_timeout)

    async def _ask_broker(self, address: str, command: RemotingCommand) -> RemotingCommand:
        return require_success(await self._ask_server(address, command), address)
