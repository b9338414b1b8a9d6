"""Administration queries about producers: 204 (one group), 328 (all groups) (``AdminBrokerProcessor``)."""

from __future__ import annotations

from raptormq.broker.clients import ClientRegistry
from raptormq.broker.handlers.consumers import described
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.client import ProducerGroupRequestHeader
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router


class ProducerHandlers:
    """Lists the connected producers."""

    def __init__(self, registry: ClientRegistry[Connection]) -> None:
        self._registry = registry

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupRequestHeader, self.connections)
        router.add(RequestCode.GET_ALL_PRODUCER_INFO, None, self.all)

    def connections(
        self, _: Connection, command: RemotingCommand, header: ProducerGroupRequestHeader
    ) -> RemotingCommand:
        """204: return the members of a group, or code 1 if no member is connected."""
        members = self._registry.producers.get(header.producer_group)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no producer of group {header.producer_group} is connected")
        body = {"connectionSet": [described(member).to_dict() for member in members.values()]}
        return response_to(command, body=dumps(body))

    def all(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """328: return the members of all groups."""
        data = {
            group: [
                {
                    "clientId": member.client_id,
                    "language": described(member).language,
                    "lastUpdateTimestamp": member.seen_ms,
                    "remoteIP": member.connection.peer_name,
                    "version": member.version,
                }
                for member in members.values()
            ]
            for group, members in self._registry.producers.items()
        }
        return response_to(command, body=dumps({"data": data}))
