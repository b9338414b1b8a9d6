"""Settings of a Dledger group, under RocketMQ's keys (``MessageStoreConfig``).

All members of a group have the same ``dLegerPeers``; ``dLegerSelfId`` says which of them a broker is. The list counts
when the group is formed. Afterwards the members are what the group has agreed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from raptormq.config_file import integer, parse_bool, setting
from raptormq.errors import ConfigError
from raptormq.transport.pool import parse_address

_PEER = re.compile(r"([A-Za-z]+[0-9]+)-(.+)")
_INTERVAL_MS = integer(10, 60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """Whether the broker is a member of a Dledger group, and of which."""

    enabled: bool = setting(False, "enableDLegerCommitLog", parse=parse_bool)
    """Whether the broker is a member of a group whose members each have a copy of the commit log."""
    group: str = setting("", "dLegerGroup")
    """Name of the group, the same for all members; usually that of the broker."""
    peers: str = setting("", "dLegerPeers")
    """The members: ``n0-host:port;n1-host:port;n2-host:port``, an odd number of them. The ports are for the members
    alone and differ from ``listenPort``."""
    self_id: str = setting("", "dLegerSelfId")
    """Which of the members this broker is, such as ``n0``. A follower registers with the name servers under the number
    in it plus one, the leader under 0."""
    preferred_leader: str = setting("", "preferredLeaderId")
    """The member that leads whenever it has caught up; empty for none."""
    heartbeat_ms: int = setting(200, "dLegerHeartbeatInterval", parse=_INTERVAL_MS)
    """How often the leader tells its followers that it is there, in ms."""
    election_ms: int = setting(1_000, "dLegerElectionTimeout", parse=_INTERVAL_MS)
    """How long a follower hears nothing from its leader before it stands for election: between once and twice this
    time, in ms. At least twice the heartbeat interval."""

    @property
    def addresses(self) -> dict[str, str]:
        """The address (``host:port``) of each member by its id."""
        return _parse_peers(self.peers)

    @property
    def broker_id(self) -> int:
        """The broker id of this member while it follows."""
        return int(re.sub(r"\D+", "", self.self_id)) + 1

    def check(self) -> None:
        """Check the settings of a group together.

        Raises:
            ConfigError: they do not describe a group with this broker in it.
        """
        if not self.enabled:
            return
        if not self.group:
            raise ConfigError("enableDLegerCommitLog = true needs dLegerGroup, the name of the group")
        addresses = self.addresses
        if len(addresses) % 2 == 0:
            raise ConfigError(
                f"setting dLegerPeers has {len(addresses)} members: expected an odd number, such as 3, because an even"
                " one survives no more failures than one member fewer"
            )
        for key, member in (("dLegerSelfId", self.self_id), ("preferredLeaderId", self.preferred_leader)):
            if member not in addresses and (member or key == "dLegerSelfId"):
                raise ConfigError(
                    f"setting {key} = {member!r} is not in dLegerPeers: expected one of {', '.join(addresses)}"
                )
        if self.election_ms < 2 * self.heartbeat_ms:
            raise ConfigError(
                f"setting dLegerElectionTimeout = {self.election_ms} is less than twice dLegerHeartbeatInterval ="
                f" {self.heartbeat_ms}"
            )


def _parse_peers(text: str) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        found = _PEER.fullmatch(entry)
        if found is None:
            raise ConfigError(f"setting dLegerPeers: {entry!r} is not of the form n0-host:port")
        member, address = found[1], found[2]
        try:
            parse_address(address)
        except ConfigError as error:
            raise ConfigError(f"setting dLegerPeers: {error}") from None
        if member in addresses or address in addresses.values():
            raise ConfigError(f"setting dLegerPeers: {entry!r} is there twice")
        addresses[member] = address
    if len({re.sub(r"\D+", "", member).lstrip("0") for member in addresses}) != len(addresses):
        raise ConfigError("setting dLegerPeers: two members have the same number, from which the broker id follows")
    return addresses
