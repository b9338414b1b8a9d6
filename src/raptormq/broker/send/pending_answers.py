"""Delays the responses to sends until the store has confirmed the records (Apache RocketMQ ``GroupCommitService``) and,
on a SYNC_MASTER, until slaves have acknowledged them (``GroupTransferService``).

A group of sends whose records are already confirmed is answered at once. Any other group waits with one callback and
one timer, not with one future per message. On a SYNC_MASTER the wait has two steps, each with its own timeout::

    appended --confirmed--> on this disk --copied--> on the slaves, too
        `-- syncFlushTimeout      `-- slaveTimeout, or no slave is there
            10                        12, 11
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from raptormq.broker.send.accepted_send import AcceptedSend
from raptormq.broker.send.answers import SendAnswers
from raptormq.errors import NotLeader, SlaveNotAvailable, StorageError
from raptormq.protocol.codes import ResponseCode
from raptormq.storage.log import OffsetCallback
from raptormq.storage.queue import Appended
from raptormq.storage.store import MessageStore
from raptormq.transport.connection import Connection

MAX_PENDING_GROUPS = 20_000
"""Maximum number of waiting groups. Further sends are refused as busy. A disk that has stopped responding causes this.
"""


class Slaves(Protocol):
    """The progress of the slaves of a SYNC_MASTER."""

    @property
    def copied_offset(self) -> int:
        """Log offset below which enough slaves have the whole log."""

    def on_copied(self, end_offset: int, callback: OffsetCallback) -> None:
        """Call ``callback`` with None when enough slaves have the log to ``end_offset``, or with SlaveNotAvailable."""


@dataclass(frozen=True, slots=True)
class SlaveWait:
    """The slaves to wait for, and the timeout in seconds."""

    slaves: Slaves
    timeout_s: float


_FLUSH_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT, "stored, but not on disk within syncFlushTimeout"
_MAJORITY_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT, "stored, but a majority of the group does not have it yet"
_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT, "stored, but no slave has it within slaveTimeout"
Done = Callable[[ResponseCode, str], None]


class PendingAnswers:
    """Answers groups of sends when the store has confirmed them, or after ``timeout_s``."""

    def __init__(
        self,
        store: MessageStore,
        answers: SendAnswers,
        timeout_s: float,
        *,
        is_replicated: bool = False,
        slaves: SlaveWait | None = None,
    ) -> None:
        """In a Dledger group (``is_replicated``), requests with WAIT=false wait, too, because records that only the
        leader has may be lost.
        """
        self.store = store
        self.timeout_s = timeout_s
        self.too_late = _MAJORITY_TIMEOUT if is_replicated else _FLUSH_TIMEOUT
        self.slaves = slaves
        self.waits_always = is_replicated
        """Whether requests with WAIT=false wait, too."""
        self._answers = answers
        self.count = 0
        """Number of waiting groups. A group that was answered because of a timeout counts until the store or the slaves
        complete its wait.
        """

    @property
    def is_full(self) -> bool:
        """True if the maximum number of groups is waiting."""
        return self.count >= MAX_PENDING_GROUPS

    def is_done(self, end_offset: int) -> bool:
        """Return whether the log below ``end_offset`` is confirmed and, on a SYNC_MASTER, copied to enough slaves."""
        return end_offset <= self.store.confirmed_offset and (
            self.slaves is None or end_offset <= self.slaves.slaves.copied_offset
        )

    def answer(self, connection: Connection, admitted: list[AcceptedSend], result: Appended) -> None:
        """Answer a stored group when it is confirmed. Outside a Dledger group, requests with WAIT=false are answered at
        once.
        """
        if self.is_done(result.end_offset):
            connection.send_raw(self._answers.encode_group(admitted, result, 0))
        else:
            self._answer_later(connection, admitted, result)

    def _answer_later(self, connection: Connection, admitted: list[AcceptedSend], result: Appended) -> None:
        waiting = admitted if self.waits_always else [entry for entry in admitted if entry.wait]
        if len(waiting) < len(admitted):
            connection.send_raw(self._answers.encode_group(admitted, result, 0, waiting=False))
        if waiting:
            picked = None if self.waits_always else True

            def done(code: ResponseCode, remark: str) -> None:
                frames = self._answers.encode_group(admitted, result, int(code), remark, waiting=picked)
                if frames:
                    connection.send_raw(frames)

            _Wait(self, result.end_offset, done).begin()

    async def wait(self, end_offset: int) -> int:
        """Wait until the log below ``end_offset`` is confirmed and copied. Return 0, or the code of the step that has
        failed or has reached its timeout (see the module docstring).

        Raises:
            NotLeader: this member no longer leads its group. The records may be stored or lost.
        """
        answered: asyncio.Future[tuple[ResponseCode, str]] = asyncio.get_running_loop().create_future()

        def done(code: ResponseCode, remark: str) -> None:
            if not answered.done():
                answered.set_result((code, remark))

        _Wait(self, end_offset, done).begin()
        code, remark = await answered
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:
            raise NotLeader(remark)
        return code


class _Wait:
    """One wait. ``done`` is called once: by the store, by the slaves or by the timer, whichever comes first."""

    __slots__ = ("_done", "_end_offset", "_pending", "_timer")

    def __init__(self, pending: PendingAnswers, end_offset: int, done: Done) -> None:
        self._pending = pending
        self._end_offset = end_offset
        self._done = done
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to wait for the store."""
        pending = self._pending
        pending.count += 1
        self._set_timer(pending.timeout_s, pending.too_late)
        pending.store.on_confirmed(self._end_offset, self._confirmed)

    def _set_timer(self, seconds: float, too_late: tuple[ResponseCode, str]) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out, too_late)

    def _timed_out(self, too_late: tuple[ResponseCode, str]) -> None:
        self._timer = None
        self._done(*too_late)

    def _confirmed(self, error: StorageError | None) -> None:
        """Handle the confirmation of the store, or the ``error`` that has made it impossible."""
        slaves = self._pending.slaves
        if slaves is None or error is not None or self._timer is None:
            self._end(error)
            return
        self._timer.cancel()
        self._set_timer(slaves.timeout_s, _SLAVE_TIMEOUT)
        slaves.slaves.on_copied(self._end_offset, self._end)

    def _end(self, error: StorageError | None) -> None:
        self._pending.count -= 1
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        if error is None:
            self._done(ResponseCode.SUCCESS, "")
        elif isinstance(error, NotLeader):  # the records may be lost: the producer sends them again
            self._done(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        elif isinstance(error, SlaveNotAvailable):
            self._done(ResponseCode.SLAVE_NOT_AVAILABLE, str(error))
        else:
            self._done(ResponseCode.FLUSH_DISK_TIMEOUT, f"stored, but not on disk: {error}")
