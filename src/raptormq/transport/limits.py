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
    max_owed_bytes: int = 64 * 1024 * 1024
    """Unsent bytes beyond which the connection is dropped; the peer has stopped reading."""
    write_high_water_bytes: int = 4 * 1024 * 1024
    """Unsent bytes from which :attr:`Connection.is_clogged` holds."""
    silence_seconds: float | None = None
    """When a request times out and the peer has sent nothing for this long, the connection is closed, so that the next
    request opens a new one. For clients; ``None`` keeps the connection."""
    hold_reading: bool = False
    """Stop reading from a clogged peer. For servers only: two ends that both did it could wait for each other."""
    credentials: Credentials | CredentialSource | None = None
    """Credentials that sign own requests; a function is asked for each request, since they may change."""
