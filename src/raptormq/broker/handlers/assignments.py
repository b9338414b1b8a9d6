"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402)
(``QueryAssignmentProcessor``).

A name server provides the queues of all brokers. If no name server responds, the topic table of this broker is used.
"""

from __future__ import annotations

from raptormq.broker.clients import STRATEGIES, ClientRegistry, assign
from raptormq.broker.config import Identity
from raptormq.broker.registration import Registrar
from raptormq.broker.tables import GroupTable, RequestMode, RequestModeTable, TopicTable
from raptormq.errors import BodyError
from raptormq.protocol.bodies.heartbeat import BROADCASTING
from raptormq.protocol.bodies.queues import queue_to_dict
from raptormq.protocol.bodies.route import QueueData, TopicRoute
from raptormq.protocol.bodies.tolerant_json import dumps, loads_request
from raptormq.protocol.bodies.topic_config import Perm
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, request, response_to
from raptormq.protocol.headers.route import RouteRequestHeader
from raptormq.protocol.message import MessageQueue
from raptormq.protocol.topic_names import RETRY_PREFIX
from raptormq.security.tables import BeginChange
from raptormq.storage.fs import TableSaver
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

_ROUTE_S = 3.0


class AssignmentHandlers:
    """Handles requests for queue assignments and request modes."""

    def __init__(
        self,
        modes: RequestModeTable,
        modes_saver: TableSaver,
        begin_change: BeginChange,
        topics: TopicTable,
        groups: GroupTable,
        registry: ClientRegistry[Connection],
        registrar: Registrar,
        identity: Identity,
    ) -> None:
        self._modes = modes
        self._modes_saver = modes_saver
        self._begin_change = begin_change
        self._topics = topics
        self._groups = groups
        self._registry = registry
        self._registrar = registrar
        self._broker_name = identity.broker_name

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.QUERY_ASSIGNMENT, None, self.query)
        router.add(RequestCode.SET_MESSAGE_REQUEST_MODE, None, self.set_mode)
        router.add(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, None, self.all_modes)

    async def query(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """400: return the queues of a member.

        If they cannot be computed, the response contains no list, and the client does not change its queues.
        """
        value = loads_request(command.body)
        topic, group, member = (str(value.get(name) or "") for name in ("topic", "consumerGroup", "clientId"))
        mode = self._modes.get(topic, group)
        queues = await self._queues(topic)
        strategy = STRATEGIES.get(str(value.get("strategyName")))
        members = sorted(self._registry.client_ids(group))
        if value.get("messageModel") != BROADCASTING:
            if not queues or not members or strategy is None:
                return response_to(command, body=dumps({}))
            queues = assign(queues, members, member, strategy, mode)
        rows = [{"messageQueue": queue_to_dict(queue), "mode": mode.mode} for queue in queues]
        return response_to(command, body=dumps({"messageQueueAssignments": rows}))

    async def _queues(self, topic: str) -> list[MessageQueue]:
        command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequestHeader(topic))
        answer = await self._registrar.request_any(command, _ROUTE_S)
        config = self._topics.get(topic)
        found: list[QueueData] = []
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            found = TopicRoute.from_json(answer.body).queues
        elif answer is None and config is not None:
            found = [QueueData(self._broker_name, config.read_queue_nums, config.write_queue_nums, config.perm)]
        readable = [each for each in found if each.perm & Perm.READ]
        return sorted(
            MessageQueue(topic, each.broker_name, queue_id)
            for each in readable
            for queue_id in range(each.read_queue_nums)
        )

    def all_modes(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """402: return the modes of all groups in the format of the file."""
        return response_to(command, body=dumps(self._modes.to_dict()))

    async def set_mode(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """401: set the mode of a group for a topic."""
        value = loads_request(command.body)
        topic, group = str(value.get("topic") or ""), str(value.get("consumerGroup") or "")
        try:
            mode = RequestMode.from_dict(value)
        except BodyError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.get(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        confirmed = self._begin_change()
        self._modes.put(topic, group, mode)
        await self._modes_saver.saved()
        await confirmed()
        return response_to(command)
