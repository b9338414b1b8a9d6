"""The reports of a SparkPipeline's driver to the operator: progress per query, and the cause of a failure.

The document of `/progress`:

    {"queries": [{"name": "flights", "batch": 12, "rowsPerSecond": 830.5, "lag": 1200,
                  "offsets": {"flights": {"broker-0": {"0": 4711}}}}]}

Offsets are the next ones to read. A query without a RaptorMQ source is reported without lag and offsets.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_raptormq.errors import OffsetFormatError
from pyspark_raptormq.metrics import lag_between
from pyspark_raptormq.offsets import parse_json, stream_offset
from raptormq.protocol.message import MessageQueue

MAX_CAUSE = 1_000
"""Maximum length of the cause of a failure in characters."""
MAX_QUEUES = 1_000
"""Maximum number of queues of a query whose offsets are reported."""
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Exit)\b.*:")


class ProgressListener(StreamingQueryListener):
    """Keeps the last progress of every query that is running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, dict[str, Any]] = {}

    def document(self) -> bytes:
        """Return the document of `/progress`."""
        with self._lock:
            return json.dumps({"queries": [self._queries[each] for each in sorted(self._queries)]}).encode()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: there is no batch yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Keep the progress of a batch."""
        with self._lock:
            self._queries[str(event.progress.id)] = _entry(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Set the rate to 0, and an unknown lag too, such as after a repeated batch: there is nothing to read."""
        with self._lock:
            if (query := self._queries.get(str(event.id))) is not None:
                query["rowsPerSecond"] = 0.0
                if "offsets" in query:
                    query.setdefault("lag", 0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Remove the query."""
        with self._lock:
            self._queries.pop(str(event.id), None)


def cause(error: BaseException) -> str:
    """Return the cause of an exception in one line."""
    text = str(error).strip()
    return cause_in(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def cause_in(text: str) -> str:
    """Return the cause in the text of an exception in one line.

    Spark's messages contain the stack traces of its workers. The cause is the last line of the last stack trace.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    found = named[-1] if "Traceback (most recent call last)" in text else lines[0]
    return found if len(found) <= MAX_CAUSE else f"{found[: MAX_CAUSE - 3]}..."


def _entry(progress: StreamingQueryProgress) -> dict[str, Any]:
    rate = progress.processedRowsPerSecond
    entry: dict[str, Any] = {
        "name": progress.name or str(progress.id),
        "batch": progress.batchId,
        "rowsPerSecond": round(rate, 1) if math.isfinite(rate) else 0.0,
    }
    offsets: dict[str, dict[str, dict[str, int]]] = {}
    queues = 0
    for source in progress.sources:
        for queue, offset in sorted(_read(source.endOffset).items()):
            queues += 1
            offsets.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    behind = [lag_between(source.endOffset, source.latestOffset) for source in progress.sources]
    # A batch that is repeated at the start of a query has no latest offsets.
    if any(each is not None for each in behind):
        entry["lag"] = sum(each.waiting for queues_of in behind for each in (queues_of or {}).values())
    if 0 < queues <= MAX_QUEUES:
        entry["offsets"] = offsets
    return entry


def _read(end_offset: str | None) -> Mapping[MessageQueue, int]:
    """Return the next offsets of a source; empty for a source of another kind."""
    if not end_offset:
        return {}
    try:
        return stream_offset(parse_json(end_offset)).queues
    except OffsetFormatError:
        return {}
