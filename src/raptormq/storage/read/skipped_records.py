"""What readers do not get, although it is in their queue: damaged records, and batches that cannot be taken apart."""

from __future__ import annotations

import threading

from raptormq.logs import get_logger

logger = get_logger(__name__)


class SkippedRecords:
    """Counts what reads step over, in whichever thread they read; each read that comes to it counts it again."""

    def __init__(self) -> None:
        self.records = 0
        """Records, a batch being one."""
        self._lock = threading.Lock()

    def count(self, records: int, what: str, *where: object) -> None:
        """Count ``records``, with a line in the log: ``what`` is a format for ``records`` and ``where``."""
        with self._lock:
            self.records += records
        logger.warning(what, records, *where)
