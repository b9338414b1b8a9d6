"""Accepting connections on a port, plain and encrypted, within the descriptors that there are.

Knows sockets and limits; what is said on a connection, it does not know.
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
