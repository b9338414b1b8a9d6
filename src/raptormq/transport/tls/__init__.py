"""TLS contexts and settings, and a TLS transport that encrypts data only as fast as its peer reads."""

from __future__ import annotations

from raptormq.transport.tls.contexts import HANDSHAKE_S, SHUTDOWN_S, ClientTls, ServerTls
from raptormq.transport.tls.paced_transport import AHEAD_BYTES, Buffer, PacedTransport
from raptormq.transport.tls.settings import TLS_KEYS, client_tls, client_tls_of, server_tls

__all__ = [
    "AHEAD_BYTES",
    "HANDSHAKE_S",
    "SHUTDOWN_S",
    "TLS_KEYS",
    "Buffer",
    "ClientTls",
    "PacedTransport",
    "ServerTls",
    "client_tls",
    "client_tls_of",
    "server_tls",
]
