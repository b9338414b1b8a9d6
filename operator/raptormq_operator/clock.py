"""The time of day, also in the two forms that Kubernetes objects carry. Everything else takes its clock as argument."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Now, with its time zone, to be compared with the times that objects and certificates carry."""
    return datetime.now(UTC)


def timestamp() -> str:
    """Now, to the second, for conditions and Events: `2026-11-20T23:18:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Now, to the microsecond, for Leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
