"""Requests that brokers of the same group send to each other on the port for clients.

While access control is enabled or disabled on one broker after another (``peerSecurityTransition``), some brokers do
not sign yet, or any more. These requests are then accepted without a signature. All others need it as before. The port
of a Dledger group has its own check (:mod:`raptormq.broker.group_wiring`).
"""

from __future__ import annotations

from raptormq.broker.config import BrokerConfig
from raptormq.protocol.codes import RequestCode

_OF_MEMBERS = frozenset({int(RequestCode.DESCRIBE_REPLICATION)})
"""A member checks which member the address of the leader (``dLegerLeaderAddress``) leads to."""
_OF_MASTER_AND_SLAVES = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.READ_LOG_RANGE,
        RequestCode.COMPARE_LOG,
    }
)
"""The requests of :class:`raptormq.broker.ha.MasterClient`."""


def unsigned_peer_codes(config: BrokerConfig) -> frozenset[int]:
    """Return the request codes that need no signature, because the settings of the peers change."""
    if not config.security.peers_in_transition:
        return frozenset()
    if config.replication.enabled:
        return _OF_MEMBERS
    return frozenset(map(int, _OF_MASTER_AND_SLAVES)) if config.serves_slaves or config.ha.is_slave else frozenset()
