"""The broker's own addresses."""

from __future__ import annotations

import pytest

from raptormq.broker.addresses import client_address, listening_port, store_host
from raptormq.broker.config import BrokerConfig
from raptormq.errors import ConfigError


def test_addresses_in_records() -> None:
    assert store_host("10.1.2.3", 10_911) == bytes([10, 1, 2, 3]) + (10_911).to_bytes(4, "big")
    assert store_host("localhost", 1)[:4] == bytes([127, 0, 0, 1])
    assert len(store_host("::1", 1)) == 20


def test_addresses_in_routes() -> None:
    assert client_address("broker-0.brokers", 10_911) == "broker-0.brokers:10911"
    assert client_address("::1", 10_911) == "[::1]:10911"


def test_the_port_is_known_before_it_is_bound() -> None:
    assert listening_port(BrokerConfig.from_pairs({"listenPort": "1234"}).network) == 1234
    assert listening_port(BrokerConfig.from_pairs({"listenPort": "0"}).network) > 0


def test_a_foreign_address_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        listening_port(BrokerConfig.from_pairs({"listenPort": "0", "bindAddress": "192.0.2.1"}).network)
