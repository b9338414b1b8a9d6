"""Responses computed from the :class:`~raptormq.namesrv.table.RouteTable`: routes, clusters, lists of topics."""

from __future__ import annotations

from collections import defaultdict

from raptormq.namesrv.table import BrokerGroup, RouteTable
from raptormq.protocol.bodies.route import MASTER_ID, BrokerData, ClusterInfo, QueueData, TopicList, TopicRoute
from raptormq.protocol.bodies.topic_config import Perm


def topic_route(table: RouteTable, topic: str, *, acting_master: bool = False) -> TopicRoute | None:
    """Return the route of ``topic``, or None if no broker has it.

    With ``acting_master``, the slave with the lowest id of a group without master gets the master's id, so that clients
    continue to read. Its queues are read-only.
    """
    queues = table.queues.get(topic)
    if not queues:
        return None
    brokers = [_route_entry(table, queue, acting_master) for queue in queues.values()]
    return TopicRoute(list(queues.values()), brokers)


def cluster_info(table: RouteTable, *, with_lost: bool = False) -> ClusterInfo:
    """Return all broker groups, and their names by cluster; ``with_lost`` also the lost ones with their readable
    queues.
    """
    brokers = {name: _broker_data(name, group) for name, group in table.groups.items()}
    lost = {name: _readable(group.queues) for name, group in table.lost.items()} if with_lost else {}
    return ClusterInfo(brokers, clusters(table), lost)


def _readable(queues: dict[str, QueueData]) -> dict[str, int]:
    return {topic: data.read_queue_nums for topic, data in queues.items() if data.perm & Perm.READ}


def clusters(table: RouteTable) -> dict[str, list[str]]:
    """Return the names of the broker groups by cluster."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, group in table.groups.items():
        names[group.cluster].append(name)
    return dict(names)


def all_topics(table: RouteTable) -> TopicList:
    """Return all topics."""
    return TopicList(list(table.queues))


def topics_of_cluster(table: RouteTable, cluster: str) -> TopicList:
    """Return the topics of the brokers of ``cluster``."""
    names = set(clusters(table).get(cluster, ()))
    return TopicList([topic for topic, queues in table.queues.items() if not names.isdisjoint(queues)])


def system_topics(table: RouteTable) -> TopicList:
    """Return the names of clusters and brokers, which are topics, and the address of one broker. The client queries the
    other system topics from this broker.
    """
    topics = [name for cluster, brokers in clusters(table).items() for name in (cluster, *brokers)]
    return TopicList(topics, next(iter(table.live), None))


def flagged_topics(table: RouteTable, flag: int, without: int) -> TopicList:
    """Return the topics with the system flag ``flag`` and without the flag ``without`` on at least one broker."""
    names = [
        topic
        for topic, queues in table.queues.items()
        if any(queue.topic_sys_flag & flag and not queue.topic_sys_flag & without for queue in queues.values())
    ]
    return TopicList(names)


def member_group(table: RouteTable, cluster: str, broker_name: str) -> BrokerData:
    """Return the members of a broker group, without addresses if the group is unknown."""
    group = table.groups.get(broker_name)
    return BrokerData(cluster, broker_name, dict(group.addresses) if group else {})


def _broker_data(name: str, group: BrokerGroup) -> BrokerData:
    return BrokerData(group.cluster, name, dict(group.addresses))


def _route_entry(table: RouteTable, queue: QueueData, acting_master: bool) -> BrokerData:
    group = table.groups[queue.broker_name]
    entry = _broker_data(queue.broker_name, group)
    is_acting_master = acting_master and group.acting_master and not queue.perm & Perm.WRITE
    if is_acting_master and MASTER_ID not in entry.broker_addrs:
        entry.broker_addrs[MASTER_ID] = entry.broker_addrs.pop(min(entry.broker_addrs))
    return entry
