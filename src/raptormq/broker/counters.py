"""What the broker has done since it started: plain integers, because the send path counts every message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counted where it happens, read by the metrics and by GET_BROKER_RUNTIME_INFO (28)."""

    messages_in: int = 0
    """Messages stored."""
    bytes_in: int = 0
    """Bytes of log they took."""
    sends_refused: int = 0
    """Send requests answered with an error."""
    messages_out: int = 0
    """Messages handed to consumers."""
    bytes_out: int = 0
    """Bytes of records handed to consumers."""
    copies_shortened: int = 0
    """Copies of messages that had no room for all of their properties."""
    pulls_found: int = 0
    """Pulls answered with messages."""
    pulls_empty: int = 0
    """Pulls answered without."""
    pulls_cold: int = 0
    """Pulls that had to wait for the disk."""
    pulls_refused: int = 0
    """Pulls answered with an error."""
