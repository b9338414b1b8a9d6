"""Access control and TLS of one server, and whether another server can talk to it. Pure.

The brokers of a group send requests to each other, and brokers to name servers. A server with other settings may refuse
these requests. A server in transition (`peerSecurityTransition` of brokers) accepts its peers both ways, and connects
without TLS to a peer that has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raptormq_operator.model.cluster import AccessControl, Cluster, Tls


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """Settings of one server."""

    tls: Tls | None = None
    access: AccessControl | None = None
    """None without access control."""
    in_transition: bool = False

    @classmethod
    def of_spec(cls, cluster: Cluster) -> PeerSecurity:
        """Return the settings in the spec."""
        return cls(cluster.tls, cluster.access_control if cluster.authenticates else None)

    @property
    def opened(self) -> PeerSecurity:
        """The same settings in transition."""
        return replace(self, in_transition=True)

    def applied(self, cluster: Cluster) -> Cluster:
        """Return the cluster as if its spec had these settings."""
        access = self.access
        if access is None and cluster.access_control is not None:
            access = replace(cluster.access_control, enabled=False)
        return replace(cluster, tls=self.tls, access_control=access, peers_in_transition=self.in_transition)

    def accepts(self, peer: PeerSecurity) -> bool:
        """Return whether requests of `peer` are accepted."""
        return self.accepts_connections(peer) and self.accepts_signatures(peer)

    def talks_with(self, peer: PeerSecurity) -> bool:
        """Return whether each accepts the requests of the other."""
        return self.accepts(peer) and peer.accepts(self)

    def accepts_connections(self, peer: PeerSecurity) -> bool:
        """Return whether the connections of `peer` are accepted, as far as TLS is concerned."""
        if peer.tls is None:
            return self.in_transition or self.tls is None or self.tls.mode != "enforcing"
        if self.tls is None:
            return peer.in_transition
        is_verified = self.tls.client_auth != "none" and not self.in_transition
        return not is_verified or peer.tls.secret_name == self.tls.secret_name

    def accepts_signatures(self, peer: PeerSecurity) -> bool:
        """Return whether requests with the signature of `peer`, or without one, are accepted."""
        if self.access is None or self.in_transition:
            return True
        return peer.access is not None and peer.access.operator_secret == self.access.operator_secret
