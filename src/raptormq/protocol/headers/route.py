"""Headers between brokers, clients and name servers (Apache RocketMQ ``header.namesrv``)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class RegisterBrokerRequestHeader(Header):
    """103. ``body_crc32`` is not checked if it is 0 or absent. ``compressed`` is unreliable in 5.3; the first byte of
    the body is significant.

    ``complete_topic_table`` and ``shared_address`` are specific to RaptorMQ. The first tells whether the body contains
    all topics of the broker or only changed ones. If the second is true, the address leads to the current leader of a
    group, such as the address of a Kubernetes Service, and the registration outlives the connection of this broker.
    Brokers of Apache RocketMQ send neither, and its name servers ignore both.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0
    complete_topic_table: bool | None = None
    shared_address: bool | None = None


@dataclass(slots=True)
class RegisterBrokerResponseHeader(Header):
    """103: the master's addresses, for slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class ClusterInfoRequestHeader(Header):
    """106. ``lost_brokers`` is specific to RaptorMQ: the response also has the broker groups that are no longer
    registered, with their queues. Clients of Apache RocketMQ do not send it, and its name servers ignore it.
    """

    lost_brokers: bool = False


@dataclass(slots=True)
class UnregisterBrokerRequestHeader(Header):
    """104, 322: one broker process."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


@dataclass(slots=True)
class BrokerHeartbeatRequestHeader(Header):
    """904: heartbeat of a broker, which renews its registration."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    heartbeat_timeout_mills: int | None = None


@dataclass(slots=True)
class DataVersionResponseHeader(Header):
    """322: whether the name server has another version than the request."""

    changed: bool


@dataclass(slots=True)
class RouteRequestHeader(Header):
    """105: get the route of a topic."""

    topic: str
    accept_standard_json_only: bool | None = None


@dataclass(slots=True)
class BrokerNameRequestHeader(Header):
    """205, 327: a broker group."""

    broker_name: str


@dataclass(slots=True)
class WipeWritePermResponseHeader(Header):
    """205: number of topics that lost the write permission."""

    wipe_topic_count: int


@dataclass(slots=True)
class AddWritePermResponseHeader(Header):
    """327: number of topics that regained the write permission."""

    add_topic_count: int


@dataclass(slots=True)
class DeleteTopicRequestHeader(Header):
    """216, 217, 351: a topic, in one cluster or in all clusters."""

    topic: str
    cluster_name: str | None = None


@dataclass(slots=True)
class ClusterRequestHeader(Header):
    """224: a cluster."""

    cluster: str


@dataclass(slots=True)
class MemberGroupRequestHeader(Header):
    """901: a broker group of a cluster."""

    cluster_name: str
    broker_name: str


@dataclass(slots=True)
class KVConfigRequestHeader(Header):
    """100, 101, 102, 219: namespace, key and value. Each code uses only some of them."""

    namespace: str
    key: str | None = None
    value: str | None = None


@dataclass(slots=True)
class KVConfigResponseHeader(Header):
    """101: the value."""

    value: str | None = None
