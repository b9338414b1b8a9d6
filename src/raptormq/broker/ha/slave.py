"""A slave: replicates the log and the tables of its master (``DefaultHAClient``).

Before a slave connects to the HA port, it compares the segment size, the bounds of both logs and the last dispatched
record. If the slave is ahead of the master or the logs have diverged, it logs the reason and changes nothing. It does
not copy the tables either, because a master that has lost its store has no topics. Pushed bytes are validated and
written in whole records. After a damaged record the slave reconnects and receives it again.

Written records are confirmed at once, so consumers can read them. The slave reports the end of the written log, and
under SYNC_FLUSH the end of the flushed log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from raptormq.broker.config import HaSettings
from raptormq.broker.ha.frames import PUSH, REPORT
from raptormq.broker.ha.master import HaMaster
from raptormq.broker.ha.master_client import MasterClient
from raptormq.broker.ha.promotion_record import PromotionRecord
from raptormq.broker.ha.table_sync import TableSync
from raptormq.broker.roles import LeaderWork
from raptormq.broker.service import cancel_and_wait
from raptormq.errors import (
    ConnectError,
    NotLeader,
    ProtocolError,
    RaptorMQError,
    RecordError,
    StorageError,
    TransportError,
)
from raptormq.logs import get_logger
from raptormq.protocol.bodies.replication import LostRange
from raptormq.protocol.bodies.route import MASTER_ID
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.config import FlushDiskType
from raptormq.storage.replica import Replica
from raptormq.storage.store import MessageStore
from raptormq.transport.pool import parse_address
from raptormq.transport.router import Refused
from raptormq.transport.timing import Backoff, wait_event

logger = get_logger(__name__)

WATCH_S = 10.0
"""Interval in seconds at which a slave asks its master where its log begins."""
MAX_PUSH_BYTES = 64 << 20
"""Maximum size of a push, and of an incomplete record in memory."""
_HOUR_MS = 3_600_000
_CONNECT_S = 3.0
_RETRY = Backoff(0.2, 2.0)
_REGISTRATIONS_IN_A_ROW, _REGISTRATION_INTERVAL = 3, 15
"""The slave registers after each of the first failures, after every fifteenth, and when another broker is the master.
The response contains the address of the master. The interval limits the cost, because a registration contains all
topics.
"""


class HaSlave:
    """Replicates a master into the local store, which must be open."""

    def __init__(
        self,
        settings: HaSettings,
        store: MessageStore,
        client: MasterClient,
        tables: TableSync,
        find_master: Callable[[], None],
        look_up_master: Callable[[], Awaitable[str]],
        clock: Callable[[], int],
        master: HaMaster,
        promotion: PromotionRecord,
        watch: Callable[[], None],
    ) -> None:
        """Create the slave.

        Args:
            settings: HA settings of the broker.
            store: the store of the slave.
            client: sends requests to the master.
            tables: copies the tables of the master.
            find_master: registers, so that the name servers return the addresses of the master.
            look_up_master: returns the master's address for clients that a name server lists; empty for none.
            clock: returns the time of day in ms.
            master: serves slaves after a promotion.
            promotion: records a promotion.
            watch: begins the checks whether the promoted broker may go on serving.
        """
        assert store.replica is not None
        self._settings = settings
        self._store = store
        self._replica: Replica = store.replica
        self._client = client
        self.tables = tables
        self._find_master = find_master
        self._look_up_master = look_up_master
        self._clock = clock
        self._master = master
        self._promotion = promotion
        self._watch = watch
        self._work: LeaderWork | None = None
        self._is_master = self._is_promoting = False
        self._flushes_first = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._grown = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reason = ""
        self._is_connected = False
        self._received_bytes = 0
        self._master_end = 0
        self._read_ms = self._written_ms = 0
        self._first_record = (-1, 0)
        """Begin of the log, and the time in ms when the record there was stored."""

    async def start(self, work: LeaderWork) -> None:
        """Begin to follow the master. ``work`` contains the services that a promotion starts."""
        self._work = work
        self._replica.follow(self._not_master())
        await self._promotion.follows()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop following the master, or stop serving slaves."""
        await self._unfollow()
        if not self._is_master:
            await self.tables.save_commits()
        await self._client.close()
        await self._master.stop()

    async def _unfollow(self) -> None:
        if self._task is not None:
            await cancel_and_wait(self._task)
            self._task = None
            self._is_connected = False

    def not_master(self) -> NotLeader | None:
        """Return the error for a request that only the master handles; None once this broker is the master."""
        return None if self._is_master else self._not_master()

    def _not_master(self) -> NotLeader:
        where = f" ({self._client.address})" if self._client.address else ""
        return NotLeader(f"this broker is a slave, brokerId {self._settings.broker_id}: send to its master{where}")

    @property
    def refusal(self) -> str:
        """Reason why this broker does not serve although it was promoted; empty while it does, and for a slave."""
        return self._master.refusal if self._is_master else ""

    # --- promotion ---

    async def promote(self, save_role: Callable[[], None], *, force: bool) -> tuple[int, int]:
        """Become the master.

        Args:
            save_role: saves the role, so that the next start begins as a master.
            force: promote even if the master responds, or if this log begins after that of the master.

        Returns:
            The end of this log, and the last known end of the master's log.

        Raises:
            Refused: this broker is the master already; or ``force`` is not set, and the master responds, or this log
                begins after that of the master.
            ConfigError: the role cannot be saved; nothing has changed.
            StorageError: the disk failed; this broker remains a slave until its next start.
        """
        if self._is_master or self._is_promoting:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "this broker is the master already")
        self._is_promoting = True
        try:
            if not force and await self._master_answers():
                raise Refused(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the master ({self._client.address}) answers: stop it first; the logs of two masters cannot be"
                    " merged",
                )
            await self._read_first_record()
            if not force and (missing := self.missing) is not None:
                raise Refused(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"this log begins at {missing.end}, and that of the master began at {missing.begin}: consumers"
                    " would skip the messages between, which are younger than fileReservedTime; promote another slave,"
                    " or use --force to give them up",
                )
            save_role()
            await self._unfollow()
            try:
                await self._store.promote()
            except StorageError:
                self._task = asyncio.get_running_loop().create_task(self._run())
                raise
            await self._promotion.promoted(self._store.end_offset)
            await self.tables.promoted()
            self._is_master = True
        finally:
            self._is_promoting = False
        logger.warning("this broker is now the master: its log ends at %d", self._store.end_offset)
        await self._start_master()
        return self._store.end_offset, self._master_end

    async def _master_answers(self) -> bool:
        try:
            await self._client.log_bounds()
        except TransportError:
            return False
        except RaptorMQError:
            return True
        return True

    @property
    def missing(self) -> LostRange | None:
        """The messages at the beginning of the master's log that this one lacks; None if it lacks none. Messages that
        are older than ``fileReservedTime`` do not count, because the master would have deleted them, too.
        """
        begin, (start, stored_ms) = self._promotion.master_begin, self._first_record
        if self._is_master or begin is None or start <= begin:
            return None
        is_expired = self._clock() - stored_ms >= self._store.config.file_reserved_hours * _HOUR_MS
        return None if is_expired else LostRange(begin, start)

    async def _watch_first_record(self) -> None:
        with suppress(OSError, StorageError):  # a promotion reads it again
            await self._read_first_record()

    async def _read_first_record(self) -> None:
        start = self._store.start_offset
        if start != self._first_record[0]:
            stored_ms = await self._store.store_timestamp_at(start)
            self._first_record = (-1, 0) if stored_ms is None else (start, stored_ms)

    async def _start_master(self) -> None:
        """Start the services of a master. Errors are only logged, because a promotion cannot be undone."""
        assert self._work is not None
        for step in (self._work.start, self._master.start):
            try:
                await step()
            except (OSError, RaptorMQError) as error:
                logger.error("this broker is the master now, but one of its services failed to start: %s", error)
        self._work.register(MASTER_ID)
        self._watch()

    # --- connections ---

    async def _run(self) -> None:
        failures = 0
        while True:
            began = self._received_bytes
            try:
                await self._follow()
            except (RaptorMQError, OSError, EOFError, ValueError) as error:
                if self._client.address or failures:  # otherwise the name servers have not responded yet
                    self._log_once(error)
            except Exception as error:
                logger.exception("following the master failed")
                self._reason = str(error)
            self._is_connected = False
            await self._watch_first_record()
            await self.tables.save_commits()
            failures = 0 if self._received_bytes > began else failures + 1
            is_due = failures <= _REGISTRATIONS_IN_A_ROW or failures % _REGISTRATION_INTERVAL == 0
            if is_due or await self._look_up_master() not in ("", self._client.address):
                self._find_master()
            await asyncio.sleep(_RETRY.pause(failures))

    def _log_once(self, error: Exception) -> None:
        text = str(error) or "the connection ended"
        if isinstance(error, EOFError):
            text = "the master has closed the connection"
        if text != self._reason:
            self._reason = text
            logger.warning("cannot follow the master; retrying: %s", text)

    async def _follow(self) -> None:
        """Follow the master until an error occurs, which is raised."""
        await self._compare()
        await self.tables.copy_topics()
        self.tables.start()
        try:
            await self._replicate()
        finally:
            await self.tables.stop()  # the next process at this address may have another log and other tables

    async def _replicate(self) -> None:
        address = self._settings.master_address or self._client.ha_address
        if not address:
            raise ConnectError("no name server has the HA port of the master: set haMasterAddress")
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(*parse_address(address))
        except TimeoutError:
            raise ConnectError(
                f"no connection to the HA port of the master, {address}, within {_CONNECT_S:g} s"
            ) from None
        except OSError as error:
            raise ConnectError(f"no connection to the HA port of the master, {address}: {error}") from error
        loop = asyncio.get_running_loop()
        parts = self._receive(reader), self._report(writer), self._watch_begin()
        tasks = [loop.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.transport.abort()

    async def _compare(self) -> None:
        """Check that the local log is a prefix of the master's log.

        Raises:
            ProtocolError: the local log is not a prefix. The message contains the reason and a remedy.
            RaptorMQError: the master did not respond.
        """
        replica, client = self._replica, self._client
        size = await client.segment_size()
        if size is not None and size != replica.segment_size:
            raise ProtocolError(
                f"mappedFileSizeCommitLog is {replica.segment_size} here and {size} at the master: set the same value"
            )
        low, high = await client.log_bounds()
        self._master_end = high
        await self._promotion.master_begins(low)
        end = self._store.end_offset
        if not end:
            return
        if end > high:
            raise ProtocolError(
                f"this log ends at {end}, but the log of the master ends at {high}: the master has lost"
                " messages, or it is the master of another log; nothing was changed"
            )
        if end < low:
            raise ProtocolError(
                f"this log ends at {end}, but the log of the master begins at {low}: the range between is deleted."
                " Empty this store, or copy the master's segments to it"
            )
        last = replica.last_queued_record
        if last is None or last < low:
            return
        own = await self._store.message_at(last, whole=True, include_deleted=True)
        if own is not None and not await client.has_record(last, bytes(own)):
            raise ProtocolError(
                f"the record at offset {last} differs from that of the master: the logs have diverged, and this one has"
                " messages that the master does not have. Nothing was changed; empty this store to follow the master"
            )

    # --- the log ---

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        replica = self._replica
        kept = bytearray()
        while True:
            try:
                async with asyncio.timeout(self._settings.silence_ms / 1000):
                    offset, size = PUSH.unpack(await reader.readexactly(PUSH.size))
                    if not 0 <= size <= MAX_PUSH_BYTES or offset < 0:
                        raise ProtocolError(f"received a push of {size} bytes at {offset}: the peer is not an HA port")
                    data = await reader.readexactly(size)
            except TimeoutError:
                raise ProtocolError("no push arrived from the master for haHousekeepingInterval") from None
            self._read_ms = self._clock()
            if not self._is_connected:
                self._is_connected, self._reason = True, ""
                logger.info("following the master from offset %d", offset)
            if not size and not self._store.end_offset:
                continue
            if not self._store.end_offset and not kept and offset:
                replica.begin_at(offset)
            if offset != self._store.end_offset + len(kept):
                raise ProtocolError(
                    f"the master pushed offset {offset}, but this log ends at {self._store.end_offset + len(kept)}"
                )
            if size:
                self._received_bytes += size
                kept += data
                await self._write(kept)
                self._master_end = max(self._master_end, offset + size)

    async def _write(self, kept: bytearray) -> None:
        """Write the complete records at the beginning of ``kept`` and remove them from it."""
        replica = self._replica
        offset = self._store.end_offset
        try:
            size = replica.whole_records(kept)
            data = bytes(memoryview(kept)[:size])
            batches = replica.parse(data) if size else []
        except RecordError as error:
            raise ProtocolError(f"the pushed record at offset {offset} is damaged: {error}") from error
        if not size:
            if len(kept) > MAX_PUSH_BYTES:
                raise ProtocolError(f"the pushed record at offset {offset} exceeds {MAX_PUSH_BYTES} bytes")
            return
        del kept[:size]
        names = {record.topic for batch in batches for record in batch.records}
        await self.tables.prepare(names, offset + size)
        replica.write(offset, data, batches)
        replica.confirm(self._store.end_offset)
        self._grown.set()

    async def _report(self, writer: asyncio.StreamWriter) -> None:
        heartbeat_s = self._settings.heartbeat_ms / 1000
        while True:
            self._grown.clear()
            end = self._store.end_offset
            if self._flushes_first:
                await self._store.wait_flushed(end)
            writer.write(REPORT.pack(end))
            self._written_ms = self._clock()
            await writer.drain()
            await wait_event(self._grown, heartbeat_s)

    async def _watch_begin(self) -> None:
        """Record where both logs begin, as retention moves them."""
        while True:
            await self._watch_first_record()
            await asyncio.sleep(WATCH_S)
            with suppress(RaptorMQError):  # the connection for the log decides whether the master responds
                await self._promotion.master_begins((await self._client.log_bounds())[0])

    # --- status ---

    @property
    def _lag(self) -> int:
        return max(0, self._master_end - self._store.end_offset)

    def connections(self) -> dict[str, Any]:
        """Return the body of ``mqadmin haStatus`` (907)."""
        if self._is_master:
            return self._master.connections()
        return {
            "haClientRuntimeInfo": {
                "activated": self._is_connected,
                "lastReadTimestamp": self._read_ms,
                "lastWriteTimestamp": self._written_ms,
                "masterAddr": self._settings.master_address or self._client.ha_address,
                "masterFlushOffset": 0,
                "maxOffset": self._store.end_offset,
                "transferredByteInSecond": 0,
            },
            "master": False,
        }

    def facts(self) -> dict[str, str]:
        """Return the entries about replication for ``mqadmin brokerStatus`` (28)."""
        if self._is_master:
            return self._master.facts()
        return {
            "haMaster": self._client.address,
            "haConnected": str(self._is_connected).lower(),
            "haBehindBytes": str(self._lag),
            "haMasterEnd": str(self._master_end),
            **({"haReason": self._reason} if self._reason else {}),
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the gauges for Prometheus as name -> (help text, value)."""
        if self._is_master:
            return self._master.gauges()
        return {
            "ha_connected": ("1 while this slave follows its master", float(self._is_connected)),
            "ha_lag_bytes": (
                "Lag of this slave in bytes, as far as it knows the end of its master's log",
                float(self._lag),
            ),
            "ha_received_bytes_total": ("Bytes of the log received from the master", float(self._received_bytes)),
        }
