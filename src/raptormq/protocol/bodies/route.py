"""Routes, cluster info and broker registration (Apache RocketMQ ``TopicRouteData``, ``ClusterInfo``,
``RegisterBrokerBody``, ``TopicList``).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raptormq.errors import BodyError
from raptormq.protocol.bodies.members import list_at, object_at, text_at
from raptormq.protocol.bodies.tolerant_json import dumps, loads_object
from raptormq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigTable

MASTER_ID = 0
_MAX_INFLATED_BYTES = 64 * 1024 * 1024
_INT = struct.Struct(">i")


@dataclass(slots=True)
class BrokerData:
    """A broker group: addresses of its members by broker id (0 is the master)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "brokerAddrs": {str(broker_id): addr for broker_id, addr in sorted(self.broker_addrs.items())},
            "brokerName": self.broker_name,
            "cluster": self.cluster,
            "enableActingMaster": False,
        }

    @classmethod
    def from_dict(cls, value: Any) -> BrokerData:
        """Decode the JSON object. Raises :class:`BodyError`."""
        try:
            addrs = {int(key): str(addr) for key, addr in object_at(value, "brokerAddrs").items()}
            return cls(text_at(value, "cluster", ""), text_at(value, "brokerName"), addrs)
        except (AttributeError, ValueError) as error:
            raise BodyError(f"not a broker group: {value!r:.80}") from error


@dataclass(slots=True)
class QueueData:
    """The queues of a topic on one broker group."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "brokerName": self.broker_name,
            "perm": int(self.perm),
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_dict(cls, value: Any) -> QueueData:
        """Decode the JSON object. Raises :class:`BodyError`."""
        try:
            reads, writes, perm = (int(value[name]) for name in ("readQueueNums", "writeQueueNums", "perm"))
            return cls(text_at(value, "brokerName"), reads, writes, perm, int(value.get("topicSysFlag") or 0))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BodyError(f"not queue data: {value!r:.80}") from error


@dataclass(slots=True)
class TopicRoute:
    """The brokers and queues of a topic: body of GET_ROUTEINFO_BY_TOPIC (105)."""

    queues: list[QueueData] = field(default_factory=list)
    brokers: list[BrokerData] = field(default_factory=list)
    order_topic_conf: str | None = None

    def to_json(self) -> bytes:
        """Return the body. Keys are quoted, which all clients accept."""
        value: dict[str, Any] = {
            "brokerDatas": [broker.to_dict() for broker in self.brokers],
            "filterServerTable": {},
            "queueDatas": [queue.to_dict() for queue in self.queues],
        }
        if self.order_topic_conf:
            value["orderTopicConf"] = self.order_topic_conf
        return dumps(value)

    @classmethod
    def from_json(cls, data: bytes) -> TopicRoute:
        """Decode the body. Raises :class:`BodyError`."""
        value = loads_object(data)
        return cls(
            [QueueData.from_dict(queue) for queue in list_at(value, "queueDatas")],
            [BrokerData.from_dict(broker) for broker in list_at(value, "brokerDatas")],
            str(value.get("orderTopicConf") or "") or None,
        )

    def merged_with(self, other: TopicRoute) -> TopicRoute:
        """Return this route with the brokers, and members of broker groups, that only ``other`` has."""
        own = {broker.broker_name: broker for broker in self.brokers}
        return TopicRoute(
            [*self.queues, *(queue for queue in other.queues if queue.broker_name not in own)],
            list(_joined(own, {broker.broker_name: broker for broker in other.brokers}).values()),
            self.order_topic_conf or other.order_topic_conf,
        )


@dataclass(slots=True)
class ClusterInfo:
    """All broker groups of all clusters: body of GET_BROKER_CLUSTER_INFO (106).

    ``lostBrokers`` is specific to RaptorMQ and only in the response to a request for it.
    """

    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, list[str]] = field(default_factory=dict)
    lost: dict[str, dict[str, int]] = field(default_factory=dict)
    """Broker groups that are not registered any more: number of readable queues by broker name and topic."""

    def to_json(self) -> bytes:
        """Return the body."""
        table = {name: broker.to_dict() for name, broker in self.brokers.items()}
        value: dict[str, Any] = {"brokerAddrTable": table, "clusterAddrTable": self.clusters}
        return dumps(value | ({"lostBrokers": self.lost} if self.lost else {}))

    @classmethod
    def from_json(cls, data: bytes) -> ClusterInfo:
        """Decode the body. Raises :class:`BodyError`."""
        value = loads_object(data)
        brokers = {name: BrokerData.from_dict(each) for name, each in object_at(value, "brokerAddrTable").items()}
        clusters = object_at(value, "clusterAddrTable")
        names = {name: [str(broker) for broker in list_at(clusters, name)] for name in clusters}
        return cls(brokers, names, _lost(value))

    def merged_with(self, other: ClusterInfo) -> ClusterInfo:
        """Return this information with the clusters, brokers, and members of broker groups that only ``other`` has."""
        names = {
            cluster: sorted({*self.clusters.get(cluster, ()), *other.clusters.get(cluster, ())})
            for cluster in {**self.clusters, **other.clusters}
        }
        brokers = _joined(self.brokers, other.brokers)
        lost = {name: topics for name, topics in (other.lost | self.lost).items() if name not in brokers}
        return ClusterInfo(brokers, names, lost)


def _lost(value: dict[str, Any]) -> dict[str, dict[str, int]]:
    if not value.get("lostBrokers"):
        return {}
    groups = object_at(value, "lostBrokers")
    try:
        return {name: {topic: int(count) for topic, count in object_at(groups, name).items()} for name in groups}
    except (TypeError, ValueError) as error:
        raise BodyError(f"not lost broker groups: {groups!r:.80}") from error


def _joined(own: Mapping[str, BrokerData], others: Mapping[str, BrokerData]) -> dict[str, BrokerData]:
    joined = {**others, **own}
    for name in own.keys() & others.keys():
        addresses = {**others[name].broker_addrs, **own[name].broker_addrs}
        joined[name] = BrokerData(own[name].cluster, name, addresses)
    return joined


@dataclass(slots=True)
class TopicList:
    """Names of topics (206, 224, 304, 305, 343)."""

    topics: list[str] = field(default_factory=list)
    broker_addr: str | None = None

    def to_json(self) -> bytes:
        """Return the body."""
        value: dict[str, Any] = {"topicList": self.topics}
        if self.broker_addr:
            value["brokerAddr"] = self.broker_addr
        return dumps(value)

    @classmethod
    def from_json(cls, data: bytes) -> TopicList:
        """Decode the body. Raises :class:`BodyError`."""
        value = loads_object(data)
        return cls([str(topic) for topic in list_at(value, "topicList")], str(value.get("brokerAddr") or "") or None)


def encode_registration(table: TopicConfigTable) -> bytes:
    """Return the body of REGISTER_BROKER (103), uncompressed."""
    wrapper = table.to_dict() | {
        "mappingDataVersion": table.data_version.to_dict(),
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})


def decode_registration(data: bytes) -> TopicConfigTable:
    """Decode the body of REGISTER_BROKER (103), plain or zlib. The first byte determines the form, because the header
    flag is wrong in 5.3.

    Raises:
        BodyError: the data has neither form, or is larger than 64 MiB when decompressed.
    """
    if data[:1] == b"\x78":
        return _decode_compressed(data)
    return TopicConfigTable.from_dict(object_at(loads_object(data), "topicConfigSerializeWrapper"))


def _decode_compressed(data: bytes) -> TopicConfigTable:
    """``len i32, DataVersion JSON | count i32 | count x (len i32, "name read write perm filter attributesJson")``."""
    try:
        plain = zlib.decompressobj().decompress(data, _MAX_INFLATED_BYTES)
        version, position = _counted(plain, 0)
        (count,) = _INT.unpack_from(plain, position)
        position += 4
        topics: dict[str, TopicConfig] = {}
        for _ in range(count):
            text, position = _counted(plain, position)
            name, reads, writes, perm, filter_type, *attributes = text.decode().split(" ", 5)
            values = loads_object(attributes[0].encode()) if attributes and attributes[0] else {}
            topics[name] = TopicConfig(
                name, int(reads), int(writes), int(perm), filter_type, attributes={k: str(v) for k, v in values.items()}
            )
        return TopicConfigTable(topics, DataVersion.from_dict(loads_object(version)))
    except (zlib.error, struct.error, ValueError) as error:
        raise BodyError(f"the compressed registration is damaged: {error}") from error


def _counted(data: bytes, position: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(data, position)
    end = position + 4 + length
    if length < 0 or end > len(data):
        raise BodyError("the compressed registration is truncated")
    return data[position + 4 : end], end
