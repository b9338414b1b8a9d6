"""Headers of the requests that mqadmin sends to the controller of Apache RocketMQ 5
(``remoting.protocol.header.controller``)."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.schema import Header


@dataclass(slots=True)
class ElectMasterRequestHeader(Header):
    """1002: make the broker with the id ``broker_id`` the master, if ``designate_elect`` is set. -1 stands for any
    broker.
    """

    broker_name: str
    broker_id: int = -1
    cluster_name: str | None = None
    designate_elect: bool = False


@dataclass(slots=True)
class ElectMasterResponseHeader(Header):
    """1002: the new master."""

    master_broker_id: int
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int


@dataclass(slots=True)
class ControllerMetadataResponseHeader(Header):
    """1005: the controllers. ``peers`` has the form of ``dLegerPeers``."""

    group: str
    controller_leader_id: str
    controller_leader_address: str
    is_leader: bool
    peers: str


@dataclass(slots=True)
class CleanBrokerDataRequestHeader(Header):
    """1011: remove the brokers with these ids, separated by semicolons; living ones only with
    ``is_clean_living_broker``.
    """

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
