"""Write permission of a broker: 205 removes it, so that producers do not use the broker, and 327 restores it."""

from __future__ import annotations

from raptormq.namesrv.table import RouteTable
from raptormq.protocol.codes import RequestCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import (
    AddWritePermResponseHeader,
    BrokerNameRequestHeader,
    WipeWritePermResponseHeader,
)
from raptormq.transport.connection import Connection
from raptormq.transport.router import Router


class PermissionHandlers:
    """Changes the WRITE permission of all topics of a broker."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader, self.wipe)
        router.add(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader, self.add)

    def wipe(self, _peer: Connection, request: RemotingCommand, header: BrokerNameRequestHeader) -> RemotingCommand:
        """205 (WIPE_WRITE_PERM_OF_BROKER): remove the write permission of all topics of a broker."""
        count = self._table.wipe_write_permission(header.broker_name)
        return response_to(request, header=WipeWritePermResponseHeader(count))

    def add(self, _peer: Connection, request: RemotingCommand, header: BrokerNameRequestHeader) -> RemotingCommand:
        """327 (ADD_WRITE_PERM_OF_BROKER): restore the write permission of all topics of a broker."""
        count = self._table.add_write_permission(header.broker_name)
        return response_to(request, header=AddWritePermResponseHeader(count))
