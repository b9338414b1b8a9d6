"""Routes, clusters and members of broker groups: requests 105, 106 and 901."""

from __future__ import annotations

from collections.abc import Callable

from raptormq.namesrv import views
from raptormq.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.table import RouteTable
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import ClusterInfoRequestHeader, MemberGroupRequestHeader, RouteRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class RouteHandlers:
    """Returns routes and broker groups.

    JSON keys are always quoted. RocketMQ omits the quotes for some clients, but all known clients accept them.
    """

    def __init__(self, table: RouteTable, kv: KvConfig, config: RunningConfig, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._kv = kv
        self._config = config
        self._now_ms = now_ms
        self._started_ms = now_ms()

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequestHeader, self.topic_route)
        router.add(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfoRequestHeader, self.cluster_info)
        router.add(RequestCode.GET_BROKER_MEMBER_GROUP, MemberGroupRequestHeader, self.member_group)

    def topic_route(self, _peer: Connection, request: RemotingCommand, header: RouteRequestHeader) -> RemotingCommand:
        """105 (GET_ROUTEINFO_BY_TOPIC): return the route of a topic, or code 17 if there is none."""
        config = self._config.current
        waited_ms = self._now_ms() - self._started_ms
        if config.need_wait_for_service and waited_ms < config.wait_seconds_for_service * 1000:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = views.topic_route(self._table, header.topic, acting_master=config.support_acting_master)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_NAMESPACE, header.topic)
        return response_to(request, body=route.to_json())

    def cluster_info(
        self, _peer: Connection, request: RemotingCommand, header: ClusterInfoRequestHeader
    ) -> RemotingCommand:
        """106 (GET_BROKER_CLUSTER_INFO): return all broker groups by cluster."""
        return response_to(request, body=views.cluster_info(self._table, with_lost=header.lost_brokers).to_json())

    def member_group(
        self, _peer: Connection, request: RemotingCommand, header: MemberGroupRequestHeader
    ) -> RemotingCommand:
        """901 (GET_BROKER_MEMBER_GROUP): return the members of one broker group."""
        group = views.member_group(self._table, header.cluster_name, header.broker_name).to_dict()
        del group["enableActingMaster"]
        return response_to(request, body=dumps({"brokerMemberGroup": group}))
