"""Accepts plain and TLS connections on a port, up to the connection limit.

Handles sockets and limits only; :mod:`raptormq.transport.connection` handles the bytes of a connection.
"""

from __future__ import annotations

from raptormq.transport.accept.acceptor import Acceptor, Refusals
from raptormq.transport.accept.listener import Listener, listen

__all__ = [
    "Acceptor",
    "Listener",
    "Refusals",
    "listen",
]
