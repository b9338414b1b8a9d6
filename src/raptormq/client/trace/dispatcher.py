"""Sends trace records in the background, many with one message.

    add --> waiting records --after FLUSH_INTERVAL_S, or FLUSH_RECORDS--> pack --> send, one message after the other

Tracing must not delay sends and consumption, which therefore never wait for it. Records that arrive while
`MAX_WAITING_RECORDS` wait are dropped, and so are the records of a trace message that was not sent. Each reason is
logged at most once a minute.

See also: `trace.interceptor` adds, `producer.message_trace` sends. Source: RocketMQ `AsyncTraceDispatcher`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from raptormq.client.background import background, cancel_all
from raptormq.client.trace.records import TraceData, TraceRecord, pack
from raptormq.errors import RaptorMQError
from raptormq.logs import get_logger
from raptormq.transport.timing import Backoff, wait_event

log = get_logger(__name__)

FLUSH_INTERVAL_S = 1.0
"""Longest time that a record waits, in seconds, while traces can be sent."""
FLUSH_RECORDS = 500
"""Number of waiting records at which all are sent at once."""
MAX_WAITING_RECORDS = 20_000
_BACKOFF = Backoff(FLUSH_INTERVAL_S, 30.0)
_LOG_INTERVAL_S = 60.0


class TraceDispatcher:
    """Collects and sends the records of one producer or consumer. The constructor starts its task.

    Args:
        group: the group, for the log.
        send: sends one message; raises `RaptorMQError` if it cannot be sent.
    """

    def __init__(self, group: str, send: Callable[[TraceData], Awaitable[None]]) -> None:
        self._group = group
        self._send = send
        self._records: list[TraceRecord] = []
        self._arrived = asyncio.Event()
        """Set while records wait."""
        self._due = asyncio.Event()
        """Set when the waiting records must be sent now."""
        self._dropped = 0
        """Records that were dropped since the last log line."""
        self._failures = 0
        """Failed sends in a row."""
        self._logged_at: dict[str, float] = {}
        """Time of the last log line about each kind of reason, in seconds of a monotonic clock."""
        self._is_closing = False
        self._task = background(self._run(), f"message trace of {group}")

    def add(self, records: Iterable[TraceRecord]) -> None:
        """Send records later; never waits."""
        for record in records:
            if len(self._records) >= MAX_WAITING_RECORDS:
                self._drop(1, "full", f"more than {MAX_WAITING_RECORDS:,} records wait")
                continue
            self._records.append(record)
        if self._records:
            self._arrived.set()
        if len(self._records) >= FLUSH_RECORDS and not self._failures:
            self._due.set()

    async def close(self, timeout: float) -> None:
        """Send the waiting records for at most `timeout` seconds, and drop the rest."""
        self._is_closing = True
        self._arrived.set()
        self._due.set()
        await asyncio.wait([self._task], timeout=timeout)
        await cancel_all([self._task])
        if self._records:
            self._drop(len(self._records), "closed", "the client is closed")
            self._records.clear()

    async def _run(self) -> None:
        while not self._is_closing or self._records:
            await self._arrived.wait()
            await wait_event(self._due, _BACKOFF.pause(self._failures))
            records, self._records = self._records, []
            if not self._is_closing:
                self._arrived.clear()
                self._due.clear()
            for data in pack(records):
                await self._send_one(data)

    async def _send_one(self, data: TraceData) -> None:
        try:
            await self._send(data)
        except RaptorMQError as error:
            self._failures += 1
            self._drop(data.body.count(b"\x02"), type(error).__name__, str(error))
        else:
            self._failures = 0

    def _drop(self, count: int, kind: str, reason: str) -> None:
        """Count dropped records. Log the reason, at most once per `_LOG_INTERVAL_S` for each kind."""
        self._dropped += count
        now = time.monotonic()
        if now - self._logged_at.get(kind, float("-inf")) >= _LOG_INTERVAL_S:
            self._logged_at[kind] = now
            log.warning("dropped %d message trace records of group %s: %s", self._dropped, self._group, reason)
            self._dropped = 0
