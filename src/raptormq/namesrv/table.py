"""The route table: brokers, their leases and their queues (``RouteInfoManager``).

The table does no I/O. The caller passes the time (``now_ms``). A connection is any hashable value.
:mod:`raptormq.namesrv.views` computes the responses.

Invariants, checked by property tests:

- A broker group has at least one address. An address belongs to one group and has one id.
- Every address of a group has an entry in ``live`` and vice versa, so every registration can expire.
- Queues belong to existing groups. Every topic has queues.
- A lost group is not registered. It is forgotten when it registers again, or after ``LOST_GROUP_MS``.

Two differences from RocketMQ concern addresses that are used again, for example by pods. The key of a lease is the
address alone. An address that registers with another broker name is removed from its old group immediately. In
RocketMQ, heartbeats of the new broker would also renew the lease of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace

from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.protocol.bodies.route import MASTER_ID, QueueData
from raptormq.protocol.bodies.topic_config import READ_WRITE, DataVersion, Perm, TopicConfig, TopicConfigTable

DEFAULT_EXPIRY_MS = 120_000
"""Time without a sign of life after which a broker is removed, in ms. A registration may contain another timeout."""

LOST_GROUP_MS = 72 * 3_600_000
"""Time in ms for which a group without brokers is remembered: RocketMQ's default retention time of messages."""
MAX_LOST_GROUPS = 1_000

log = get_logger(__name__)


class RegistrationRefused(RaptorMQError):
    """The broker must send a complete registration first. The table has not changed."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Data of a REGISTER_BROKER request (103).

    ``table`` contains all topics of the broker, or new and changed topics. ``enable_acting_master`` is None for brokers
    that do not support it. ``channel`` is the connection of the registration. When it closes, the broker is removed,
    unless ``is_shared`` is true: a shared address leads to the current leader of the group, and the next leader
    registers it again.
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
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Addresses of the master in the response to the registration of a slave, for requests and for replication."""

    address: str
    ha_address: str


@dataclass(slots=True)
class LiveBroker:
    """Lease of one address. Registrations, version queries and heartbeats update ``last_seen_ms``."""

    broker_name: str
    ha_address: str
    data_version: DataVersion
    channel: Hashable | None
    """None for a registration that outlives its connection."""
    timeout_ms: int
    last_seen_ms: int


@dataclass(slots=True)
class BrokerGroup:
    """The brokers with the same name: a master (id 0) and its slaves."""

    cluster: str
    acting_master: bool = False
    addresses: dict[int, str] = field(default_factory=dict)

    def id_of(self, address: str) -> int | None:
        """Return the broker id of ``address``, or None if the group does not contain it."""
        return next((broker_id for broker_id, listed in self.addresses.items() if listed == address), None)


@dataclass(slots=True)
class LostGroup:
    """A broker group whose last broker was removed. Clients that must read everything request the lost groups, because
    a route does not contain them.
    """

    cluster: str
    queues: dict[str, QueueData]
    """Queues by topic."""
    seen_ms: int | None = None
    """Time of the first expiry check that found the group lost."""


class RouteTable:
    """All registered brokers and topics."""

    def __init__(self) -> None:
        self.lost: dict[str, LostGroup] = {}  # by broker name
        self.groups: dict[str, BrokerGroup] = {}
        self.live: dict[str, LiveBroker] = {}
        self.queues: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues

    # -- registration --------------------------------------------------------------------------------------------------

    def register(
        self, registration: Registration, now_ms: int, *, delete_missing: bool = False
    ) -> MasterAddress | None:
        """Apply a registration. For a slave, return the addresses of its master if the master is registered.

        With ``delete_missing`` the registration is complete, and other topics of the broker are removed.

        A registration is ignored if its broker id belongs to another address with a larger state version. As in
        RocketMQ, the response is success.

        Raises:
            RegistrationRefused: an unregistered broker sent a single topic. It must send all topics.
        """
        group = self.groups.get(registration.broker_name)
        owner = group.addresses.get(registration.broker_id) if group else None
        if owner is None and len(registration.table.topics) == 1:
            raise RegistrationRefused("register broker failed")
        if owner is not None and owner != registration.address and self._is_outranked(owner, registration):
            self._remove_address(registration.address)
            return None
        known_version = self.data_version(registration.address)
        group = self._assign_address(registration)
        self.live[registration.address] = LiveBroker(
            broker_name=registration.broker_name,
            ha_address=registration.ha_address,
            data_version=registration.table.data_version,
            channel=None if registration.is_shared else registration.channel,
            timeout_ms=registration.timeout_ms or DEFAULT_EXPIRY_MS,
            last_seen_ms=now_ms,
        )
        changed = owner != registration.address or known_version != registration.table.data_version
        if _may_change_topics(group, registration):
            if delete_missing:
                self._drop_missing_topics(registration)
            self._add_topics(group, registration, changed)
        return self._master_for(group, registration.broker_id)

    def displaced_by(self, registration: Registration) -> list[str]:
        """Return the addresses of brokers that would lose their id or address to the registration although another open
        connection has registered them.
        """
        group = self.groups.get(registration.broker_name)
        owner = group.addresses.get(registration.broker_id) if group else None
        candidates = dict.fromkeys((owner, registration.address))
        return [
            address
            for address in candidates
            if address is not None
            and (live := self.live.get(address)) is not None
            and live.channel not in (None, registration.channel)
        ]

    def touch(self, address: str, now_ms: int, timeout_ms: int | None = None) -> None:
        """Renew the lease of ``address``. An unknown address is ignored."""
        live = self.live.get(address)
        if live is not None:
            live.last_seen_ms = now_ms
            live.timeout_ms = timeout_ms or live.timeout_ms

    def data_version(self, address: str) -> DataVersion | None:
        """Return the version of the topic table in the last registration of ``address``, or None."""
        live = self.live.get(address)
        return live.data_version if live else None

    # -- removal -------------------------------------------------------------------------------------------------------

    def channel_of(self, address: str) -> Hashable | None:
        """Return the connection that the last registration of ``address`` depends on, or None."""
        live = self.live.get(address)
        return live.channel if live else None

    def unregister(self, broker_name: str, address: str) -> bool:
        """Remove one broker. Return whether it was registered."""
        live = self.live.get(address)
        if live is None or live.broker_name != broker_name:
            return False
        self._remove_address(address)
        return True

    def channel_closed(self, channel: Hashable) -> list[str]:
        """Remove the brokers whose last registration was received on ``channel``. Return their addresses."""
        removed = [address for address, live in self.live.items() if live.channel == channel]
        self._remove_addresses(removed)
        return removed

    def expire(self, now_ms: int) -> list[str]:
        """Remove the brokers whose lease has expired. Return their addresses. Lost groups are forgotten."""
        removed = [address for address, live in self.live.items() if live.last_seen_ms + live.timeout_ms < now_ms]
        self._remove_addresses(removed)
        for name, group in list(self.lost.items()):
            group.seen_ms = now_ms if group.seen_ms is None else group.seen_ms
            if group.seen_ms + LOST_GROUP_MS < now_ms:
                del self.lost[name]
        return removed

    # -- topics --------------------------------------------------------------------------------------------------------

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add queues of ``topic``. Queues of unregistered brokers are ignored."""
        known = {data.broker_name: data for data in queue_datas if data.broker_name in self.groups}
        if known:
            self.queues.setdefault(topic, {}).update(known)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove ``topic`` from all brokers, or from those of one cluster."""
        brokers = list(self.queues.get(topic, ()))
        for broker_name in brokers:
            if cluster is None or self.groups[broker_name].cluster == cluster:
                self._drop_queues(topic, broker_name)
        for lost in self.lost.values():
            if cluster is None or lost.cluster == cluster:
                lost.queues.pop(topic, None)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove the permission WRITE from all topics of a broker, until its topic table changes. Return the number of
        topics.
        """
        return self._change_permission(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Set the permission of all topics of a broker to READ and WRITE. Return the number of topics."""
        return self._change_permission(broker_name, lambda _perm: READ_WRITE)

    # -- internal ------------------------------------------------------------------------------------------------------

    def _is_outranked(self, owner: str, registration: Registration) -> bool:
        live = self.live.get(owner)
        return live is not None and live.data_version.state_version > registration.table.data_version.state_version

    def _assign_address(self, registration: Registration) -> BrokerGroup:
        """Assign the address to its group and id, and remove it from others."""
        address = registration.address
        previous = self.live.get(address)
        if previous is not None and previous.broker_name != registration.broker_name:
            self._remove_address(address)
        self.lost.pop(registration.broker_name, None)
        group = self.groups.setdefault(registration.broker_name, BrokerGroup(registration.cluster))
        group.cluster = registration.cluster
        group.acting_master = bool(registration.enable_acting_master)
        previous_id = group.id_of(address)
        if previous_id is not None and previous_id != registration.broker_id:
            del group.addresses[previous_id]
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
        """Remove one address. Remove a group without addresses. Remove WRITE from the topics of a group without a
        master.
        """
        live = self.live.pop(address, None)
        if live is None:
            return
        log.info("removed broker %s at %s", live.broker_name, address)
        group = self.groups[live.broker_name]
        broker_id = group.id_of(address)
        if broker_id is not None:
            del group.addresses[broker_id]
        if not group.addresses:
            self._lose(live.broker_name)
        elif group.acting_master and MASTER_ID not in group.addresses:
            self.wipe_write_permission(live.broker_name)

    def _lose(self, name: str) -> None:
        """Remove a group without addresses, and remember its queues."""
        lost = LostGroup(self.groups.pop(name).cluster, {})
        for topic in [topic for topic, queues in self.queues.items() if name in queues]:
            lost.queues[topic] = self.queues[topic][name]
            self._drop_queues(topic, name)
        self.lost.pop(name, None)
        while len(self.lost) >= MAX_LOST_GROUPS:
            del self.lost[next(iter(self.lost))]
        self.lost[name] = lost

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


def _may_change_topics(group: BrokerGroup, registration: Registration) -> bool:
    """Return whether the registration of this broker may change topics: it is the master or the acting master."""
    return registration.broker_id == MASTER_ID or (
        registration.enable_acting_master is not None and registration.broker_id == min(group.addresses)
    )


def _queue_data(broker_name: str, config: TopicConfig, *, read_only: bool) -> QueueData:
    perm = config.perm & ~Perm.WRITE if read_only else config.perm
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)
