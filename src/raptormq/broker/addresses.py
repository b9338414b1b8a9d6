"""The broker's own addresses: what goes into routes, and what goes into records and message ids."""

from __future__ import annotations

import ipaddress
import socket

from raptormq.broker.config import Network
from raptormq.errors import ConfigError
from raptormq.protocol.message_id import encode_host


def listening_port(network: Network) -> int:
    """Return the port to listen on: the configured one, or one that is free now for 0.

    It has to be known before the socket is bound, because records and message ids hold it.

    Raises:
        ConfigError: the address to listen on is not one of this host.
    """
    if network.listen_port:
        return network.listen_port
    family = socket.AF_INET6 if ":" in network.bind_address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((network.bind_address, 0))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ConfigError(f"cannot listen on {network.bind_address}: {error.strerror}") from error


def client_address(host: str, port: int) -> str:
    """Return ``host:port`` as routes hold it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def store_host(host: str, port: int) -> bytes:
    """Return address and port for records and ids; a name is resolved, to IPv4 where it can be.

    Raises:
        ConfigError: the name cannot be resolved.
    """
    try:
        return encode_host(str(ipaddress.ip_address(host)), port)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"brokerIP1 = {host!r} is neither an address nor a name that can be resolved") from error
    addresses = sorted((entry[0] != socket.AF_INET, str(entry[4][0])) for entry in found)
    return encode_host(addresses[0][1], port)
