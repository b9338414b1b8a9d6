"""Records that reads skip although they are in the queue: damaged records, and batches that cannot be unpacked."""

from __future__ import annotations

import threading

from raptormq.logs import get_logger

logger = get_logger(__name__)


class SkippedRecords:
    """Counts skipped records. Thread-safe. Each read that skips a record counts it again."""

    def __init__(self) -> None:
        self.records = 0
        """Number of skipped records; a batch counts as one."""
        self._lock = threading.Lock()

    def count(self, records: int, what: str, *where: object) -> None:
        """Count ``records`` and log a warning; ``what`` is a format for ``records`` and ``where``."""
        with self._lock:
            self.records += records
        logger.warning(what, records, *where)
