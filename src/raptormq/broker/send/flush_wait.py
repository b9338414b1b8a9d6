"""SYNC_FLUSH: stored groups whose producers are answered when the disk has them (``GroupCommitService``)."""

from __future__ import annotations

import asyncio

from raptormq.broker.send.admitted import Admitted
from raptormq.broker.send.answers import SendAnswers
from raptormq.errors import StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.queue import Appended
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

MAX_WAITING_GROUPS = 20_000
"""Groups that wait for the disk at a time; beyond it sends are refused as "busy", for a disk that has stopped
answering."""


class FlushWaits:
    """All groups that wait for the disk."""

    def __init__(self, store: MessageStore, answers: SendAnswers, timeout_s: float) -> None:
        self._store = store
        self._answers = answers
        self._timeout_s = timeout_s
        self._count = 0

    @property
    def is_full(self) -> bool:
        """True while no more groups may wait."""
        return self._count >= MAX_WAITING_GROUPS

    async def settled(self, end_offset: int) -> int:
        """Wait until the disk has everything below ``end_offset``; return the code of the answer, 10 when that takes
        too long or will never be.
        """
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self._count += 1

        def flushed(error: StorageError | None) -> None:
            self._count -= 1
            if not done.done():
                done.set_result(error)

        self._store.on_flushed(end_offset, flushed)
        try:
            async with asyncio.timeout(self._timeout_s):
                error = await done
        except TimeoutError:
            return ResponseCode.FLUSH_DISK_TIMEOUT
        return ResponseCode.SUCCESS if error is None else ResponseCode.FLUSH_DISK_TIMEOUT

    def answer(self, connection: Connection, admitted: list[Admitted], result: Appended) -> None:
        """Answer a stored group: at once whoever does not want to wait, the others when the disk has it."""
        waiting = [entry for entry in admitted if entry.wait]
        if len(waiting) < len(admitted):
            connection.send_raw(self._answers.encode_group(admitted, result, 0, waiting=False))
        if waiting:
            self._count += 1
            group = _WaitingGroup(connection, admitted, result, self._answers)
            group.timer = asyncio.get_running_loop().call_later(self._timeout_s, group.timed_out)

            def flushed(error: StorageError | None) -> None:
                self._count -= 1
                group.flushed(error)

            self._store.on_flushed(result.end_offset, flushed)


class _WaitingGroup:
    """One group; it is answered once, by the flush or by the clock, whichever comes first."""

    __slots__ = ("_admitted", "_answers", "_connection", "_result", "timer")

    def __init__(
        self, connection: Connection, admitted: list[Admitted], result: Appended, answers: SendAnswers
    ) -> None:
        self._connection = connection
        self._admitted = admitted
        self._result = result
        self._answers = answers
        self.timer: asyncio.TimerHandle | None = None

    def flushed(self, error: StorageError | None) -> None:
        """The disk has the group, or never will."""
        if self.timer is None:
            return
        self.timer.cancel()
        self.timer = None
        if error is None:
            self._answer(ResponseCode.SUCCESS, "")
        else:
            self._answer(ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but not on disk: {error}")

    def timed_out(self) -> None:
        """The disk takes too long."""
        self.timer = None
        self._answer(ResponseCode.FLUSH_DISK_TIMEOUT, "stored, but not on disk within syncFlushTimeout")

    def _answer(self, code: int, remark: str) -> None:
        frames = self._answers.encode_group(self._admitted, self._result, int(code), remark, waiting=True)
        if frames:
            self._connection.send_raw(frames)
