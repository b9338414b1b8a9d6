"""The broker's own addresses in routes, records and message ids."""

from __future__ import annotations

import ipaddress
import socket

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.message_id import encode_host

logger = get_logger(__name__)


def own_address() -> str:
    """Return the address at which other hosts most likely reach this one: the source address of an outgoing route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address; connecting a datagram socket sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def reserve_port(bind_address: str) -> socket.socket:
    """Return a socket bound to a free port, which stays reserved while the socket is open: a listener can be bound to
    it, but the system gives the port to no other process.

    The port must be known before the listener is bound, because records and message ids contain it.

    Raises:
        ConfigError: the address to listen on is not an address of this host.
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
    """Return ``host:port`` in the form used in routes."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def store_host(host: str, port: int) -> bytes:
    """Return address and port in the form used in records and ids. A name is resolved, to IPv4 if possible.

    A name that cannot be resolved causes a warning, because the DNS of a cluster may publish it only when the broker
    serves. Records then contain the address of this host.
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
    """Return a client's address for the BORNHOST field. An IPv4 address is used as such even when the client connects
    through an IPv6 socket.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes(8)  # the connection has just closed and has no address
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big")
