"""Fake of `raptormq_operator.admin.ClientAdmin` with name servers and brokers that respond from tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from raptormq.errors import ConnectError, RaptorMQError, ServerError
from raptormq.protocol.bodies.replication import CopyState, ReplicationState, Verdict
from raptormq.protocol.bodies.topic_config import TopicConfig
from raptormq.protocol.bodies.unreadable import Unreadable
from raptormq_operator.access_keys import Keys
from raptormq_operator.admin import BrokerFigures, BrokerTopics, Listing, TopicAnswer
from raptormq_operator.model.cluster import Cluster, Member, Tls


@dataclass
class FakeAdmin:
    """`listings` is by name server, `topics` by broker. Servers in `down` do not respond, servers in `stubborn` refuse
    requests.
    """

    listings: dict[str, dict[tuple[str, str, int], str]] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicAnswer]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    stubborn: set[str] = field(default_factory=set)
    demanding: set[str] = field(default_factory=set)
    """Servers that require a signature with one of the passwords in `taken`."""
    taken: set[str] = field(default_factory=set)
    keys: Keys = ()
    """Keys of the last signed request."""
    changes: list[tuple[str, str]] = field(default_factory=list)
    bulk_questions: list[str] = field(default_factory=list)
    """Brokers whose complete topic table was requested."""
    asked: list[str] = field(default_factory=list)
    """Servers that received any request."""
    unresolved: set[str] = field(default_factory=set)
    """Addresses that refuse new connections. Existing connections continue to work."""
    stored: dict[str, list[int]] = field(default_factory=dict)
    """Number of messages in each queue of a topic, on every broker."""
    max_offsets: dict[str, int] = field(default_factory=dict)
    """Ends of the commit logs by broker."""
    certificate: datetime | None = None
    """Expiry of the certificate of all servers."""
    complaint: str = ""
    """Warning of all brokers about their settings."""

    replicas: dict[str, ReplicationState] = field(default_factory=dict)
    """State of each group according to its brokers."""
    restartable: set[str] = field(default_factory=set)
    """Addresses of the members that may be restarted."""
    transferred: list[str] = field(default_factory=list)
    """Leaders that were requested to transfer leadership."""

    def serve(self, cluster: Cluster) -> None:
        """Add all name servers and brokers of a cluster, registered with each other."""
        ids = {member: member.index + cluster.is_dledger for member in cluster.members}
        everyone = {(cluster.name, member.broker_name, ids[member]): member.address for member in cluster.members}
        self.listings = {server: dict(everyone) for server in cluster.name_server_addresses}
        self.topics |= {member.address: {} for member in cluster.members if member.address not in self.topics}
        if cluster.is_dledger:
            self.lead(cluster, cluster.members[0])

    def lead(self, cluster: Cluster, leader: Member | None) -> None:
        """Make a member the leader of the first group, or none. The others may be restarted."""
        members = cluster.group(0)
        copies = tuple(
            CopyState(member.id, member.host, "leader" if member == leader else "follower", 7 * member.index)
            for member in members
        )
        for member in members:
            role = "leader" if member == leader else "follower" if leader else "candidate"
            state = ReplicationState("broker-0", "dledger", member.id, role, 3, leader.id if leader else "", 10, 10)
            self.replicas[member.address] = replace(state, members=copies if member == leader else ())
        self.restartable = {member.address for member in members} if leader else set()
        ids = {(cluster.name, "broker-0", each.index + 1): each.address for each in members if each != leader}
        if leader is not None:
            ids[cluster.name, "broker-0", 0] = cluster.leader_address(0)
        for server, listing in self.listings.items():
            others = {key: address for key, address in listing.items() if key[1] != "broker-0"}
            self.listings[server] = others | ids

    def speaking(self, tls: Tls | None, keys: Keys = ()) -> FakeAdmin:
        self.keys = keys
        return self

    async def listed_brokers(self, name_server: str) -> Listing:
        self._reach(name_server, self.listings)
        return self.listings[name_server]

    async def connect(self, address: str) -> None:
        if address in self.unresolved:
            raise ConnectError(f"no new connection to {address}")

    async def certificate_end(self, address: str) -> datetime | None:
        return self.certificate

    async def figures(self, broker: str) -> BrokerFigures:
        self._reach(broker, self.topics)
        return BrokerFigures(self.complaint, self.max_offsets.get(broker))

    async def replication(self, broker: str, *, restarting: str | None = None) -> ReplicationState:
        self._reach(broker, self.replicas)
        state = self.replicas[broker]
        if restarting is None:
            return state
        places = (restarting, f"demo-broker-0-{restarting[1:]}-0.")
        (host,) = [address for address in self.replicas if address.startswith(places)]
        return replace(state, restart=Verdict(host in self.restartable, ""))

    async def transfer_leadership(self, broker: str, to: str | None = None) -> None:
        self._reach(broker, self.replicas)
        self.transferred.append(broker)

    async def change_members(self, broker: str, action: str, member: str) -> None:
        self._reach(broker, self.replicas)

    async def topics_digest(self, broker: str) -> str:
        self._reach(broker, self.topics)
        return repr(sorted(self.topics[broker].items()))

    async def all_topics(self, broker: str) -> BrokerTopics:
        self.bulk_questions.append(broker)
        self._reach(broker, self.topics)
        return BrokerTopics(
            {
                name: TopicConfig(
                    name, answer.read_queues, answer.write_queues, answer.perm, attributes=dict(answer.attributes)
                )
                for name, answer in self.topics[broker].items()
            },
            {
                name: Unreadable(beyond, len(self.stored[name]))
                for name, answer in self.topics[broker].items()
                if (beyond := sum(self.stored.get(name, [])[answer.read_queues :]))
            },
        )

    async def change_topics(
        self, broker: str, before: BrokerTopics, wanted: Mapping[str, TopicAnswer]
    ) -> dict[str, RaptorMQError]:
        self._reach(broker, self.topics)
        self.changes += [(broker, topic) for topic in wanted]
        if broker in self.stubborn:
            return {topic: ServerError(1, "not today", broker) for topic in wanted}
        for topic, values in wanted.items():
            there = self.topics[broker].get(topic)
            attributes = {**(there.attributes if there else {}), **values.attributes}
            self.topics[broker][topic] = replace(values, attributes=attributes)
        return {}

    async def delete_topic(self, name_servers: str, topic: str) -> None:
        for server in name_servers.split(";"):
            self._reach(server, self.listings)
        for broker, topics in self.topics.items():
            self._reach(broker, self.topics)
            topics.pop(topic, None)

    def _reach(self, address: str, known: Mapping[str, object]) -> None:
        self.asked.append(address)
        if address in self.down or address not in known:
            raise ConnectError(f"no server responds at {address}")
        if address in self.demanding and not self.taken & {key.secret_key for key in self.keys}:
            raise ServerError(16, "check signature failed.", address)
