"""The connection of one slave to its master: receives reports and pushes the log (``DefaultHAConnection``).

The master pushes confirmed bytes only; under SYNC_FLUSH these are flushed. After a power loss of the master, a slave
therefore has no records that the master has lost. A slave with an empty log receives the whole log. A master of Apache
RocketMQ would begin with its newest segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from raptormq.broker.config import HaSettings
from raptormq.broker.ha.frames import PUSH, REPORT
from raptormq.errors import ProtocolError
from raptormq.storage.fs import Buffer, PagesMissing
from raptormq.storage.store import MessageStore
from raptormq.transport.timing import wait_event

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class SlaveConnection:
    """A connected slave. ``reported`` is called with every log end that it reports."""

    def __init__(
        self,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        peer: str,
        store: MessageStore,
        settings: HaSettings,
        in_thread: InThread,
        reported: Callable[[SlaveConnection, int], None],
    ) -> None:
        self._reader, self._writer = streams
        self.peer = peer
        self._store = store
        self._settings = settings
        self._in_thread = in_thread
        self._reported = reported
        self._grown = asyncio.Event()
        self.end: int | None = None
        """End of the slave's log; None before its first report."""
        self.pushed_offset = 0
        """Log offset up to which the log was pushed."""
        self.pushed_bytes = 0
        """Number of bytes pushed on this connection."""

    def wake(self) -> None:
        """Push newly confirmed bytes."""
        self._grown.set()

    async def run(self) -> None:
        """Serve the slave until the connection ends.

        Raises:
            ProtocolError: a report is invalid, or the slave was silent for ``haHousekeepingInterval``.
            ValueError: the range that the slave needs is no longer in the log.
            OSError, EOFError: the connection ended.
            StorageError: the log cannot be read.
        """
        self.pushed_offset = self._start_offset(await self._read_report())
        pushing = asyncio.get_running_loop().create_task(self._push())
        reading = asyncio.get_running_loop().create_task(self._read_reports())
        try:
            done, _ = await asyncio.wait((pushing, reading), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (pushing, reading):
                task.cancel()
            await asyncio.gather(pushing, reading, return_exceptions=True)

    def close(self) -> None:
        """Close the connection without sending buffered bytes."""
        self._writer.transport.abort()

    # --- reports ---

    async def _read_report(self) -> int:
        try:
            async with asyncio.timeout(self._settings.silence_ms / 1000):
                (end,) = REPORT.unpack(await self._reader.readexactly(REPORT.size))
        except TimeoutError:
            raise ProtocolError("no report arrived for haHousekeepingInterval") from None
        return int(end)

    def _start_offset(self, end: int) -> int:
        stats = self._store.stats()
        low, high = stats.min_offset, self._store.confirmed_offset
        if end == 0:  # an empty slave receives the log from its beginning
            end = low
        if end < 0 or end > high:
            raise ProtocolError(
                f"its log ends at {end}, but the log of this master ends at {high}: the slave is ahead of"
                " this master, or has the log of another master"
            )
        if end < low:
            raise ProtocolError(
                f"its log ends at {end}, but the log of this master begins at {low}: the range between is deleted."
                " Empty the slave's store, or copy the master's segments to it"
            )
        self._set_end(end)
        return end

    def _set_end(self, end: int) -> None:
        self.end = end
        self._reported(self, end)

    async def _read_reports(self) -> None:
        while True:
            end = await self._read_report()
            if end == 0:  # the slave is still empty
                continue
            if end < (self.end or 0) or end > self.pushed_offset:
                raise ProtocolError(
                    f"it reports the log end {end} after {self.end}, but the log was pushed up to {self.pushed_offset}"
                )
            self._set_end(end)

    # --- pushes ---

    async def _push(self) -> None:
        store, writer, heartbeat_s = self._store, self._writer, self._settings.heartbeat_ms / 1000
        segment_size = store.config.segment_size
        while True:
            self._grown.clear()
            begin = self.pushed_offset
            segment_end = begin - begin % segment_size + segment_size
            end = min(store.confirmed_offset, begin + self._settings.transfer_bytes, segment_end)
            if end <= begin:
                await wait_event(self._grown, heartbeat_s)
                if not self._grown.is_set():
                    writer.write(PUSH.pack(begin, 0))
                    await writer.drain()
                continue
            data = await self._read(begin, end)
            self.pushed_offset = end  # before the write: the report may arrive before drain returns
            self.pushed_bytes += end - begin
            writer.write(PUSH.pack(begin, end - begin))
            writer.writelines(data)
            await writer.drain()
            await asyncio.sleep(0)  # a slave that catches up must not block the requests of clients

    async def _read(self, begin: int, end: int) -> list[Buffer]:
        try:
            return self._store.read_log(begin, end, wait=False)
        except PagesMissing:
            found: list[Buffer] = await self._in_thread(partial(self._store.read_log, begin, end, wait=True))
            return found
