"""Requests of brokers: 103, 104, 322 and 904, and closed connections."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from raptormq.logs import get_logger
from raptormq.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from raptormq.namesrv.running_config import RunningConfig
from raptormq.namesrv.table import Registration, RegistrationRefused, RouteTable
from raptormq.protocol.bodies.queues import encode_kv_table
from raptormq.protocol.bodies.route import decode_registration
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfigTable
from raptormq.protocol.codes import RequestCode, ResponseCode
from raptormq.protocol.command import RemotingCommand, response_to
from raptormq.protocol.headers.route import (
    BrokerHeartbeatRequestHeader,
    DataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from raptormq.transport.connection import Connection
from raptormq.transport.router import Refused, Router

logger = get_logger(__name__)

_CRC_MASK = 0x7FFFFFFF


class RegistrationHandlers:
    """Registers brokers in the route table and removes them."""

    def __init__(
        self,
        table: RouteTable,
        kv: KvConfig,
        config: RunningConfig,
        now_ms: Callable[[], int],
        on_registered: Callable[[], None],
    ) -> None:
        self._table = table
        self._kv = kv
        self._config = config
        self._now_ms = now_ms
        self._on_registered = on_registered
        self.displaced_count = 0
        """Number of brokers that a registration on another connection displaced while their connection was open."""
        self.foreign_unregister_count = 0
        """Number of brokers that another connection unregistered while their connection was open."""

    def add_to(self, router: Router) -> None:
        """Register the handlers."""
        router.add(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, self.register)
        router.add(RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequestHeader, self.unregister)
        router.add(RequestCode.QUERY_DATA_VERSION, UnregisterBrokerRequestHeader, self.query_data_version)
        router.add(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, self.heartbeat)
        router.on_closed(self.closed)

    def register(
        self, peer: Connection, request: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> RemotingCommand:
        """103 (REGISTER_BROKER): register a broker with all its topics, or with changed topics. A complete registration
        removes the other topics of the broker.
        """
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & _CRC_MASK:
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        registration = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            table=decode_registration(request.body) if request.body else TopicConfigTable(),
            channel=peer,
            timeout_ms=header.heartbeat_timeout_millis,
            enable_acting_master=header.enable_acting_master,
            is_shared=bool(header.shared_address),
        )
        displaced = self._table.displaced_by(registration)
        is_new = header.broker_addr not in self._table.live
        delete_missing = header.complete_topic_table
        if delete_missing is None:
            delete_missing = self._config.current.delete_topic_with_broker_registration
        try:
            master = self._table.register(registration, self._now_ms(), delete_missing=delete_missing)
        except RegistrationRefused as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if is_new:
            logger.info(
                "broker %s (id %d) at %s is registered", header.broker_name, header.broker_id, header.broker_addr
            )
        self._log_displaced(displaced, peer, header)
        self._on_registered()
        answer = RegisterBrokerResponseHeader(master.ha_address, master.address) if master else None
        return response_to(request, header=answer, body=self._order_topics())

    def _log_displaced(self, displaced: list[str], peer: Connection, header: RegisterBrokerRequestHeader) -> None:
        """Log displaced brokers whose connection is still open. The cause is either a new address of a pod, or a second
        broker with the same name and id.
        """
        for address in displaced:
            if self._table.channel_of(address) not in (None, peer):  # not displaced: it has a larger state version
                continue
            self.displaced_count += 1
            logger.warning(
                "broker %s (id %d) at %s, registered by %s, displaces %s, which has not unregistered and whose "
                "connection is open",
                header.broker_name,
                header.broker_id,
                header.broker_addr,
                peer.peer_name,
                address if address != header.broker_addr else "its previous registration",
            )

    def unregister(
        self, peer: Connection, request: RemotingCommand, header: UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        """104 (UNREGISTER_BROKER): remove a broker that stops."""
        is_own = self._table.channel_of(header.broker_addr) in (None, peer)
        if self._table.unregister(header.broker_name, header.broker_addr) and not is_own:
            self.foreign_unregister_count += 1
            logger.warning(
                "broker %s at %s was unregistered by %s, while its own connection is open",
                header.broker_name,
                header.broker_addr,
                peer.peer_name,
            )
        return response_to(request)

    def query_data_version(
        self, _peer: Connection, request: RemotingCommand, header: UnregisterBrokerRequestHeader
    ) -> RemotingCommand:
        """322 (QUERY_DATA_VERSION): return whether the broker must register again, and renew its lease."""
        sent = DataVersion.from_dict(loads_object(request.body)) if request.body else DataVersion()
        self._table.touch(header.broker_addr, self._now_ms())
        known = self._table.data_version(header.broker_addr)
        body = dumps(known.to_dict()) if known else b""
        return response_to(request, header=DataVersionResponseHeader(known != sent), body=body)

    def heartbeat(
        self, _peer: Connection, request: RemotingCommand, header: BrokerHeartbeatRequestHeader
    ) -> RemotingCommand:
        """904 (BROKER_HEARTBEAT): renew the lease of a broker."""
        self._table.touch(header.broker_addr, self._now_ms(), header.heartbeat_timeout_mills)
        return response_to(request)

    def closed(self, peer: Connection) -> None:
        """Remove the brokers that registered on a closed connection."""
        self._table.channel_closed(peer)

    def _order_topics(self) -> bytes:
        if not self._config.current.return_order_topic_config_to_broker:
            return b""
        table = self._kv.namespace(ORDER_TOPIC_NAMESPACE)
        return encode_kv_table(table) if table else b""
