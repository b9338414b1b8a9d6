"""The broker's own addresses: what goes into routes, and what goes into records and message ids."""

from __future__ import annotations

import ipaddress
import socket

from raptormq.errors import ConfigError
from raptormq.logs import get_logger
from raptormq.protocol.message_id import encode_host

logger = get_logger(__name__)


def own_address() -> str:
    """Return the address other hosts most likely reach this one at: the source address of a route that leaves it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address; a datagram socket sends nothing by connecting
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def reserve_port(bind_address: str) -> socket.socket:
    """Return a socket on a port that is free now and stays so while the socket is open: a listener can be bound beside
    it, and nobody else is given the port.

    The port has to be known before the listener is bound, because records and message ids hold it.

    Raises:
        ConfigError: the address to listen on is not one of this host.
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
    """Return ``host:port`` as routes hold it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def store_host(host: str, port: int) -> bytes:
    """Return address and port for records and ids; a name is resolved, to IPv4 where it can be.

    A name that cannot be resolved is a warning, since the DNS of a cluster may publish it only when the broker
    serves: the records then hold the address of this host.
    """
    try:
        return encode_host(str(ipaddress.ip_address(host)), port)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        address = own_address()
        logger.warning("cannot resolve brokerIP1 = %s (%s); message ids will hold %s", host, error, address)
        return encode_host(address, port)
    addresses = sorted((entry[0] != socket.AF_INET, str(entry[4][0])) for entry in found)
    return encode_host(addresses[0][1], port)


def peer_host(host: str, port: int) -> bytes:
    """Return a client's address for the BORNHOST field: an IPv4 one as such even where it came through an IPv6
    socket."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bytes(8)  # a peer without an address, whose connection has just ended
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed + port.to_bytes(4, "big")
