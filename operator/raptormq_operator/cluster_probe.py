"""What the name servers and brokers of a cluster themselves say. Pods that are ready are a hint; this is the evidence.

`ClusterProbe` is plain data that the pure verdicts judge; `probe_cluster` asks everyone at the same time, each with its
own time limit, so that one silent peer costs its own time-out and hides nobody else's answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from raptormq.errors import RaptorMQError
from raptormq_operator.admin import Admin, ClusterAdmin, Listing
from raptormq_operator.model.cluster import Cluster, Member


@dataclass(frozen=True, slots=True)
class ClusterProbe:
    """Answers by address. A text instead of an answer is what went wrong."""

    name_servers: Mapping[str, Listing | str]
    brokers: Mapping[str, str | None]
    unknown_settings: frozenset[str] = frozenset()
    """What brokers say of settings that they do not know; most often all say the same, or nothing."""

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

    def registered(self, cluster: Cluster) -> frozenset[str]:
        """Names of the members that every name server lists and that answer themselves."""
        missing = {member for server in self.name_servers for member in self.missing(server, cluster)}
        return self.answering(cluster) - {member.name for member in missing}


async def probe_cluster(cluster: Cluster, admin: Admin) -> ClusterProbe:
    """Asks each name server for its brokers (106) and each broker for a sign of life (28)."""
    asking = admin.speaking(cluster.tls)
    servers = cluster.name_server_addresses
    brokers = [member.address for member in cluster.members]
    listings, signs = await asyncio.gather(
        asyncio.gather(*(_listing(asking, server) for server in servers)),
        asyncio.gather(*(_sign_of_life(asking, broker) for broker in brokers)),
    )
    return ClusterProbe(
        dict(zip(servers, listings, strict=True)),
        {broker: fault for broker, (fault, _) in zip(brokers, signs, strict=True)},
        frozenset(unknown for _, unknown in signs if unknown),
    )


async def _listing(admin: ClusterAdmin, name_server: str) -> Listing | str:
    try:
        return await admin.listed_brokers(name_server)
    except RaptorMQError as error:
        return str(error)


async def _sign_of_life(admin: ClusterAdmin, broker: str) -> tuple[str | None, str]:
    """What went wrong, if anything, and what the broker says of its settings."""
    try:
        return None, await admin.unknown_settings(broker)
    except RaptorMQError as error:
        return str(error), ""
