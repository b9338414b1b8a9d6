"""The route table: brokers, their liveness and the queues that each serves (RocketMQ ``RouteInfoManager``).

Pure state: no socket, no clock, no file. The time is an argument ``now_ms``, and a connection is any hashable value.
:mod:`raptormq.namesrv.views` derives the responses.

Invariants, checked by the property tests:

- a broker group that is listed has at least one address, and an address belongs to one group under one id;
- every listed address has a live record and vice versa, so that whatever registered also expires;
- queues refer to listed groups only, and a topic without queues is not listed.

Two deliberate differences from RocketMQ concern reused addresses, as pods have them. A live record is keyed by address
alone, and an address that registers under another broker name leaves its old group at once. RocketMQ would keep the
dead entry alive as long as the new broker sends heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import MASTER_ID, QueueData
from raptormq.protocol.bodies.topic_config import READ_WRITE, DataVersion, Perm, TopicConfig, TopicConfigTable

DEFAULT_EXPIRY_MS = 120_000
"""A broker that is silent for this long is removed, unless it announced its own timeout (milliseconds)."""

log = get_logger(__name__)


class RegistrationRefused(RaptorMQError):
    """The broker must register in full first; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The data of a REGISTER_BROKER request (103).

    ``table`` holds all topics of the broker, or those that are new or changed. ``enable_acting_master`` is None for
    brokers that do not know it. ``channel`` is the connection of the registration: the broker is removed when it
    closes.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    table: TopicConfigTable
    channel: Hashable
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Response to a slave's registration: where its master serves requests and where it replicates from."""

    address: str
    ha_address: str


@dataclass(slots=True)
class LiveBroker:
    """Liveness of one address. Registrations, version queries and heartbeats update ``last_seen_ms``."""

    broker_name: str
    ha_address: str
    data_version: DataVersion
    channel: Hashable
    timeout_ms: int
    last_seen_ms: int


@dataclass(slots=True)
class BrokerGroup:
    """The brokers of one name: a master (id 0) and its slaves."""

    cluster: str
    acting_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)

    def id_of(self, address: str) -> int | None:
        """Return the id under which ``address`` is listed; None when it is not."""
        return next((broker_id for broker_id, listed in self.addresses.items() if listed == address), None)


class RouteTable:
    """All known brokers and topics."""

    def __init__(self) -> None:
        self.groups: dict[str, BrokerGroup] = {}
        self.live: dict[str, LiveBroker] = {}
        self.queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues

    # -- brokers come --------------------------------------------------------------------------------------------------

    def register(
        self, registration: Registration, now_ms: int, *, delete_missing: bool = False
    ) -> MasterAddress | None:
        """Apply a registration; return the master's addresses to a slave whose master is alive.

        With ``delete_missing`` the registration is complete, and other topics of the broker are removed.

        A broker is ignored when its id is held by another address with a larger state version. It is told success, as
        in RocketMQ: it learns from its peers that it lost.

        Raises:
            RegistrationRefused: an unregistered broker sent a single topic; it has to send all of them.
        """
        group = self.groups.get(registration.broker_name)
        holder = group.addresses.get(registration.broker_id) if group else None
        if holder is None and len(registration.table.topics) == 1:
            raise RegistrationRefused("register broker failed")
        if holder is not None and holder != registration.address and self._is_outranked(holder, registration):
            self._remove_address(registration.address)
            return None
        known_version = self.data_version(registration.address)
        group = self._assign_address(registration)
        self.live[registration.address] = LiveBroker(
            broker_name=registration.broker_name,
            ha_address=registration.ha_address,
            data_version=registration.table.data_version,
            channel=registration.channel,
            timeout_ms=registration.timeout_ms or DEFAULT_EXPIRY_MS,
            last_seen_ms=now_ms,
        )
        changed = holder != registration.address or known_version != registration.table.data_version
        if _may_bring_topics(group, registration):
            if delete_missing:
                self._drop_missing_topics(registration)
            self._add_topics(group, registration, changed)
        return self._master_for(group, registration.broker_id)

    def displaced_by(self, registration: Registration) -> list[str]:
        """Return the addresses of brokers that would lose their id or their address to the registration, although they
        are registered by another connection that is open.
        """
        group = self.groups.get(registration.broker_name)
        holder = group.addresses.get(registration.broker_id) if group else None
        candidates = dict.fromkeys((holder, registration.address))
        return [
            address
            for address in candidates
            if address is not None
            and (live := self.live.get(address)) is not None
            and live.channel != registration.channel
        ]

    def touch(self, address: str, now_ms: int, timeout_ms: int | None = None) -> None:
        """Update the last sign of life. An unknown address is ignored; it has to register."""
        live = self.live.get(address)
        if live is not None:
            live.last_seen_ms = now_ms
            live.timeout_ms = timeout_ms or live.timeout_ms

    def data_version(self, address: str) -> DataVersion | None:
        """Return the version of the topic table that ``address`` registered last."""
        live = self.live.get(address)
        return live.data_version if live else None

    # -- brokers go ----------------------------------------------------------------------------------------------------

    def channel_of(self, address: str) -> Hashable | None:
        """Return the connection of the last registration of ``address``."""
        live = self.live.get(address)
        return live.channel if live else None

    def unregister(self, broker_name: str, address: str) -> bool:
        """Remove one broker; return whether it was listed."""
        live = self.live.get(address)
        if live is None or live.broker_name != broker_name:
            return False
        self._remove_address(address)
        return True

    def channel_closed(self, channel: Hashable) -> list[str]:
        """Remove the brokers whose last registration came over ``channel``; return their addresses."""
        gone = [address for address, live in self.live.items() if live.channel == channel]
        self._remove_addresses(gone)
        return gone

    def expire(self, now_ms: int) -> list[str]:
        """Remove the brokers that were silent for longer than their timeout; return their addresses."""
        gone = [address for address, live in self.live.items() if live.last_seen_ms + live.timeout_ms < now_ms]
        self._remove_addresses(gone)
        return gone

    # -- topics --------------------------------------------------------------------------------------------------------

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add queues of ``topic`` by request (217); queues of unregistered brokers are ignored."""
        known = {data.broker_name: data for data in queue_datas if data.broker_name in self.groups}
        if known:
            self.queues.setdefault(topic, {}).update(known)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove ``topic``, from all brokers or from those of one cluster."""
        brokers = list(self.queues.get(topic, ()))
        for broker_name in brokers:
            if cluster is None or self.groups[broker_name].cluster == cluster:
                self._drop_queues(topic, broker_name)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Clear WRITE on every topic of a broker until its topic table changes; return the number of topics."""
        return self._change_permission(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Set READ and WRITE, and nothing else, on every topic of a broker; return the number of topics."""
        return self._change_permission(broker_name, lambda _perm: READ_WRITE)

    # -- inner parts ---------------------------------------------------------------------------------------------------

    def _is_outranked(self, holder: str, newcomer: Registration) -> bool:
        live = self.live.get(holder)
        return live is not None and live.data_version.state_version > newcomer.table.data_version.state_version

    def _assign_address(self, registration: Registration) -> BrokerGroup:
        """List the address under its group and id, and nowhere else."""
        address = registration.address
        former = self.live.get(address)
        if former is not None and former.broker_name != registration.broker_name:
            self._remove_address(address)
        group = self.groups.setdefault(registration.broker_name, BrokerGroup(registration.cluster))
        group.cluster = registration.cluster
        group.acting_master = bool(registration.enable_acting_master)
        former_id = group.id_of(address)
        if former_id is not None and former_id != registration.broker_id:
            del group.addresses[former_id]
        replaced = group.addresses.get(registration.broker_id)
        if replaced is not None:
            self.live.pop(replaced, None)
        group.addresses[registration.broker_id] = address
        return group

    def _drop_missing_topics(self, registration: Registration) -> None:
        name = registration.broker_name
        for topic in [topic for topic, queues in self.queues.items() if name in queues]:
            if topic not in registration.table.topics:
                self._drop_queues(topic, name)

    def _add_topics(self, group: BrokerGroup, registration: Registration, changed: bool) -> None:
        name = registration.broker_name
        read_only = registration.broker_id != MASTER_ID and group.acting_master
        for topic, config in registration.table.topics.items():
            queues = self.queues.setdefault(topic, {})
            if changed or name not in queues:
                queues[name] = _queue_data(name, config, read_only=read_only)

    def _master_for(self, group: BrokerGroup, broker_id: int) -> MasterAddress | None:
        master = group.addresses.get(MASTER_ID)
        if broker_id == MASTER_ID or master is None:
            return None
        return MasterAddress(master, self.live[master].ha_address)

    def _remove_addresses(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._remove_address(address)

    def _remove_address(self, address: str) -> None:
        """Remove one address. Remove its group with the last address; clear WRITE when the master is gone."""
        live = self.live.pop(address, None)
        if live is None:
            return
        log.info("broker %s at %s is removed", live.broker_name, address)
        group = self.groups[live.broker_name]
        broker_id = group.id_of(address)
        if broker_id is not None:
            del group.addresses[broker_id]
        if not group.addresses:
            for topic in [topic for topic, queues in self.queues.items() if live.broker_name in queues]:
                self._drop_queues(topic, live.broker_name)
            del self.groups[live.broker_name]
        elif group.acting_master and MASTER_ID not in group.addresses:
            self.wipe_write_permission(live.broker_name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self.queues[topic]
        queues.pop(broker_name, None)
        if not queues:
            del self.queues[topic]

    def _change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self.queues.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count


def _may_bring_topics(group: BrokerGroup, registration: Registration) -> bool:
    """Return whether topics are taken from this broker: a master, or the slave that acts as one."""
    return registration.broker_id == MASTER_ID or (
        registration.enable_acting_master is not None and registration.broker_id == min(group.addresses)
    )


def _queue_data(broker_name: str, config: TopicConfig, *, read_only: bool) -> QueueData:
    perm = config.perm & ~Perm.WRITE if read_only else config.perm
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)
