"""Name servers and brokers that answer from tables, in place of `raptormq_operator.admin.ClientAdmin`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from raptormq.errors import ConnectError, ServerError
from raptormq_operator.admin import Listing, TopicAnswer
from raptormq_operator.model.cluster import Cluster, Tls


@dataclass
class FakeAdmin:
    """`listings` by name server, `topics` by broker. Who is in `down` does not answer, who is in `stubborn` refuses."""

    listings: dict[str, dict[tuple[str, str, int], str]] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicAnswer]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    stubborn: set[str] = field(default_factory=set)
    changes: list[tuple[str, str]] = field(default_factory=list)
    complaint: str = ""
    """What all brokers say of their settings."""

    def serve(self, cluster: Cluster) -> None:
        """All name servers and brokers of a cluster are up and know each other."""
        everyone = {(cluster.name, member.broker_name, member.index): member.address for member in cluster.members}
        self.listings = {server: dict(everyone) for server in cluster.name_server_addresses}
        self.topics |= {member.address: {} for member in cluster.members if member.address not in self.topics}

    def speaking(self, tls: Tls | None) -> FakeAdmin:
        return self

    async def listed_brokers(self, name_server: str) -> Listing:
        self._reach(name_server, self.listings)
        return self.listings[name_server]

    async def unknown_settings(self, broker: str) -> str:
        self._reach(broker, self.topics)
        return self.complaint

    async def topic(self, broker: str, topic: str) -> TopicAnswer | None:
        self._reach(broker, self.topics)
        return self.topics[broker].get(topic)

    async def change_topic(self, broker: str, topic: str, wanted: TopicAnswer) -> None:
        self._reach(broker, self.topics)
        self.changes.append((broker, topic))
        if broker in self.stubborn:
            raise ServerError(1, "not today", broker)
        there = self.topics[broker].get(topic)
        attributes = {**(there.attributes if there else {}), **wanted.attributes}
        self.topics[broker][topic] = replace(wanted, attributes=attributes)

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        for server in name_servers.split(";"):
            self._reach(server, self.listings)
        for broker, topics in self.topics.items():
            self._reach(broker, self.topics)
            topics.pop(topic, None)

    def _reach(self, address: str, known: Mapping[str, object]) -> None:
        if address in self.down or address not in known:
            raise ConnectError(f"nobody answers at {address}")
