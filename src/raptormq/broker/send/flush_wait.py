"""SYNC_FLUSH: a stored group whose producers are answered when the disk has it (``GroupCommitService``)."""

from __future__ import annotations

import asyncio

from raptormq.broker.send.admission import Admitted
from raptormq.broker.send.answers import SendAnswers
from raptormq.errors import StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.log_batch import AppendResult
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection


class FlushWait:
    """One group; it is answered once, by the flush or by the clock, whichever comes first."""

    __slots__ = ("_admitted", "_answers", "_connection", "_result", "_timer")

    def __init__(
        self, connection: Connection, admitted: list[Admitted], result: AppendResult, answers: SendAnswers
    ) -> None:
        self._connection = connection
        self._admitted = admitted
        self._result = result
        self._answers = answers
        self._timer: asyncio.TimerHandle | None = None

    def start(self, store: MessageStore, timeout_s: float) -> None:
        """Wait for the flush that covers the group."""
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._timed_out)
        store.on_flushed(self._result.end_offset, self._flushed)

    def _flushed(self, error: StorageError | None) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        if error is None:
            self._answer(ResponseCode.SUCCESS, "")
        else:
            self._answer(ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but not on disk: {error}")

    def _timed_out(self) -> None:
        self._timer = None
        self._answer(ResponseCode.FLUSH_DISK_TIMEOUT, "stored, but not on disk within syncFlushTimeout")

    def _answer(self, code: int, remark: str) -> None:
        frames = self._answers.encode_group(self._admitted, self._result, int(code), remark, waiting=True)
        if frames:
            self._connection.send_raw(frames)
