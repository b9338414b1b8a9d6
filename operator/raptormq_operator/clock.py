"""The time of day, as `datetime` and in the two text forms of Kubernetes. Other modules take a clock as argument."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Return the current time in UTC as an aware `datetime`."""
    return datetime.now(UTC)


def timestamp() -> str:
    """Return the current time with seconds, as in conditions and Events: `2026-11-20T23:18:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Return the current time with microseconds, as in Leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
