"""What the name servers and brokers of a cluster themselves say. Pods that are ready are a hint; this is the evidence.

`ClusterProbe` is plain data that the pure verdicts judge; `probe_cluster` asks everyone at the same time, each with its
own time limit, so that one silent peer costs its own time-out and hides nobody else's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from raptormq.errors import RaptorMQError, ServerError
from raptormq.protocol.codes import ResponseCode
from raptormq_operator.access_keys import Keys
from raptormq_operator.admin import Admin, BrokerFigures, ClusterAdmin, Listing
from raptormq_operator.model.cluster import Cluster, Member


@dataclass(frozen=True, slots=True)
class ClusterProbe:
    """Answers by address. A text instead of an answer is what went wrong."""

    name_servers: Mapping[str, Listing | str]
    brokers: Mapping[str, str | None]
    figures: Mapping[str, BrokerFigures] = field(default_factory=dict)
    """What brokers say about themselves; empty when they were not asked."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """Digest of the topics of each broker that answers."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """What servers say that do not take the operator's signature, or want one (16); such a broker answers."""

    @property
    def unknown_settings(self) -> frozenset[str]:
        """What brokers say of settings that they do not know; most often all say the same, or nothing."""
        return frozenset(each.unknown_settings for each in self.figures.values() if each.unknown_settings)

    def silent(self) -> dict[str, str]:
        """Brokers that do not answer, and what went wrong: nobody needs to ask them again to find out."""
        return {broker: fault for broker, fault in self.brokers.items() if fault is not None}

    def same_peers(self, other: ClusterProbe, cluster: Cluster) -> bool:
        """Whether the same servers answered, and listed the same brokers of the cluster. What a silent one's error says
        does not matter: it is another text each time."""
        return self._peers(cluster) == other._peers(cluster)

    def _peers(self, cluster: Cluster) -> tuple[object, ...]:
        listed = {
            server: None if isinstance(said, str) else self.missing(server, cluster)
            for server, said in self.name_servers.items()
        }
        return listed, self.silent().keys(), self.refusals.keys()

    def missing(self, name_server: str, cluster: Cluster) -> tuple[Member, ...]:
        """Brokers that a name server does not list under their address; all of them when it did not answer."""
        listing = self.name_servers[name_server]
        if isinstance(listing, str):
            return cluster.members
        return tuple(
            member
            for member in cluster.members
            if listing.get((cluster.name, member.broker_name, member.index)) != member.address
        )

    def answering(self, cluster: Cluster) -> frozenset[str]:
        """Names of the members that answer themselves."""
        return frozenset(member.name for member in cluster.members if self.brokers[member.address] is None)

    def serving(self, cluster: Cluster) -> frozenset[str]:
        """Names of the members that answer themselves and that clients find: each name server that answers lists
        them."""
        found = [server for server, said in self.name_servers.items() if not isinstance(said, str)]
        missing = {member.name for server in found for member in self.missing(server, cluster)}
        return self.answering(cluster) - missing

    def informed(self, cluster: Cluster) -> frozenset[str]:
        """Name servers that answer and list every broker that answers. Of one that does not answer they cannot know."""
        answering = self.answering(cluster)
        return frozenset(
            server
            for server, said in self.name_servers.items()
            if not isinstance(said, str)
            and all(member.name not in answering for member in self.missing(server, cluster))
        )

    def registered(self, cluster: Cluster) -> frozenset[str]:
        """Names of the members that every name server lists and that answer themselves."""
        missing = {member for server in self.name_servers for member in self.missing(server, cluster)}
        return self.answering(cluster) - {member.name for member in missing}


async def probe_cluster(cluster: Cluster, admin: Admin, keys: Keys = (), *, figures: bool = True) -> ClusterProbe:
    """Asks each name server for its brokers (106) and each broker for its topics (21) and, with `figures`, about itself
    (28), with requests that are signed with `keys`.

    Each is connected to anew before it is asked: a connection from before works where no new client gets through any
    more, because the name has no address or a network policy is in the way.
    """
    asking = admin.speaking(cluster.tls, keys)
    servers = cluster.name_server_addresses
    brokers = [member.address for member in cluster.members]
    listings, signs = await asyncio.gather(
        asyncio.gather(*(_listing(asking, server) for server in servers)),
        asyncio.gather(*(_sign_of_life(asking, broker, figures=figures) for broker in brokers)),
    )
    said = dict(zip(servers, listings, strict=True))
    answers = dict(zip(brokers, signs, strict=True))
    heard = {broker: sign for broker, sign in answers.items() if isinstance(sign, _Sign)}
    refusals = {**said, **{broker: sign.refused for broker, sign in heard.items()}}
    return ClusterProbe(
        said,
        {broker: sign if isinstance(sign, str) else None for broker, sign in answers.items()},
        {broker: sign.figures for broker, sign in heard.items() if sign.figures},
        {broker: sign.topics for broker, sign in heard.items()},
        {address: refusal for address, refusal in refusals.items() if isinstance(refusal, _Refusal)},
    )


class _Refusal(str):
    """What a server says that does not take our signature, or wants one."""

    __slots__ = ()


class _Sign(NamedTuple):
    topics: str
    figures: BrokerFigures | None
    refused: _Refusal | None


async def _listing(admin: ClusterAdmin, name_server: str) -> Listing | str:
    try:
        await admin.connect(name_server)
        return await admin.listed_brokers(name_server)
    except ServerError as error:
        return _refusal(error) or str(error)
    except RaptorMQError as error:
        return str(error)


async def _sign_of_life(admin: ClusterAdmin, broker: str, *, figures: bool) -> _Sign | str:
    """What the broker says, or what went wrong. A refusal is a sign of life, too."""
    refused: _Refusal | None = None
    said: BrokerFigures | None = None
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
    except RaptorMQError as error:
        return str(error)
    return _Sign(topics, said, refused)


def _refusal(error: ServerError) -> _Refusal | None:
    return _Refusal(error) if error.code == ResponseCode.NO_PERMISSION else None


class LatestProbes:
    """The latest probe of each cluster, by namespace and name: its Topics are judged by it, too, and no silent broker
    is asked for each of them."""

    def __init__(self) -> None:
        self._probes: dict[tuple[str, str], ClusterProbe] = {}

    def set(self, namespace: str, name: str, probe: ClusterProbe) -> None:
        """A cluster was probed."""
        self._probes[namespace, name] = probe

    def get(self, namespace: str, name: str) -> ClusterProbe | None:
        """None while it was not."""
        return self._probes.get((namespace, name))

    def forget(self, namespace: str, name: str) -> None:
        """The cluster is gone."""
        self._probes.pop((namespace, name), None)
