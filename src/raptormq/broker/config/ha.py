"""Settings of masters and slaves, with RocketMQ's keys (``MessageStoreConfig``, ``BrokerConfig``)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from raptormq.broker.config.names import address
from raptormq.config_file import choice, integer, parse_bool, setting, size
from raptormq.errors import ConfigError

ASYNC_MASTER, SYNC_MASTER, SLAVE = "ASYNC_MASTER", "SYNC_MASTER", "SLAVE"
MAX_TRANSFER_BYTES = (4 << 20) - 12
"""Slaves of Apache RocketMQ have a read buffer of 4 MiB for a push and its header of 12 bytes."""
_INTERVAL_MS = integer(10, 86_400_000)


def _networks(text: str) -> str:
    _parse_networks(text)
    return text


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse a list of addresses and networks. Raises ValueError if an entry is neither."""
    try:
        return tuple(ip_network(entry) for entry in filter(None, map(str.strip, text.split(","))))
    except ValueError:
        raise ValueError("addresses or networks such as 10.0.0.7,10.1.0.0/16") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HaSettings:
    """Role of the broker and settings of the HA protocol."""

    role: str = setting(ASYNC_MASTER, "brokerRole", parse=choice(ASYNC_MASTER, SYNC_MASTER, SLAVE))
    """A ``SYNC_MASTER`` acknowledges a message when a slave has it. A ``SLAVE`` replicates the master with the same
    ``brokerName``."""
    broker_id: int = setting(0, "brokerId", parse=integer(-1, 2**31 - 1))
    """Id of a slave, above 0. Ignored for masters, whose id is 0, and for members of a Dledger group."""
    listen_port: int = setting(0, "haListenPort", parse=integer(0, 65_535))
    """Port for the slaves of this master; 0 is ``listenPort`` plus one."""
    master_address: str = setting("", "haMasterAddress")
    """HA address of the master as ``host:port``. Empty: the address that the master has registered with the name
    servers."""
    slave_addresses: str = setting("", "haSlaveAddresses", parse=_networks)
    """Addresses and networks from which slaves may connect, separated by commas. Empty: all. The HA protocol has no
    authentication and no encryption. With access control or enforced TLS, the HA port is open only if this list is
    set."""
    heartbeat_ms: int = setting(5_000, "haSendHeartbeatInterval", parse=_INTERVAL_MS)
    """Heartbeat interval of master and slave on an idle connection, in ms."""
    housekeeping_ms: int = setting(20_000, "haHousekeepingInterval", parse=_INTERVAL_MS)
    """Time in ms after which a connection without received bytes is closed; twice ``haSendHeartbeatInterval`` if it is
    not above it."""
    transfer_bytes: int = setting(32_768, "haTransferBatchSize", parse=size(1, MAX_TRANSFER_BYTES))
    """Maximum number of bytes in one push."""
    max_gap_bytes: int = setting(256 << 20, "haMaxGapNotInSync", "haSlaveFallbehindMax", parse=size(1))
    """Maximum lag in bytes of a slave that counts as in sync. Without enough such slaves, a SYNC_MASTER answers sends
    with SLAVE_NOT_AVAILABLE at once."""
    slave_timeout_ms: int = setting(3_000, "slaveTimeout", parse=_INTERVAL_MS)
    """Time in ms that a send to a SYNC_MASTER waits for the slaves before it is answered with FLUSH_SLAVE_TIMEOUT."""
    in_sync_replicas: int = setting(1, "inSyncReplicas", parse=integer(1, 64))
    """Number of copies that a SYNC_MASTER waits for, including its own. Values below 2 count as 2."""
    slave_read: bool = setting(False, "slaveReadEnable", parse=parse_bool)
    """Whether the master directs a consumer to a slave if the consumer reads messages that are no longer in memory."""
    memory_percent: int = setting(40, "accessMessageInMemoryMaxRatio", parse=integer(1, 95))
    """Share of the machine's memory in percent that is assumed to hold the newest messages. See ``slaveReadEnable``."""

    may_start_behind: bool = setting(False, "haMasterMayStartBehind", parse=parse_bool)
    """Whether a master serves although another broker of its name has messages that this master lacks. These messages
    are given up.
    """

    @property
    def is_slave(self) -> bool:
        """Whether the broker is a slave."""
        return self.role == SLAVE

    @property
    def silence_ms(self) -> int:
        """Time in ms after which a connection without received bytes is closed. It is above the heartbeat interval:
        otherwise idle connections would be closed between two heartbeats.
        """
        return self.housekeeping_ms if self.housekeeping_ms > self.heartbeat_ms else 2 * self.heartbeat_ms

    @property
    def needed_slaves(self) -> int:
        """Number of slaves that must have a message before it is acknowledged."""
        return max(1, self.in_sync_replicas - 1) if self.role == SYNC_MASTER else 0

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Networks from which slaves may connect; empty for all."""
        return _parse_networks(self.slave_addresses)

    def check(self, *, in_group: bool, name_servers: str) -> None:
        """Check that the settings are consistent.

        Args:
            in_group: whether the broker is a member of a Dledger group.
            name_servers: the setting ``namesrvAddr``.

        Raises:
            ConfigError: a setting is invalid or contradicts another one.
        """
        if in_group:
            if self.role != ASYNC_MASTER:
                raise ConfigError(
                    f"brokerRole = {self.role} contradicts enableDLegerCommitLog = true: a member of a group is master"
                    " or slave by election; remove brokerRole"
                )
            return
        if not self.is_slave:
            return
        if self.broker_id <= 0:
            raise ConfigError(
                f"brokerRole = SLAVE with brokerId = {self.broker_id}: expected a brokerId above 0 that no other broker"
                " of this brokerName has"
            )
        if not name_servers:
            raise ConfigError("brokerRole = SLAVE needs namesrvAddr: a slave looks up the address of its master there")
        if self.master_address:
            try:
                address(self.master_address)
            except ConfigError as error:
                raise ConfigError(f"setting haMasterAddress: {error}") from None
