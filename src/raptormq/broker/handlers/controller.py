"""Requests that mqadmin sends to the controller of Apache RocketMQ 5: 1002, 1005, 1006, 1007, 1009, 1010, 1011
(``ControllerRequestProcessor``).

A Dledger group has no controller; its leader responds instead. ``mqadmin -a`` takes the address of any member: 1005
returns the address of the leader, to which mqadmin sends the other requests. The id of a member is the number in its
``dLegerSelfId`` plus one, which is its broker id while it follows. The epochs of the master and of the members in sync
are the Raft term. A broker that is not a member of a group refuses the requests with 3.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raptormq.broker.config import BrokerConfig, broker_id_of
from raptormq.errors import RaptorMQError
from raptormq.protocol.bodies.controller import Replica, ReplicasInfo, decode_broker_names, encode_epochs
from raptormq.protocol.bodies.replication import CopyState, ReplicationState
from raptormq.protocol.bodies.route import MASTER_ID, BrokerData
from raptormq.protocol.bodies.tolerant_json import dumps
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.controller import (
    CleanBrokerDataRequestHeader,
    ControllerMetadataResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
)
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

if TYPE_CHECKING:
    from raptormq.broker.replication import Replication

_ASK_S = 0.5
"""Time limit in seconds for a request of another member's address. mqadmin waits 3 s, and a transfer of leadership
takes up to 2 s.
"""
_VOTERS = ("leader", "follower")


class ControllerHandlers:
    """Serves the requests of RocketMQ's controller from the state of the group."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, address: str, replication: Replication | None
    ) -> None:
        """``address`` is the broker's address for clients. ``replication`` is None without a group."""
        self._config = config
        self._store = store
        self._address = address
        self._replication = replication

    def register(self, router: Router) -> None:
        """Register the request codes with the router."""
        router.add(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader, self.elect)
        router.add(RequestCode.CONTROLLER_GET_METADATA_INFO, None, self.metadata)
        router.add(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, self.sync_state)
        router.add(RequestCode.GET_BROKER_EPOCH_CACHE, None, self.epochs)
        router.add(RequestCode.UPDATE_CONTROLLER_CONFIG, None, self.update_settings)
        router.add(RequestCode.GET_CONTROLLER_CONFIG, None, self.settings)
        router.add(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequestHeader, self.clean)

    async def metadata(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """1005: return the leader of the group. Every member responds, with 14 if no leader is known."""
        replication = self._group()
        state, settings = replication.describe(), self._config.replication
        if not state.leader:
            raise replication.member.not_leader()
        header = ControllerMetadataResponseHeader(
            group=settings.group,
            controller_leader_id=state.leader,
            controller_leader_address=await self._address_of(replication, state.leader),
            is_leader=replication.member.leads,
            peers=settings.peers,
        )
        return response_to(command, header=header)

    async def elect(self, _: Connection, command: RemotingCommand, header: ElectMasterRequestHeader) -> RemotingCommand:
        """1002: transfer leadership to the member with the given id and respond when it leads; -1 selects the member
        with the longest log. An impossible transfer is refused with 604.
        """
        replication = self._leader(header.broker_name)
        to = self._member_with(header.broker_id) if header.broker_id >= 0 else ""
        if to != replication.member.id:
            await replication.transfer(to)
        state = replication.describe()
        addresses = await self._addresses(replication, state)
        by_id = {MASTER_ID if member == state.leader else broker_id_of(member): at for member, at in addresses.items()}
        identity = self._config.identity
        group = BrokerData(identity.cluster_name, identity.broker_name, by_id)
        master = ElectMasterResponseHeader(
            broker_id_of(state.leader), addresses.get(state.leader, ""), state.term, state.term
        )
        return response_to(command, header=master, body=dumps(group.to_dict()))

    async def sync_state(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """1006: return the members of the group, and which of them are in sync: voters that respond to the leader."""
        name = self._config.identity.broker_name
        replication = self._leader(name)
        if name not in decode_broker_names(command.body):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"this is the group of broker {name}, which is not asked for")
        state = replication.describe()
        addresses = await self._addresses(replication, state)
        replicas = [
            Replica(broker_id_of(each.id), addresses[each.id], bool(each.answering), _is_in_sync(each))
            for each in state.members
            if each.id in addresses
        ]
        master = broker_id_of(state.leader)
        info = ReplicasInfo(name, master, addresses.get(state.leader, ""), state.term, state.term, replicas)
        return response_to(command, body=info.to_json())

    def epochs(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """1007: return the terms of this member's log with their offsets."""
        replication, identity = self._group(), self._config.identity
        broker_id = MASTER_ID if replication.member.leads else self._config.replication.broker_id
        body = encode_epochs(
            identity.cluster_name, identity.broker_name, broker_id, replication.member.epochs, self._store.end_offset
        )
        return response_to(command, body=body)

    def settings(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """1010: return the settings of the group under the names of the controller's settings."""
        self._group()
        settings = self._config.replication
        pairs = {
            "controllerDLegerGroup": settings.group,
            "controllerDLegerPeers": settings.peers,
            "controllerDLegerSelfId": settings.self_id,
            "enableElectUncleanMaster": "false",
        }
        return response_to(command, body="".join(f"{key}={value}\n" for key, value in pairs.items()).encode())

    def update_settings(self, _: Connection, command: RemotingCommand, __: None) -> RemotingCommand:
        """1009: refuse with 604, because the settings of the group are in the ``broker.conf`` of its members."""
        self._group()
        raise Refused(
            ResponseCode.ILLEGAL_OPERATION,
            "a Dledger group has no controller: its settings are in the broker.conf of its members",
        )

    async def clean(
        self, _: Connection, command: RemotingCommand, header: CleanBrokerDataRequestHeader
    ) -> RemotingCommand:
        """1011: remove members from the group, and respond when the changes are committed. A member that responds is
        removed only with ``isCleanLivingBroker``.
        """
        replication = self._leader(header.broker_name)
        ids = list(filter(None, map(str.strip, (header.broker_controller_ids_to_clean or "").split(";"))))
        if not ids or not all(each.isascii() and each.isdigit() for each in ids):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "expected the ids of the members to remove, such as 2;3")
        members = [self._member_with(int(each)) for each in ids]
        answering = {each.id for each in replication.describe().members if each.answering}
        living = [member for member in members if member in answering]
        if living and not header.is_clean_living_broker:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"{', '.join(living)} responds: removed only with -l")
        for member in members:
            await replication.change_members("remove", member)
        return response_to(command)

    def _group(self) -> Replication:
        if self._replication is None:
            name = self._config.identity.broker_name
            raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"broker {name} is not a member of a Dledger group")
        return self._replication

    def _leader(self, broker_name: str) -> Replication:
        """Return the group if this member leads it and ``broker_name`` is the name of its brokers."""
        replication = self._group()
        if broker_name != self._config.identity.broker_name:
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"this is the group of broker {self._config.identity.broker_name}, not of {broker_name!r:.80}",
            )
        if (reason := replication.not_leader()) is not None:
            raise reason
        return replication

    def _member_with(self, broker_id: int) -> str:
        members = self._config.replication.addresses
        for member in members:
            if broker_id_of(member) == broker_id:
                return member
        known = ", ".join(f"{broker_id_of(member)} ({member})" for member in members)
        raise Refused(ResponseCode.ILLEGAL_OPERATION, f"no member has the id {broker_id}: expected one of {known}")

    async def _addresses(self, replication: Replication, state: ReplicationState) -> dict[str, str]:
        """Return the addresses of the members of the group for clients."""
        members = [each.id for each in state.members if each.role != "absent"]
        found = await asyncio.gather(*(self._address_of(replication, member) for member in members))
        return dict(zip(members, found, strict=True))

    async def _address_of(self, replication: Replication, member: str) -> str:
        """Return the address of a member for clients; if it does not respond, its address in ``dLegerPeers``."""
        if member == replication.member.id:
            return self._address
        try:
            return (await replication.ask(member, "", _ASK_S)).address
        except RaptorMQError:
            return self._config.replication.addresses.get(member, "")


def _is_in_sync(member: CopyState) -> bool:
    return bool(member.answering) and member.role in _VOTERS
