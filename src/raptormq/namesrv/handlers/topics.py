"""Lists of topics, and changes of routes by request: 206, 216, 217, 224, 304 and 311 to 313."""

from __future__ import annotations

from raptormq.namesrv import views
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.table import RouteTable
from raptormq.protocol.bodies.route import TopicList, TopicRoute
from raptormq.protocol.bodies.topic_config import TopicFlag
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import ClusterRequestHeader, DeleteTopicRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class TopicHandlers:
    """Lists, adds and removes topics."""

    def __init__(self, table: RouteTable, config: RunningConfig) -> None:
        self._table = table
        self._config = config

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, self.all_topics)
        router.add(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader, self.delete)
        router.add(RequestCode.REGISTER_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader, self.register)
        router.add(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterRequestHeader, self.topics_of_cluster)
        router.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, self.system_topics)
        router.add(RequestCode.GET_UNIT_TOPIC_LIST, None, self.unit_topics)
        router.add(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None, self.unit_subscribed_topics)
        router.add(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, self.other_unit_subscribed_topics)

    def all_topics(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """206 (GET_ALL_TOPIC_LIST_FROM_NAMESERVER): return all topics."""
        return _listed(request, self._config.current.enable_all_topic_list, views.all_topics(self._table))

    def topics_of_cluster(
        self, _peer: Connection, request: RemotingCommand, header: ClusterRequestHeader
    ) -> RemotingCommand:
        """224 (GET_TOPICS_BY_CLUSTER): return the topics of a cluster."""
        topics = views.topics_of_cluster(self._table, header.cluster)
        return _listed(request, self._config.current.enable_topic_list, topics)

    def system_topics(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """304 (GET_SYSTEM_TOPIC_LIST_FROM_NS): return the names of clusters and brokers, which are topics."""
        return _listed(request, self._config.current.enable_topic_list, views.system_topics(self._table))

    def unit_topics(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """311 (GET_UNIT_TOPIC_LIST): return the topics with the flag UNIT."""
        return self._flagged(request, TopicFlag.UNIT)

    def unit_subscribed_topics(self, _peer: Connection, request: RemotingCommand, _header: None) -> RemotingCommand:
        """312 (GET_HAS_UNIT_SUB_TOPIC_LIST): return the topics with the flag UNIT_SUBSCRIBED."""
        return self._flagged(request, TopicFlag.UNIT_SUBSCRIBED)

    def other_unit_subscribed_topics(
        self, _peer: Connection, request: RemotingCommand, _header: None
    ) -> RemotingCommand:
        """313 (GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST): return the topics with the flag UNIT_SUBSCRIBED, without UNIT."""
        return self._flagged(request, TopicFlag.UNIT_SUBSCRIBED, without=TopicFlag.UNIT)

    def _flagged(self, request: RemotingCommand, flag: TopicFlag, *, without: int = 0) -> RemotingCommand:
        topics = views.flagged_topics(self._table, flag, without)
        return _listed(request, self._config.current.enable_topic_list, topics)

    def delete(self, _peer: Connection, request: RemotingCommand, header: DeleteTopicRequestHeader) -> RemotingCommand:
        """216 (DELETE_TOPIC_IN_NAMESRV): remove a topic from all brokers, or from those of one cluster."""
        self._table.delete_topic(header.topic, header.cluster_name or None)
        return response_to(request)

    def register(
        self, _peer: Connection, request: RemotingCommand, header: DeleteTopicRequestHeader
    ) -> RemotingCommand:
        """217 (REGISTER_TOPIC_IN_NAMESRV): add queues of a topic."""
        route = TopicRoute.from_json(request.body) if request.body else TopicRoute()
        self._table.register_topic(header.topic, route.queues)
        return response_to(request)


def _listed(request: RemotingCommand, enabled: bool, topics: TopicList) -> RemotingCommand:
    if not enabled:
        raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
    return response_to(request, body=topics.to_json())
