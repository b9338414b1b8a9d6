"""Settings of a Dledger group, with RocketMQ's keys (``MessageStoreConfig``).

All members of a group have the same ``dLegerPeers``. ``dLegerSelfId`` identifies a member. The list defines the members
when the group is created. Later changes of the membership are replicated in the group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from raptormq.broker.config.names import address as split_address
from raptormq.config_file import integer, parse_bool, setting
from raptormq.errors import ConfigError

_PEER = re.compile(r"([A-Za-z]+[0-9]+)-(.+)")
_INTERVAL_MS = integer(10, 60_000)
_PORT = integer(1, 65_535)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """Membership of the broker in a Dledger group."""

    enabled: bool = setting(False, "enableDLegerCommitLog", parse=parse_bool)
    """Whether the broker is a member of a group. Each member has a copy of the commit log."""
    group: str = setting("", "dLegerGroup", parse=str)
    """Name of the group, the same for all members, usually the broker name."""
    peers: str = setting("", "dLegerPeers")
    """The members, ``n0-host:port;n1-host:port;n2-host:port``, an odd number. Only members connect to these ports,
    which differ from ``listenPort``."""
    self_id: str = setting("", "dLegerSelfId")
    """Id of this member in the list, such as ``n0``. The broker id is 0 for the leader. For a follower it is the number
    in this id plus one."""
    preferred_leader: str = setting("", "preferredLeaderId")
    """Member that becomes leader as soon as it has caught up. Empty: no preference."""
    leader_address: str = setting("", "dLegerLeaderAddress")
    """Address (``host:port``) that routes to ``leader_port`` of the leader, such as the address of a Kubernetes
    Service. The leader registers this address while it reaches the leader. Empty: the leader registers its own address.
    """
    leader_port: int = setting(0, "dLegerLeaderPort", parse=_PORT)
    """Port on which only the leader listens. Its connections are closed when the member stops leading. Required with
    ``leader_address``.
    """
    heartbeat_ms: int = setting(200, "dLegerHeartbeatInterval", parse=_INTERVAL_MS)
    """Interval at which the leader sends heartbeats, in ms."""
    election_ms: int = setting(1_000, "dLegerElectionTimeout", parse=_INTERVAL_MS)
    """Election timeout in ms. A follower becomes a candidate after a random time between one and two timeouts without a
    heartbeat. The minimum is twice the heartbeat interval."""
    shortened_wait_ms: int = setting(600_000, "dLegerShortenedLogWait", parse=integer(0, 86_400_000))
    """Time in ms without a leader after which a member may lead although its log begins after that of the group, so
    that messages are lost that another member may still have."""
    shortened_renewal_ms: int = setting(60_000, "dLegerShortenedLogRenewal", parse=integer(0, 86_400_000))
    """Time in ms for which a member keeps a log that begins after that of the group. Then it drops the log and copies
    that of the leader, if the other members have all of it. 0 to keep it."""

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses (``host:port``) of the members, by id."""
        return _parse_peers(self.peers)

    @property
    def broker_id(self) -> int:
        """Broker id of this member while it is a follower."""
        return broker_id_of(self.self_id)

    def check(self) -> None:
        """Check that the settings of the group are complete and consistent.

        Raises:
            ConfigError: a setting is missing, invalid, or contradicts another one.
        """
        if not self.enabled:
            return
        if not self.group:
            raise ConfigError("enableDLegerCommitLog = true needs dLegerGroup, the name of the group")
        addresses = self.addresses
        if len(addresses) % 2 == 0:
            raise ConfigError(
                f"setting dLegerPeers has {len(addresses)} members: expected an odd number, such as 3, because an even"
                " number tolerates no more failures than one member fewer"
            )
        for key, member in (("dLegerSelfId", self.self_id), ("preferredLeaderId", self.preferred_leader)):
            if member not in addresses and (member or key == "dLegerSelfId"):
                raise ConfigError(
                    f"setting {key} = {member!r} is not in dLegerPeers: expected one of {', '.join(addresses)}"
                )
        if bool(self.leader_address) != bool(self.leader_port):
            raise ConfigError(
                "dLegerLeaderAddress and dLegerLeaderPort must be set together: the address routes to that "
                "port of the leader"
            )
        if self.leader_address:
            try:
                split_address(self.leader_address)
            except ConfigError as error:
                raise ConfigError(f"setting dLegerLeaderAddress: {error}") from None
        if self.election_ms < 2 * self.heartbeat_ms:
            raise ConfigError(
                f"setting dLegerElectionTimeout = {self.election_ms} is less than twice dLegerHeartbeatInterval ="
                f" {self.heartbeat_ms}"
            )


def broker_id_of(member: str) -> int:
    """Return the broker id of a member while it is a follower: the number in its id plus one."""
    return int(re.sub(r"\D+", "", member)) + 1


def _parse_peers(text: str) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        found = _PEER.fullmatch(entry)
        if found is None:
            raise ConfigError(f"setting dLegerPeers: {entry!r} is not of the form n0-host:port")
        member, address = found[1], found[2]
        try:
            split_address(address)
        except ConfigError as error:
            raise ConfigError(f"setting dLegerPeers: {error}") from None
        if member in addresses or address in addresses.values():
            raise ConfigError(f"setting dLegerPeers: duplicate entry {entry!r}")
        addresses[member] = address
    if len({re.sub(r"\D+", "", member).lstrip("0") for member in addresses}) != len(addresses):
        raise ConfigError("setting dLegerPeers: two members have the same number, which determines the broker id")
    return addresses
