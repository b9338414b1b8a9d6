"""Limits of one connection; :mod:`~raptormq.transport.server` has the limits of all connections together."""

from __future__ import annotations

from dataclasses import dataclass

from raptormq.protocol.frame import MAX_FRAME_BYTES
from raptormq.protocol.signing import Credentials, CredentialSource


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """Largest frame accepted, in bytes."""
    max_unsent_bytes: int = 64 * 1024 * 1024
    """Unsent bytes beyond which the connection is aborted, because the peer has stopped reading."""
    write_high_water_bytes: int = 4 * 1024 * 1024
    """Unsent bytes above which :attr:`Connection.is_clogged` is true."""
    silence_seconds: float | None = None
    """Maximum time in seconds without received data. If it is exceeded when a request times out, the connection is
    closed, so that the next request opens a new one. For clients; ``None`` keeps the connection."""
    unacknowledged_ms: int = 0
    """Maximum time in ms that sent data may stay unacknowledged before the kernel closes the connection
    (``TCP_USER_TIMEOUT``, RFC 5482). 0 means the kernel's default retries, about 15 minutes."""
    hold_reading: bool = False
    """Whether reading stops while the connection is clogged. For servers only: if both ends stopped reading, they could
    deadlock."""
    credentials: Credentials | CredentialSource | None = None
    """Credentials that sign outgoing requests. A function is called for each request, because credentials may
    change."""
