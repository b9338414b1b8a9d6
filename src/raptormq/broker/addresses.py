"""Addresses of the broker and its clients in routes, records and message ids."""

from __future__ import annotations

import ipaddress
import socket

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.message_id import encode_host

logger = get_logger(__name__)


def own_address() -> str:
    """Return the source address of outgoing connections, which other hosts can usually reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation address (RFC 5737); this sends no packet
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def reserve_port(bind_address: str) -> socket.socket:
    """Return a socket bound to a free port.

    The port remains reserved while the socket is open: a listener of this process can be bound to it, but the system
    does not assign it to other processes. The broker must know the port before it binds the listener, because records
    and message ids contain it.

    Raises:
        ConfigError: ``bind_address`` is not an address of this host.
    """
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    reserved = socket.socket(family, socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((bind_address, 0))
    except OSError as error:
        reserved.close()
        raise ConfigError(f"cannot listen on {bind_address}: {error.strerror}") from error
    return reserved


def client_address(host: str, port: int) -> str:
    """Return ``host:port`` in the format of routes."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def store_host(host: str, port: int) -> bytes:
    """Return address and port in the format of records and message ids. A name is resolved, to IPv4 if possible.

    If a name cannot be resolved, the function logs a warning and returns the address of this host. This is not an
    error, because the DNS of a cluster may publish the name only when the broker is ready.
    """
    try:
        return encode_host(str(ipaddress.ip_address(host)), port)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        address = own_address()
        logger.warning("cannot resolve brokerIP1 = %s (%s); message ids will contain %s", host, error, address)
        return encode_host(address, port)
    addresses = sorted((entry[0] != socket.AF_INET, str(entry[4][0])) for entry in found)
    return encode_host(addresses[0][1], port)


def peer_host(host: str, port: int) -> bytes:
    """Return the address of a client for the BORNHOST field. An IPv4-mapped IPv6 address is converted to IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes(8)  # a closed connection has no address
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big")
