"""Probes of the name servers and brokers of a cluster. Readiness of pods alone does not prove that clients are served.

`ClusterProbe` is plain data, which `cluster_status` evaluates. `probe_cluster` sends all requests concurrently, each
with its own timeout, so that an unresponsive server does not delay the responses of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from raptormq.errors import RaptorMQError, ServerError
from raptormq.protocol.bodies.replication import CAUGHT_UP_SLAVE_BYTES, UNREPLICATED, CopyState, ReplicationState
from raptormq.protocol.codes import ResponseCode
from raptormq_operator.access_keys import Keys
from raptormq_operator.admin import Admin, BrokerFigures, ClusterAdmin, Listing
from raptormq_operator.model import names
from raptormq_operator.model.cluster import DLEDGER, Cluster, GroupSize, Member

T = TypeVar("T")

LEADER = "leader"
"""Role of the leader of a Dledger group (`ReplicationState`)."""
VOTERS = frozenset({LEADER, "follower"})
"""Roles of the members of a Dledger group that vote."""
MASTER, SLAVE = "master", "slave"
"""Roles of the members of a group with a master."""


@dataclass(frozen=True, slots=True)
class ClusterProbe:
    """Responses by address of the server. A server that did not respond has an error message instead."""

    name_servers: Mapping[str, Listing | str]
    brokers: Mapping[str, str | None]
    figures: Mapping[str, BrokerFigures] = field(default_factory=dict)
    """Runtime information of brokers; empty when it was not requested."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Digest of the topic configurations of each responding broker."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Errors of servers that reject the operator's signature, or require one (16). Such a broker counts as
    responding.
    """
    replication: Mapping[str, ReplicationState] = field(default_factory=dict)
    """Group state as reported by each responding member; empty for a cluster without replication."""
    restartable: frozenset[str] = frozenset()
    """Names of the members that may be restarted, according to the leaders of their groups. Members without a leader
    are not included. A broker that is not replicated yet may always be restarted.
    """
    sizes: Mapping[int, GroupSize] = field(default_factory=dict)
    """Sizes of the groups of the cluster that was probed, by group."""

    def within(self, cluster: Cluster) -> ClusterProbe:
        """Return the probe without the brokers that `cluster` does not have."""
        addresses = {member.address for member in cluster.members}
        others = {address for address in self.brokers if address not in addresses}

        def without(answers: Mapping[str, T]) -> dict[str, T]:
            return {address: said for address, said in answers.items() if address not in others}

        return replace(
            self,
            brokers=without(self.brokers),
            figures=without(self.figures),
            topics=without(self.topics),
            refusals=without(self.refusals),
            replication=without(self.replication),
            restartable=self.restartable & {member.name for member in cluster.members},
            sizes=cluster.sizes,
        )

    @property
    def unknown_settings(self) -> frozenset[str]:
        """Distinct warnings of brokers about ignored settings."""
        return frozenset(each.unknown_settings for each in self.figures.values() if each.unknown_settings)

    def silent(self) -> dict[str, str]:
        """Return the unresponsive brokers with their error messages."""
        return {broker: fault for broker, fault in self.brokers.items() if fault is not None}

    def same_peers(self, other: ClusterProbe, cluster: Cluster) -> bool:
        """Return whether the same servers responded and listed the same brokers of the cluster. Error messages are not
        compared, as they differ on each attempt."""
        return self._peers(cluster) == other._peers(cluster)

    def _peers(self, cluster: Cluster) -> tuple[object, ...]:
        listed = {
            server: None if isinstance(said, str) else self.missing(server, cluster)
            for server, said in self.name_servers.items()
        }
        leaders = tuple(self.leader(cluster, group) for group in range(cluster.groups))
        following = [member.name for member in cluster.members if self.follows(member)]
        diverged = self.diverged(cluster).keys()
        by_route = self.found_by_route(cluster)
        return listed, self.silent().keys(), self.refusals.keys(), leaders, following, by_route, diverged

    def leader(self, cluster: Cluster, group: int) -> Member | None:
        """Return the leader or master of the group according to the members' reports. Of two, return the one with the
        higher term or the configured master.
        """
        leading = [
            (state.term, cluster.is_master(member), member)
            for member in cluster.group(group)
            if (state := self.replication.get(member.address)) is not None
            and (state.role == MASTER if cluster.is_master_slave else (state.mode, state.role) == (DLEDGER, LEADER))
        ]
        return max(leading, key=lambda each: each[:2])[2] if leading else None

    def follows(self, member: Member) -> bool:
        """Return whether a slave reports that it is connected to its master."""
        own = self._own(member)
        return own is not None and bool(own.answering)

    def lag(self, cluster: Cluster, member: Member) -> int | None:
        """Return the lag of a slave in bytes; None if unknown. A slave that follows its master reports the lag itself.
        Otherwise the lag is computed from the ends of both logs.
        """
        state, own = self.replication.get(member.address), self._own(member)
        if state is None or state.role != SLAVE:
            return None
        if own is not None and own.answering:
            return own.lag_bytes
        master = self.leader(cluster, member.group)
        if master is None:
            return None
        return max(0, self.replication[master.address].confirmed_offset - state.last_offset)

    def slave_ends(self, cluster: Cluster) -> dict[str, int]:
        """Return the ends of the logs of the responding slaves, by name of the member."""
        states = {member.name: self.replication.get(member.address) for member in cluster.members}
        return {name: state.last_offset for name, state in states.items() if state is not None and state.role == SLAVE}

    def caught_up(self, cluster: Cluster, member: Member) -> bool:
        """Return whether a slave follows its master and has all its messages except the latest ones."""
        lag = self.lag(cluster, member)
        return self.follows(member) and lag is not None and lag <= CAUGHT_UP_SLAVE_BYTES

    def _own(self, member: Member) -> CopyState | None:
        """Return the report of a slave about itself."""
        state = self.replication.get(member.address)
        if state is None or state.role != SLAVE:
            return None
        return next((copy for copy in state.members if copy.id == state.member), None)

    def forming(self, cluster: Cluster) -> frozenset[int]:
        """Dledger groups with a broker that has data and no replicas yet. The broker becomes the first member at its
        next restart.
        """
        if not cluster.is_dledger:
            return frozenset()
        return frozenset(
            member.group
            for member in cluster.members
            if (state := self.replication.get(member.address)) is not None and state.mode == UNREPLICATED
        )

    def masters(self, cluster: Cluster) -> tuple[Member, ...]:
        """The brokers that accept changes: all brokers, or the leaders of the groups with a leader."""
        if not cluster.is_replicated:
            return cluster.members
        leaders = (self.leader(cluster, group) for group in range(cluster.groups))
        return tuple(leader for leader in leaders if leader is not None)

    def majority_leaders(self, cluster: Cluster) -> dict[str, Member]:
        """Return the leaders of Dledger groups to which a majority of the voters responds, by broker name. The report
        of another leader may be outdated.
        """
        found = {}
        for group in range(cluster.groups):
            leader = self.leader(cluster, group)
            if leader is not None and has_majority(self.replication[leader.address]):
                found[leader.broker_name] = leader
        return found

    def leaderless(self, cluster: Cluster) -> tuple[str, ...]:
        """Broker names of the groups without a leader."""
        if not cluster.is_replicated:
            return ()
        return tuple(names.broker(group) for group in range(cluster.groups) if self.leader(cluster, group) is None)

    def electing(self, cluster: Cluster) -> frozenset[int]:
        """Dledger groups without a leader according to their members: at least one responds, none of these leads, and
        none of them follows a leader. A leader that responds to its followers but not to the operator still leads.
        """
        if not cluster.is_dledger:
            return frozenset()
        found = set()
        for group in range(cluster.groups):
            states = [self.replication.get(member.address) for member in cluster.group(group)]
            heard = [state for state in states if state is not None and state.mode == DLEDGER]
            if heard and not any(state.role == LEADER or state.leader for state in heard):
                found.add(group)
        return frozenset(found)

    def diverged(self, cluster: Cluster) -> dict[str, str]:
        """Return why stores of members do not fit their Dledger groups, by name of the member."""
        states = {member.name: self.replication.get(member.address) for member in cluster.members}
        return {name: state.diverged for name, state in states.items() if state is not None and state.diverged}

    def found_by_route(self, cluster: Cluster) -> tuple[str, ...]:
        """Broker names of the groups whose leader a name server lists under the address of its pod and not of its
        Service. The Service does not reach that leader, and clients find the next one only when they refresh their
        routes.
        """
        leaders = self.masters(cluster) if cluster.is_dledger else ()
        listings = [said for said in self.name_servers.values() if not isinstance(said, str)]
        return tuple(
            leader.broker_name
            for leader in leaders
            if any(said.get((cluster.name, leader.broker_name, 0)) == leader.address for said in listings)
        )

    def missing(self, name_server: str, cluster: Cluster) -> tuple[Member, ...]:
        """Brokers that a name server does not list under their address; all brokers if it did not respond. The leader
        of a Dledger group has broker id 0, and may also be listed under the address of its Service.
        """
        listing = self.name_servers[name_server]
        if isinstance(listing, str):
            return cluster.members
        if cluster.is_replicated:
            listed = {(cluster_name, broker, address) for (cluster_name, broker, _), address in listing.items()}
            masters = set(self.masters(cluster))
            return tuple(
                member
                for member in cluster.members
                if (
                    listing.get((cluster.name, member.broker_name, 0))
                    not in (member.address, cluster.leader_address(member.group))
                    if member in masters
                    else (cluster.name, member.broker_name, member.address) not in listed
                )
            )
        return tuple(
            member
            for member in cluster.members
            if listing.get((cluster.name, member.broker_name, member.index)) != member.address
        )

    def answering(self, cluster: Cluster) -> frozenset[str]:
        """Return the names of the members that respond."""
        return frozenset(member.name for member in cluster.members if self.brokers[member.address] is None)

    def serving(self, cluster: Cluster) -> frozenset[str]:
        """Return the names of the members that respond and that every responding name server lists."""
        found = [server for server, said in self.name_servers.items() if not isinstance(said, str)]
        missing = {member.name for server in found for member in self.missing(server, cluster)}
        return self.answering(cluster) - missing

    def informed(self, cluster: Cluster) -> frozenset[str]:
        """Return the name servers that respond and list every responding broker. An unresponsive broker is not
        expected to be registered."""
        answering = self.answering(cluster)
        return frozenset(
            server
            for server, said in self.name_servers.items()
            if not isinstance(said, str)
            and all(member.name not in answering for member in self.missing(server, cluster))
        )

    def registered(self, cluster: Cluster) -> frozenset[str]:
        """Return the names of the members that respond and that every name server lists."""
        missing = {member for server in self.name_servers for member in self.missing(server, cluster)}
        return self.answering(cluster) - {member.name for member in missing}


def has_majority(view: ReplicationState) -> bool:
    """Return whether a majority of the voters responds to the leader that reports `view`."""
    voters = [copy for copy in view.members if copy.role in VOTERS]
    answering = [copy for copy in voters if copy.role == LEADER or copy.answering]
    return len(answering) > len(voters) // 2


async def probe_cluster(cluster: Cluster, admin: Admin, keys: Keys = (), *, figures: bool = True) -> ClusterProbe:
    """Request the broker list from each name server (106), and the topics (21) and, with `figures`, the runtime
    information (28) from each broker. Requests are signed with `keys`.

    Each server also gets a new connection. An established connection may still work when new clients can no longer
    connect because of DNS or a network policy.
    """
    asking = admin.speaking(cluster.tls, keys)
    servers = cluster.name_server_addresses
    brokers = [member.address for member in cluster.members]
    listings, signs = await asyncio.gather(
        asyncio.gather(*(_listing(asking, server) for server in servers)),
        asyncio.gather(
            *(_sign_of_life(asking, broker, figures=figures, replicated=cluster.is_replicated) for broker in brokers)
        ),
    )
    said = dict(zip(servers, listings, strict=True))
    answers = dict(zip(brokers, signs, strict=True))
    heard = {broker: sign for broker, sign in answers.items() if isinstance(sign, _Sign)}
    refusals = {**said, **{broker: sign.refused for broker, sign in heard.items()}}
    states = {broker: sign.replication for broker, sign in heard.items() if sign.replication is not None}
    probe = ClusterProbe(
        said,
        {broker: sign if isinstance(sign, str) else None for broker, sign in answers.items()},
        {broker: sign.figures for broker, sign in heard.items() if sign.figures},
        {broker: sign.topics for broker, sign in heard.items()},
        {address: refusal for address, refusal in refusals.items() if isinstance(refusal, _Refusal)},
        states,
        sizes=cluster.sizes,
    )
    if not states or not figures:
        return probe
    return replace(probe, restartable=await _restartable(cluster, probe, asking))


async def _restartable(cluster: Cluster, probe: ClusterProbe, admin: ClusterAdmin) -> frozenset[str]:
    """Ask the leader of each group whether each member may be restarted."""

    async def ask(member: Member) -> bool:
        state = probe.replication.get(member.address)
        if cluster.is_master_slave:
            return await _pair_allows(cluster, probe, admin, member)
        if state is not None and state.mode == UNREPLICATED:
            return True
        leader = probe.leader(cluster, member.group)
        if leader is None:
            return False
        return await _permits_restart(admin, leader.address, member.id)

    allowed = await asyncio.gather(*map(ask, cluster.members))
    return frozenset(member.name for member, holds in zip(cluster.members, allowed, strict=True) if holds)


async def _pair_allows(cluster: Cluster, probe: ClusterProbe, admin: ClusterAdmin, member: Member) -> bool:
    """Return whether a master or slave may be restarted: reads continue meanwhile, and all messages of the group are on
    another disk. The member itself must agree, too.
    """
    master = probe.leader(cluster, member.group)
    others = [each for each in cluster.group(member.group) if each not in (member, master)]
    if master is None or member.address not in probe.replication:
        return False
    copies = [probe.caught_up(cluster, each) for each in others]
    if not (any(copies) if member == master else all(copies)):
        return False
    return await _permits_restart(admin, member.address, member.address)


async def _permits_restart(admin: ClusterAdmin, address: str, restarting: str) -> bool:
    """Ask the broker at `address` whether `restarting` may be restarted. A broker that does not respond refuses."""
    try:
        state = await admin.replication(address, restarting=restarting)
    except RaptorMQError:
        return False
    return state.restart is not None and state.restart.holds


class _Refusal(str):
    """Error message of a server that rejected the signature or requires one."""

    __slots__ = ()


class _Sign(NamedTuple):
    topics: str
    figures: BrokerFigures | None
    refused: _Refusal | None
    replication: ReplicationState | None


async def _listing(admin: ClusterAdmin, name_server: str) -> Listing | str:
    try:
        await admin.connect(name_server)
        return await admin.listed_brokers(name_server)
    except ServerError as error:
        return _refusal(error) or str(error)
    except RaptorMQError as error:
        return str(error)


async def _sign_of_life(admin: ClusterAdmin, broker: str, *, figures: bool, replicated: bool) -> _Sign | str:
    """Return the response of the broker, or the error. A refusal also shows that the broker runs."""
    refused: _Refusal | None = None
    said: BrokerFigures | None = None
    state: ReplicationState | None = None
    try:
        await admin.connect(broker)
        try:
            topics = await admin.topics_digest(broker)
        except ServerError as error:
            topics, refused = str(error), _refusal(error)
        try:
            said = await admin.figures(broker) if figures else None
        except ServerError as error:
            refused = refused or _refusal(error)
        try:
            state = await admin.replication(broker) if replicated else None
        except ServerError as error:
            refused = refused or _refusal(error)
    except RaptorMQError as error:
        return str(error)
    return _Sign(topics, said, refused, state)


def _refusal(error: ServerError) -> _Refusal | None:
    return _Refusal(error) if error.code == ResponseCode.NO_PERMISSION else None


class LatestProbes:
    """Cache of the latest probe of each cluster, by namespace and name. Reconciling Topics uses it, so that an
    unresponsive broker does not cost one timeout per Topic."""

    def __init__(self) -> None:
        self._probes: dict[tuple[str, str], ClusterProbe] = {}

    def set(self, namespace: str, name: str, probe: ClusterProbe) -> None:
        """Store the probe of a cluster."""
        self._probes[namespace, name] = probe

    def get(self, namespace: str, name: str) -> ClusterProbe | None:
        """Return the latest probe; None before the first one."""
        return self._probes.get((namespace, name))

    def forget(self, namespace: str, name: str) -> None:
        """Drop the probe of a deleted cluster."""
        self._probes.pop((namespace, name), None)
