"""Names shared by `own_load` and `own_consumer`."""

from __future__ import annotations

TOPIC = "batch-bench"
GROUP = "batch-bench"
