"""The names that `own_load` and `own_consumer` share."""

from __future__ import annotations

TOPIC = "batch-bench"
GROUP = "batch-bench"
