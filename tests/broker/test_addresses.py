"""The broker's own addresses."""

from __future__ import annotations

import socket

import pytest

from raptormq.broker.addresses import client_address, own_address, peer_host, reserve_port, store_host
from raptormq.errors import ConfigError
from raptormq.transport.accept.listener import listen


def test_addresses_in_records() -> None:
    assert store_host("10.1.2.3", 10_911) == bytes([10, 1, 2, 3]) + (10_911).to_bytes(4, "big")
    assert store_host("localhost", 1)[:4] == bytes([127, 0, 0, 1])
    assert len(store_host("::1", 1)) == 20


def test_addresses_in_routes() -> None:
    assert client_address("broker-0.brokers", 10_911) == "broker-0.brokers:10911"
    assert client_address("::1", 10_911) == "[::1]:10911"


def test_a_name_that_nobody_knows_yet_leaves_this_hosts_address_in_the_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = store_host("no-such-host.invalid", 1)
    assert host == store_host(own_address(), 1)
    assert "cannot resolve brokerIP1 = no-such-host.invalid" in caplog.text


async def test_a_port_that_is_reserved_is_for_the_listener_beside_it() -> None:
    with reserve_port("127.0.0.1") as reserved:
        port = reserved.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        for listener in await listen("127.0.0.1", port):
            listener.close()


def test_a_foreign_address_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1"):
        reserve_port("192.0.2.1")


def test_addresses_of_clients() -> None:
    assert peer_host("10.1.2.3", 4) == bytes([10, 1, 2, 3, 0, 0, 0, 4])
    assert peer_host("::ffff:10.1.2.3", 4) == bytes([10, 1, 2, 3, 0, 0, 0, 4])
    assert len(peer_host("2001:db8::1", 4)) == 20
    assert peer_host("", 0) == bytes(8)
