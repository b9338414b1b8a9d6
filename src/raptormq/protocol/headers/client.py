"""Headers for clients and groups: unregistration (35), members of a group (38), rebalance notification (40)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header, wire


@dataclass(slots=True)
class UnregisterClientRequestHeader(Header):
    """35: the client leaves these groups."""

    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@dataclass(slots=True)
class ConsumerGroupRequestHeader(Header):
    """38, 40, 203: a consumer group."""

    consumer_group: str


@dataclass(slots=True)
class ProducerGroupRequestHeader(Header):
    """204: a producer group."""

    producer_group: str


@dataclass(slots=True)
class SendBackRequestHeader(Header):
    """36: the message at physical ``offset`` could not be consumed and is to be redelivered to ``group`` later."""

    offset: int
    group: str
    delay_level: int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    broker_name: str | None = wire("bname", None)


@dataclass(slots=True)
class HeartbeatResponseHeader(Header):
    """34: the broker's support for version-2 heartbeats."""

    is_support_heart_beat_v2: bool = wire("IS_SUPPORT_HEART_BEAT_V2", False)
    is_sub_change: bool = wire("IS_SUB_CHANGE", True)
