"""The time of day in the two forms that Kubernetes objects carry. Everything else takes its clock as an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp() -> str:
    """Now, to the second, for conditions and Events: `2026-11-20T23:18:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Now, to the microsecond, for Leases."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
