"""Requests about replication: DESCRIBE_REPLICATION (31011), TRANSFER_LEADERSHIP (31012), CHANGE_MEMBERS (31014).

Apache RocketMQ does not have these requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptormq.broker.roles import unreplicated
from raptormq.broker.scrubber import Scrubber
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.replication import (
    ChangeMembersRequestHeader,
    DescribeReplicationRequestHeader,
    TransferLeadershipRequestHeader,
)
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

if TYPE_CHECKING:
    from raptormq.broker.ha import HaStatus
    from raptormq.broker.replication import Replication


class ReplicationHandlers:
    """Handles requests about the replication of this broker."""

    def __init__(
        self,
        broker_name: str,
        address: str,
        store: MessageStore,
        replication: Replication | None,
        scrubber: Scrubber,
        ha: HaStatus | None = None,
    ) -> None:
        """Create the handlers.

        Args:
            broker_name: name of the broker.
            address: address of the broker for clients.
            store: the store of the broker.
            replication: the group member; None if the broker is not a member of a group.
            scrubber: reports damage of the log.
            ha: status of a master or slave; None otherwise.
        """
        self._ha = ha
        self._broker_name = broker_name
        self._address = address
        self._store = store
        self._replication = replication
        self._scrubber = scrubber

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.DESCRIBE_REPLICATION, DescribeReplicationRequestHeader, self.describe)
        router.add(RequestCode.TRANSFER_LEADERSHIP, TransferLeadershipRequestHeader, self.transfer)
        router.add(RequestCode.CHANGE_MEMBERS, ChangeMembersRequestHeader, self.change_members)

    def describe(
        self, _: Connection, command: RemotingCommand, header: DescribeReplicationRequestHeader
    ) -> RemotingCommand:
        """Handle 31011: return the status of the group, or of a master and its slaves."""
        restarting = header.restarting or ""
        if self._ha is not None:
            state = self._ha.describe(restarting)
        elif self._replication is not None:
            state = self._replication.describe(restarting)
        else:
            state = unreplicated(self._broker_name, self._store, self._address)
        return response_to(command, body=self._scrubber.report(state).to_json())

    async def transfer(
        self, _: Connection, command: RemotingCommand, header: TransferLeadershipRequestHeader
    ) -> RemotingCommand:
        """Handle 31012: transfer leadership and respond when the other member leads. A follower refuses with 14. An
        impossible transfer is refused with 604.
        """
        replication = self._group()
        await replication.transfer(header.to or "")
        return response_to(command, body=replication.describe().to_json())

    async def change_members(
        self, _: Connection, command: RemotingCommand, header: ChangeMembersRequestHeader
    ) -> RemotingCommand:
        """Handle 31014: change the members and respond when the change is committed. A follower refuses with 14. An
        impossible change is refused with 604.
        """
        replication = self._group()
        await replication.change_members(header.action, header.member)
        return response_to(command, body=replication.describe().to_json())

    def _group(self) -> Replication:
        if self._replication is None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"broker {self._broker_name} is not a member of a group")
        return self._replication
